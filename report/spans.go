package report

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"
)

// TraceFile is the name of the trace in a run's folder.
const TraceFile = "trace.json"

// DefaultSpans is how many spans a recorder keeps where nothing else is asked.
const DefaultSpans = 100_000

// Spans records who did what and when, for a trace that Perfetto and
// chrome://tracing open. It keeps the newest spans up to a limit. It is safe
// for concurrent use, and all methods of a nil *Spans, and of what it returns,
// do nothing.
type Spans struct {
	start time.Time

	mu      sync.Mutex
	tracks  []trackInfo
	spans   []span // a ring once it is full
	next    int    // where the next span goes
	limit   int
	dropped int
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

// NewSpans returns a recorder of at most limit spans.
func NewSpans(limit int) *Spans { return &Spans{start: time.Now(), limit: max(limit, 1)} }

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

// traceEvent is one Chrome trace event; times are in microseconds.
type traceEvent struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	Time  float64        `json:"ts"`
	Dur   float64        `json:"dur,omitempty"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// WriteFile writes the trace in place of path's content.
func (s *Spans) WriteFile(path string) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	spans := slices.Clone(s.spans)
	tracks := slices.Clone(s.tracks)
	dropped := s.dropped
	s.mu.Unlock()

	file := struct {
		Events []traceEvent   `json:"traceEvents"`
		Unit   string         `json:"displayTimeUnit"`
		Other  map[string]any `json:"otherData"`
	}{events(tracks, spans), "ms", map[string]any{"start": s.start.UTC().Format(time.RFC3339Nano), "dropped": dropped}}
	data, err := json.Marshal(file)
	if err == nil {
		err = replaceFile(path, data)
	}
	if err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

// events lays the spans out on rows, track after track in the order in which
// the tracks were made.
func events(tracks []trackInfo, spans []span) []traceEvent {
	// Enclosing spans come before what they enclose.
	slices.SortStableFunc(spans, func(a, b span) int {
		switch {
		case a.track != b.track:
			return int(a.track - b.track)
		case a.begin != b.begin:
			return int(min(max(a.begin-b.begin, -1), 1))
		}
		return int(min(max(b.end-a.end, -1), 1))
	})
	out := []traceEvent{{Name: "process_name", Phase: "M", PID: 1, Args: map[string]any{"name": "easyrl"}}}
	tid := 0
	row := func(name string) {
		tid++
		out = append(out,
			traceEvent{Name: "thread_name", Phase: "M", PID: 1, TID: tid, Args: map[string]any{"name": name}},
			traceEvent{Name: "thread_sort_index", Phase: "M", PID: 1, TID: tid, Args: map[string]any{"sort_index": tid}})
	}
	for id, track := range tracks {
		row(track.name)
		first := tid
		var lanes []time.Duration // when each lane is free
		for len(spans) > 0 && spans[0].track == int32(id) {
			sp := spans[0]
			spans = spans[1:]
			lane := 0
			if track.lanes {
				if lane = slices.IndexFunc(lanes, func(free time.Duration) bool { return free <= sp.begin }); lane < 0 {
					if lane = len(lanes); lane > 0 {
						row(fmt.Sprintf("%s (%d)", track.name, lane+1))
					}
					lanes = append(lanes, 0)
				}
				lanes[lane] = sp.end
			}
			event := traceEvent{Name: sp.name, Phase: "X", PID: 1, TID: first + lane,
				Time: microseconds(sp.begin), Dur: microseconds(sp.end - sp.begin)}
			if sp.step != noStep {
				event.Args = map[string]any{"step": sp.step}
			}
			out = append(out, event)
		}
	}
	return out
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
