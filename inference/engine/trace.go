package engine

import (
	"slices"
	"time"
)

// Span is a piece of an engine's work.
type Span struct {
	// Name is "prefill" for a batch of prompts, "decode" for consecutive steps
	// (up to one second), "publish" for taking weights, and "idle".
	Name     string
	Start    time.Time
	Duration time.Duration
	Tokens   int      // tokens run through the model
	Seeds    []uint64 // of the requests whose prompts ran or that had a response end
}

// trace hands out the spans of a loop. Consecutive decode steps share one span.
type trace struct {
	emit func(s Span) // Config.Span, which may be nil
	open Span         // the open decode span; zero Start if none
}

// span hands out a span.
func (t *trace) span(s Span) {
	if t.emit != nil {
		t.emit(s)
	}
}

// prefilled hands out a span for the prompts of groups, of tokens together. The span
// includes sampling their first tokens. No decode span may be open.
func (t *trace) prefilled(start time.Time, groups []*group, tokens int) {
	if t.emit == nil {
		return
	}
	seeds := t.open.Seeds[:0] // free to use: no decode span is open
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
	if t.open.Duration = time.Since(t.open.Start); t.open.Duration >= time.Second {
		t.endDecode()
	}
}

// responseEnded records in the open decode span that a response of g has ended.
func (t *trace) responseEnded(g *group) {
	if t.emit != nil && !slices.Contains(t.open.Seeds, g.req.Seed) {
		t.open.Seeds = append(t.open.Seeds, g.req.Seed)
	}
}

// endDecode hands out the open decode span, if any.
func (t *trace) endDecode() {
	if !t.open.Start.IsZero() {
		t.open.Name = "decode"
		t.span(t.open)
	}
	t.open = Span{Seeds: t.open.Seeds[:0]}
}
