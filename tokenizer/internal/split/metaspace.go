package split

import "strings"

// Metaspace replaces each space by a mark. Depending on its scheme it puts one
// before the text, and it may split before the marks.
type Metaspace struct {
	Replacement string
	Scheme      string // always, first or never
	Cut         *Pattern
}

func (m *Metaspace) mark(text string, first bool) string {
	text = strings.ReplaceAll(text, " ", m.Replacement)
	if (m.Scheme == "always" || m.Scheme == "first" && first) && !strings.HasPrefix(text, m.Replacement) {
		text = m.Replacement + text
	}
	return text
}

// Split implements Step.
func (m *Metaspace) Split(text string, from int, to *Pieces) int {
	if m.Cut == nil {
		to.List = append(to.List, text)
		return len(text)
	}
	return m.Cut.Split(text, from, to)
}
