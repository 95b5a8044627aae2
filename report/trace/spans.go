// Package trace records who worked and who waited, as a file that Perfetto and
// chrome://tracing open.
//
// A run has rows: one for each who does one thing at a time (Track), and several
// for each who does many (Lanes). On a row stand spans, which follow or enclose
// each other. A flow is the way of one group of responses through the rows: from
// the span that opens it, over those that say that they have a part in it, to the
// last of them.
//
// What is recorded is bounded in spans and in bytes of the file. Where that is
// full the oldest go, and are counted.
package trace

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// mostTracks is how many rows a trace has; what comes later shares one more.
const mostTracks = 1000

const (
	// DefaultSpans is how many spans a recorder keeps where nothing else is asked.
	DefaultSpans = 100_000
	// maxBytes is how long the file may become, apart from the names of its rows.
	maxBytes = 16 << 20
)

// Spans is a recorder. It is safe for concurrent use. All methods of a nil
// *Spans, and of what it returns, do nothing and allocate nothing.
type Spans struct {
	start time.Time

	mu       sync.Mutex
	origin   time.Time // time 0 of the trace: start, or that of the trace it goes on from
	tracks   []trackInfo
	spans    []span // from oldest on, in the order in which they ended
	oldest   int
	bytes    int // that the spans take in the file at most
	limit    int // spans
	maxBytes int
	dropped  int
	kept     time.Time     // end of the last Keep
	keeping  time.Duration // that it took
}

type trackInfo struct {
	name  string
	lanes bool // its spans may overlap
}

type span struct {
	name       string
	begin, end time.Duration // since start
	track      int32
	step       int32 // NoStep for none
	opens      bool  // its flow begins here
	tokens     int   // 0 for none
	prompt     string
	flows      []uint64
}

// NoStep is the step of what belongs to none.
const NoStep = -1

// Note is what a span has to say beside its name and its times. Nothing in it is
// needed, and nothing of it is kept by reference.
type Note struct {
	Tokens int      // that the work was about
	Prompt string   // its ID
	Flows  []uint64 // in which the span has a part
	Opens  bool     // the flow begins with this span
}

// New returns a recorder of at most limit spans.
func New(limit int) *Spans {
	now := time.Now()
	return &Spans{start: now, origin: now, limit: max(limit, 1), maxBytes: maxBytes}
}

// Track is a row of the trace. The zero Track records nothing.
type Track struct {
	spans *Spans
	id    int32
}

// Track returns the row called name, for one worker whose spans follow or
// enclose each other.
func (s *Spans) Track(name string) Track { return s.track(trackInfo{name: name}) }

// Lanes returns the rows called name, for work of which several pieces are done
// at once: spans that overlap stand on different rows, and those of a flow on one.
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

// Records reports whether what is told to t is kept.
func (t Track) Records() bool { return t.spans != nil }

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
func (sp Span) End() { sp.EndWith(Note{}) }

// EndWith records the span with a note.
func (sp Span) EndWith(n Note) {
	if s := sp.track.spans; s != nil {
		sp.record(time.Since(s.start), n)
	}
}

// Add records a span that is over: from start on, for d.
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
	// Copies, so that a caller's note can stand on its stack.
	done.prompt = strings.Clone(n.Prompt)
	if len(n.Flows) > 0 {
		done.flows = append([]uint64(nil), n.Flows...)
	}
	s := sp.track.spans
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(done)
}

// keep adds a span, and drops the oldest ones where there are too many. s is
// locked.
func (s *Spans) keep(done span) {
	if s.oldest > 0 && s.oldest >= len(s.spans)/2 && len(s.spans) == cap(s.spans) {
		n := copy(s.spans, s.spans[s.oldest:])
		clear(s.spans[n:])
		s.spans, s.oldest = s.spans[:n], 0
	}
	s.spans = append(s.spans, done)
	s.bytes += done.size()
	for len(s.spans)-s.oldest > s.limit || s.bytes > s.maxBytes && len(s.spans)-s.oldest > 1 {
		s.bytes -= s.spans[s.oldest].size()
		s.spans[s.oldest] = span{}
		s.oldest++
		s.dropped++
	}
}

// size is how many bytes the span takes in the file at most.
func (sp *span) size() int {
	const event, flow = 160, 120 // with all numbers at their longest
	return event + quotedLen(sp.name) + quotedLen(sp.prompt) + flow*len(sp.flows)
}
