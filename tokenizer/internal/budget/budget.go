// Package budget bounds the work that a tokenizer's patterns and replacements do on a
// text.
package budget

import (
	"errors"
	"fmt"
	"time"
)

// ErrSpent reports a text that takes more than its budget.
var ErrSpent = errors.New("tokenizer stopped")

const (
	freeSteps      = 1 << 26 // steps of any text, about a second
	stepsPerByte   = 1 << 10 // about 20 microseconds, ten times what real patterns take
	stepsPerMicros = 50      // steps that a microsecond of a regular expression counts as
	freeBytes      = 1 << 20 // size to which any text may grow
	growth         = 64      // bytes of a changed text per byte of the original

	// MatchTimeout limits one match of a regular expression.
	MatchTimeout = time.Second
)

// Budget bounds the steps of patterns and the size of texts. After the first refusal it
// refuses everything. It is not safe for concurrent use.
type Budget struct {
	steps int64 // steps left
	bytes int64 // maximum size of a text
	err   error // reason of the first refusal, or nil
}

// New returns the budget of a text of this many bytes.
func New(bytes int) *Budget {
	return &Budget{steps: freeSteps + stepsPerByte*int64(bytes), bytes: freeBytes + growth*int64(bytes)}
}

// Step spends n steps of a pattern and reports whether it may continue.
func (b *Budget) Step(n int) bool {
	if b.steps -= int64(n); b.steps < 0 {
		b.Fail("a pattern takes too many steps")
	}
	return b.err == nil
}

// Ran spends the steps of a regular expression that ran for d, and reports whether it may
// continue.
func (b *Budget) Ran(d time.Duration) bool { return b.Step(int(stepsPerMicros * d.Microseconds())) }

// Holds reports whether a text may have this many bytes.
func (b *Budget) Holds(bytes int) bool {
	if int64(bytes) > b.bytes {
		b.Fail("the text grows to %d bytes, expected at most %d", bytes, b.bytes)
	}
	return b.err == nil
}

// Fail refuses everything from then on. The first reason counts.
func (b *Budget) Fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf("%w: %s", ErrSpent, fmt.Sprintf(format, args...))
	}
}

// Err returns the reason of the first refusal, or nil.
func (b *Budget) Err() error { return b.err }
