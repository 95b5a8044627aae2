// Package trace records when each worker works and waits, as a file that Perfetto and
// chrome://tracing open.
//
// A Track is a row for one worker that does one thing at a time. Lanes are several
// rows for concurrent work. The spans of a row follow or enclose each other. A flow
// traces one group of responses across rows: it starts at the span that opens it and
// passes every later span that names it.
//
// A recorder bounds the number of spans and the size of the file. When full, it drops
// and counts the oldest spans.
package trace

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// maxTracks limits the number of named tracks. All further names share one track, "others".
const maxTracks = 1000

const (
	// DefaultSpans is the default span limit.
	DefaultSpans = 100_000
	// maxBytes limits the size of the file in bytes, without the names of its rows.
	maxBytes = 16 << 20
)

// Spans records spans. It is safe for concurrent use. All methods of a nil *Spans,
// and of what it returns, do nothing and allocate nothing.
type Spans struct {
	start time.Time

	mu       sync.Mutex
	origin   time.Time // time 0 of the trace: start, or time 0 of the continued trace
	tracks   []trackInfo
	spans    []span        // in the order in which they ended; those before oldest are dropped
	oldest   int           // index of the oldest span that is not dropped
	bytes    int           // upper bound on the size in the file of all spans that are not dropped
	limit    int           // max. number of spans
	maxBytes int           // max. value of bytes
	dropped  int           // number of spans dropped so far
	kept     time.Time     // when the last Keep ended
	keeping  time.Duration // how long the last Keep took
}

// trackInfo identifies a track: one with the same name and kind is the same track.
type trackInfo struct {
	name  string
	lanes bool // its spans may overlap
}

// span is a finished span.
type span struct {
	name       string
	begin, end time.Duration // since start
	track      int32
	step       int32 // NoStep for none
	opens      bool  // the span starts its flows
	tokens     int   // 0 for none
	prompt     string
	flows      []uint64
}

// NoStep marks a span that belongs to no step.
const NoStep = -1

// Note holds optional details of a span. The recorder copies it.
type Note struct {
	Tokens int      // number of tokens processed
	Prompt string   // prompt ID
	Flows  []uint64 // flows that pass the span
	Opens  bool     // the flows start here
}

// New returns a recorder that keeps at most limit spans, such as DefaultSpans.
func New(limit int) *Spans {
	now := time.Now()
	return &Spans{start: now, origin: now, limit: max(limit, 1), maxBytes: maxBytes}
}

// Track is a row, or a set of lanes, of the trace. The zero Track records nothing.
type Track struct {
	spans *Spans
	id    int32
}

// Track returns the row called name, for one worker. Its spans follow or enclose each
// other.
func (s *Spans) Track(name string) Track { return s.track(trackInfo{name: name}) }

// Lanes returns the rows called name, for concurrent work. Overlapping spans are on different rows.
// Spans of one flow that do not overlap are on the same row.
func (s *Spans) Lanes(name string) Track { return s.track(trackInfo{name: name, lanes: true}) }

// track returns the track described by info, and creates it if needed.
func (s *Spans) track(info trackInfo) Track {
	if s == nil {
		return Track{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tracks) >= maxTracks && !slices.Contains(s.tracks, info) {
		info = trackInfo{name: "others", lanes: true}
	}
	id := slices.Index(s.tracks, info)
	if id < 0 {
		id = len(s.tracks)
		s.tracks = append(s.tracks, info)
	}
	return Track{spans: s, id: int32(id)}
}

// Records reports whether t records spans. The zero Track and tracks of a nil *Spans do not.
func (t Track) Records() bool { return t.spans != nil }

// Span is a piece of work in progress.
type Span struct {
	track Track
	name  string
	step  int
	begin time.Duration
}

// Begin starts a span called name in a step.
func (t Track) Begin(step int, name string) Span {
	if t.spans == nil {
		return Span{}
	}
	return Span{track: t, name: name, step: step, begin: time.Since(t.spans.start)}
}

// End records the span.
func (sp Span) End() { sp.EndWith(Note{}) }

// EndWith records the span with a note.
func (sp Span) EndWith(n Note) {
	if s := sp.track.spans; s != nil {
		sp.record(time.Since(s.start), n)
	}
}

// Add records a finished span that began at start and took d.
func (t Track) Add(step int, name string, start time.Time, d time.Duration, n Note) {
	if t.spans == nil {
		return
	}
	begin := start.Sub(t.spans.start)
	Span{track: t, name: name, step: step, begin: begin}.record(begin+d, n)
}

func (sp Span) record(end time.Duration, n Note) {
	done := span{track: sp.track.id, name: sp.name, begin: sp.begin, end: max(sp.begin, end), step: int32(sp.step),
		tokens: n.Tokens, opens: n.Opens}
	// Copy, so that a caller's note can stay on its stack.
	done.prompt = strings.Clone(n.Prompt)
	if len(n.Flows) > 0 {
		done.flows = append([]uint64(nil), n.Flows...)
	}
	s := sp.track.spans
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(done)
}

// add stores a span and drops the oldest ones above the limits. The caller holds s.mu.
func (s *Spans) add(done span) {
	if s.oldest > 0 && s.oldest >= len(s.spans)/2 && len(s.spans) == cap(s.spans) {
		n := copy(s.spans, s.spans[s.oldest:])
		clear(s.spans[n:])
		s.spans, s.oldest = s.spans[:n], 0
	}
	s.spans = append(s.spans, done)
	s.bytes += done.size()
	for len(s.spans)-s.oldest > s.limit || (s.bytes > s.maxBytes && len(s.spans)-s.oldest > 1) {
		s.bytes -= s.spans[s.oldest].size()
		s.spans[s.oldest] = span{}
		s.oldest++
		s.dropped++
	}
}

// size returns an upper bound on the bytes of the span in the file.
func (sp *span) size() int {
	const event, flow = 160, 120 // bytes without strings, with all numbers at their longest
	return event + quotedLen(sp.name) + quotedLen(sp.prompt) + flow*len(sp.flows)
}
