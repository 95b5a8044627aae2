// Package trace records who worked and who waited, as a file that Perfetto and
// chrome://tracing open.
package trace

import (
	"slices"
	"sync"
	"time"
)

// mostTracks is how many rows a trace has; what comes later shares one more.
const mostTracks = 1000

// DefaultSpans is how many spans a recorder keeps where nothing else is asked.
const DefaultSpans = 100_000

// Spans records who did what and when, for a trace that Perfetto and
// chrome://tracing open. It keeps the newest spans up to a limit. It is safe
// for concurrent use, and all methods of a nil *Spans, and of what it returns,
// do nothing.
type Spans struct {
	start time.Time

	mu      sync.Mutex
	origin  time.Time // time 0 of the trace: start, or that of the trace it goes on from
	tracks  []trackInfo
	spans   []span // a ring once it is full
	next    int    // where the next span goes
	limit   int
	dropped int
	kept    time.Time     // end of the last Keep
	keeping time.Duration // that it took
}

type trackInfo struct {
	name  string
	lanes bool // its spans may overlap
}

type span struct {
	track      int32
	name       string
	begin, end time.Duration // since start
	step       int           // noStep for none
}

const noStep = -1

// New returns a recorder of at most limit spans.
func New(limit int) *Spans {
	now := time.Now()
	return &Spans{start: now, origin: now, limit: max(limit, 1)}
}

// Track is a row of the trace.
type Track struct {
	spans *Spans
	id    int32
}

// Track returns the row called name, for one worker whose spans follow or
// enclose each other.
func (s *Spans) Track(name string) Track { return s.track(trackInfo{name: name}) }

// Lanes returns the rows called name, for work of which several pieces are done
// at once: spans that overlap are shown under one another.
func (s *Spans) Lanes(name string) Track { return s.track(trackInfo{name: name, lanes: true}) }

func (s *Spans) track(info trackInfo) Track {
	if s == nil {
		return Track{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tracks) >= mostTracks && !slices.Contains(s.tracks, info) {
		info = trackInfo{name: "others", lanes: true}
	}
	id := slices.Index(s.tracks, info)
	if id < 0 {
		id = len(s.tracks)
		s.tracks = append(s.tracks, info)
	}
	return Track{spans: s, id: int32(id)}
}

// Span is a piece of work in progress.
type Span struct {
	track Track
	name  string
	step  int
	begin time.Duration
}

// Begin starts the span called name in a step.
func (t Track) Begin(step int, name string) Span {
	if t.spans == nil {
		return Span{}
	}
	return Span{track: t, name: name, step: step, begin: time.Since(t.spans.start)}
}

// End records the span.
func (sp Span) End() {
	s := sp.track.spans
	if s == nil {
		return
	}
	s.add(span{track: sp.track.id, name: sp.name, step: sp.step, begin: sp.begin, end: time.Since(s.start)})
}

// Add records a span that is over: from start on, for d, in no step.
func (t Track) Add(name string, start time.Time, d time.Duration) {
	if t.spans == nil {
		return
	}
	begin := start.Sub(t.spans.start)
	t.spans.add(span{track: t.id, name: name, step: noStep, begin: begin, end: begin + d})
}

func (s *Spans) add(done span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spans) < s.limit {
		s.spans = append(s.spans, done)
		return
	}
	s.spans[s.next] = done
	s.next = (s.next + 1) % s.limit
	s.dropped++
}
