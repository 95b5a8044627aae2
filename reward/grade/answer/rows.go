package answer

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// lines returns the lines of a text that are not blank, without the delimiters of code blocks and of
// mathematics.
func lines(s string) []string {
	if _, body, ok := strings.Cut(s, `\begin{`); ok && strings.Count(s, `\begin`) == 1 {
		_, body, _ = strings.Cut(body, "}")
		if strings.HasPrefix(body, "{") { // the columns of an array
			_, body, _ = strings.Cut(body, "}")
		}
		body, _, _ = strings.Cut(body, `\end{`)
		s = strings.ReplaceAll(body, "&", " ")
	}
	s = strings.NewReplacer("$$", "", `\[`, "", `\]`, "").Replace(markup.Spaced(strings.ReplaceAll(s, `\\`, "\n")))
	all := make([]string, 0, strings.Count(s, "\n")+1)
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); strings.Trim(line, "*`") != "" && !strings.HasPrefix(line, "```") {
			all = append(all, line)
		}
	}
	return all
}

// IsBlock reports whether a reference answer has several lines that all count.
func IsBlock(want string) bool {
	return strings.Contains(strings.TrimSpace(want), "\n") && !strings.ContainsAny(want, "\\{") && len(lines(want)) > 1
}

// sameBlock compares answers of several lines, line by line: the same numbers and words,
// in whatever case and spacing.
func sameBlock(want, got string) bool {
	marks := strings.NewReplacer(",", " , ", "|", " | ")
	return slices.EqualFunc(lines(want), lines(got), func(a, b string) bool {
		return a == b || slices.Equal(cells(a, marks), cells(b, marks))
	})
}

// cells returns the numbers, the words and the marks of a line.
func cells(line string, marks *strings.Replacer) []string {
	line = strings.TrimRight(strings.ToLower(
		strings.TrimSuffix(strings.TrimPrefix(strings.Trim(markup.Bare(line), "`$ "), "**"), "**")), ".")
	return strings.Fields(marks.Replace(line))
}

// maxJSON bounds a list or an object that is decoded, in bytes. Longer ones are compared only
// as text.
const maxJSON = 1 << 18

// sameJSON compares JSON lists and objects by their structure. ok is false if w is neither a list with
// texts or nested values nor an object, if g is a matrix, or if either is too long.
func sameJSON(w, g string) (same, ok bool) {
	var want, got any
	if max(len(w), len(g)) > maxJSON || w[0] != '[' && w[0] != '{' || !strings.ContainsAny(w[1:], `[{"`) ||
		json.Unmarshal([]byte(w), &want) != nil {
		return false, false
	}
	if strings.Contains(g, `\begin{`) { // a matrix
		return false, false
	}
	if json.Unmarshal([]byte(g), &got) != nil && json.Unmarshal([]byte(strings.ReplaceAll(g, "'", `"`)), &got) != nil {
		return false, true
	}
	return reflect.DeepEqual(want, got), true
}

// maxSeries bounds a list without commas, in bytes.
const maxSeries = 1 << 16

// series returns the items of an answer that lists numbers, or more than two single letters, with only
// spaces between them.
func series(s string) ([]string, bool) {
	if len(s) > maxSeries {
		return nil, false
	}
	fields := strings.Fields(markup.Spaced(s))
	if len(fields) < 2 {
		return nil, false
	}
	if len(fields) > 2 && !slices.ContainsFunc(fields,
		func(f string) bool { return len(f) != 1 || !unicode.IsLetter(rune(f[0])) }) {
		return fields, true // letters
	}
	for _, f := range fields {
		if strings.Trim(strings.TrimPrefix(f, "-"), "0123456789.") != "" || !words.HasDigit(f) {
			return nil, false
		}
	}
	return fields, true
}

// sameSeries reports whether g lists the items, with spaces or commas between them and
// perhaps in brackets.
func sameSeries(items []string, g string) bool {
	g = strings.TrimSpace(strings.NewReplacer(`\text{ and }`, " ", `\text{and}`, " ", " and ", " ").Replace(
		markup.Bare(markup.Spaced(g))))
	for _, pair := range []string{"()", "[]"} {
		if len(g) > 1 && g[0] == pair[0] && g[len(g)-1] == pair[1] {
			g = g[1 : len(g)-1]
		}
	}
	for i := range g { // 12,345 is one number
		if g[i] == ',' && i > 0 && i+3 < len(g) && expr.DigitAt(g, i-1) && expr.DigitAt(g, i+1) &&
			expr.DigitAt(g, i+2) && expr.DigitAt(g, i+3) {
			return false
		}
	}
	return slices.Equal(items, strings.FieldsFunc(g, func(r rune) bool { return r == ' ' || r == ',' || r == '\n' }))
}
