package split

import "strings"

// Walk takes the steps of a pre-tokenizer; it may be used again.
type Walk struct {
	steps  []Step
	levels []Pieces // of each step: what it made of the text that is being cut
}

// NewWalk returns a walk through steps.
func NewWalk(steps []Step) *Walk { return &Walk{steps, make([]Pieces, len(steps))} }

// maxKeptPieces is how many pieces' memory a step keeps.
const maxKeptPieces = 1 << 12

// Words calls emit with the words of text, in order; first says that text is the
// beginning of all.
func (w *Walk) Words(text string, first bool, emit func(word string)) { w.from(0, text, first, emit) }

// from takes the steps from step i on.
func (w *Walk) from(i int, text string, first bool, emit func(string)) {
	if text == "" {
		return
	}
	if i == len(w.steps) {
		emit(text)
		return
	}
	if s, ok := w.steps[i].(*Metaspace); ok {
		text = s.mark(text, first)
	}
	level := &w.levels[i]
	for from := 0; from < len(text); {
		level.List = level.List[:0]
		from = w.steps[i].Split(text, from, level)
		for _, part := range level.List {
			w.from(i+1, part, first && strings.HasPrefix(text, part), emit)
			first = false
		}
	}
}

// Forget lets go of the text, and reports whether what is left is small enough to
// be kept.
func (w *Walk) Forget() bool {
	for i := range w.levels {
		level := &w.levels[i]
		if cap(level.List) > maxKeptPieces || cap(level.found) > maxKeptPieces {
			return false
		}
		clear(level.List[:cap(level.List)])
	}
	return true
}
