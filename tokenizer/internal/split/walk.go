package split

import (
	"strings"

	"github.com/easyrl/easyrl/tokenizer/internal/budget"
)

// Walk applies the steps of a pre-tokenizer, depth first: each batch of pieces of a step goes
// through the following steps before the step's next batch. A Walk may be reused, by one
// goroutine at a time.
type Walk struct {
	steps  []Step
	levels []Pieces // current batch by step
}

// NewWalk returns a walk through steps.
func NewWalk(steps []Step) *Walk { return &Walk{steps, make([]Pieces, len(steps))} }

// maxKeptPieces is the maximum capacity of the lists of a Walk that is worth keeping.
const maxKeptPieces = 1 << 12

// Words calls emit with the words of text, in order, until the budget is spent. first
// means that text starts the input.
func (w *Walk) Words(b *budget.Budget, text string, first bool, emit func(word string)) {
	for i := range w.levels {
		w.levels[i].Budget = b
	}
	w.from(0, text, first, emit)
}

// from applies the steps from step i on to a text.
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
	for from := 0; from < len(text) && level.Budget.Err() == nil; {
		level.List = level.List[:0]
		from = w.steps[i].Split(text, from, level)
		for _, part := range level.List {
			// A removed match may precede the first part.
			w.from(i+1, part, first && strings.HasPrefix(text, part), emit)
			first = false
		}
	}
}

// Forget drops references to the text and reports whether the remaining memory is
// small enough to keep.
func (w *Walk) Forget() bool {
	for i := range w.levels {
		level := &w.levels[i]
		level.Budget = nil
		if cap(level.List) > maxKeptPieces || cap(level.found) > maxKeptPieces {
			return false
		}
		clear(level.List[:cap(level.List)])
	}
	return true
}
