package engine

import (
	"slices"
	"time"
)

// Span is a piece of an engine's work.
type Span struct {
	// Name is "prefill" for a batch of prompts or known tokens, "decode" for consecutive steps
	// (up to one second), "publish" for taking weights, and "idle".
	Name     string
	Start    time.Time
	Duration time.Duration
	Tokens   int      // number of tokens run through the model
	Seeds    []uint64 // seeds of the requests whose prompts ran or that had a response end
}

// trace passes the spans of a loop to Config.Span. Consecutive decode steps share one span.
type trace struct {
	emit func(s Span) // Config.Span, which may be nil
	open Span         // the open decode span; its Start is zero if none is open
}

// span emits a span.
func (t *trace) span(s Span) {
	if t.emit != nil {
		t.emit(s)
	}
}

// prefilled emits a span for a prefill that ran this number of tokens of the groups' prompts. The span
// includes sampling their first tokens. No decode span may be open.
func (t *trace) prefilled(start time.Time, groups []*group, tokens int) {
	if t.emit == nil {
		return
	}
	seeds := t.open.Seeds[:0] // free for reuse, because no decode span is open
	for _, g := range groups {
		seeds = append(seeds, g.req.Seed)
	}
	t.emit(Span{Name: "prefill", Start: start, Duration: time.Since(start), Tokens: tokens, Seeds: seeds})
	t.open.Seeds = seeds[:0]
}

// decoded adds a step with the given number of rows to the open decode span.
func (t *trace) decoded(start time.Time, rows int) {
	if t.emit == nil {
		return
	}
	if t.open.Start.IsZero() {
		t.open.Start = start
	}
	t.open.Tokens += rows
	t.open.Duration = time.Since(t.open.Start)
	if t.open.Duration >= time.Second {
		t.endDecode()
	}
}

// responseEnded records in the open decode span that a response of g has ended.
func (t *trace) responseEnded(g *group) {
	if t.emit != nil && !slices.Contains(t.open.Seeds, g.req.Seed) {
		t.open.Seeds = append(t.open.Seeds, g.req.Seed)
	}
}

// endDecode ends and emits the open decode span, if there is one.
func (t *trace) endDecode() {
	if !t.open.Start.IsZero() {
		t.open.Name = "decode"
		t.span(t.open)
	}
	t.open = Span{Seeds: t.open.Seeds[:0]}
}
