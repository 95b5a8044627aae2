package trace

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/report"
)

// File is the name of the trace file in a run's folder.
const File = "trace.json"

// Event is a Chrome trace event; times are in microseconds. Phase is "M" for the name
// of a row or process, "X" for a span, and "s", "t" and "f" for the start, a step and
// the end of a flow. A flow event binds to the innermost span that begins at its time.
type Event struct {
	Name     string  `json:"name"`
	Phase    string  `json:"ph"`
	Time     float64 `json:"ts"`
	Dur      float64 `json:"dur"`
	PID      int     `json:"pid"`
	TID      int     `json:"tid"`
	ID       int     `json:"id,omitempty"` // flow ID
	Category string  `json:"cat,omitempty"`
	Bind     string  `json:"bp,omitempty"`
	Args     Args    `json:"args,omitzero"`
}

// Args are details of an event: Name or Sort of a row or process, Track and Lanes of a row,
// Step, Tokens and Prompt of a span.
type Args struct {
	Name   string `json:"name,omitempty"`
	Track  string `json:"track,omitempty"` // the name given to Spans.Track or Spans.Lanes
	Lanes  bool   `json:"lanes,omitempty"`
	Sort   int    `json:"sort_index,omitempty"`
	Step   *int32 `json:"step,omitempty"`
	Tokens int    `json:"tokens,omitempty"`
	Prompt string `json:"prompt,omitempty"`
}

// traceFile is a Chrome trace file.
type traceFile struct {
	Events []Event     `json:"traceEvents"`
	Unit   string      `json:"displayTimeUnit"`
	Other  traceOrigin `json:"otherData"`
}

type traceOrigin struct {
	Start   time.Time `json:"start"`   // time 0 of the events
	Dropped int       `json:"dropped"` // number of oldest spans dropped to stay within the limits
}

// Keep writes the trace as WriteFile does, so that a killed run leaves a trace. To spend at most 1/500 of
// the run's time on writing, it does nothing until 500 times the duration of its last write has passed.
func (s *Spans) Keep(path string) error {
	if s == nil {
		return nil
	}
	began := time.Now()
	s.mu.Lock()
	due := began.Sub(s.kept) >= 500*s.keeping
	s.mu.Unlock()
	if !due {
		return nil
	}
	err := s.WriteFile(path)
	s.mu.Lock()
	s.kept = time.Now()
	s.keeping = s.kept.Sub(began)
	s.mu.Unlock()
	return err
}

// Continue loads an earlier trace of the run from path, so that WriteFile writes its spans too. It does
// nothing if there is no file. Call it before recording the first span.
func (s *Spans) Continue(path string) error {
	if s == nil {
		return nil
	}
	data, err := filetype.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var old traceFile
	if err == nil {
		err = json.Unmarshal(data, &old)
	}
	if err == nil && (old.Other.Start.IsZero() || old.Other.Start.After(s.start)) {
		err = fmt.Errorf("start is %v, expected a time before now", old.Other.Start)
	}
	if err != nil {
		return fmt.Errorf("continue trace %s: %w", path, err)
	}
	rows := map[int]Track{}
	for _, e := range old.Events {
		if e.Phase == "M" && e.Args.Track != "" {
			rows[e.TID] = s.track(trackInfo{e.Args.Track, e.Args.Lanes})
		}
	}
	s.restore(old.Events, rows, s.start.Sub(old.Other.Start))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.origin = old.Other.Start
	s.dropped += old.Other.Dropped
	return nil
}

// restore adds the spans of an earlier trace. ago is how long before s that trace began. rows maps the
// TID of an event to its track.
func (s *Spans) restore(events []Event, rows map[int]Track, ago time.Duration) {
	type place struct {
		row  int
		time float64
	}
	var spans []span
	at := map[place]int{}
	for _, e := range events {
		row, ok := rows[e.TID]
		switch {
		case !ok:
		case e.Phase == "X":
			at[place{e.TID, e.Time}] = len(spans) // enclosed spans come later and win
			begin := fromMicroseconds(e.Time) - ago
			step := int32(NoStep)
			if e.Args.Step != nil {
				step = *e.Args.Step
			}
			spans = append(spans, span{track: row.id, name: e.Name, begin: begin, end: begin + fromMicroseconds(e.Dur),
				step: step, tokens: e.Args.Tokens, prompt: e.Args.Prompt})
		case e.ID > 0:
			if i, ok := at[place{e.TID, e.Time}]; ok {
				spans[i].flows, spans[i].opens = append(spans[i].flows, uint64(e.ID)), e.Phase == "s"
			}
		}
	}
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Compare(a.end, b.end) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range spans {
		s.add(spans[i])
	}
}

// WriteFile replaces the content of path with the trace.
func (s *Spans) WriteFile(path string) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	spans := slices.Clone(s.spans[s.oldest:])
	tracks := slices.Clone(s.tracks)
	other := traceOrigin{Start: s.origin.UTC(), Dropped: s.dropped}
	before := s.start.Sub(s.origin)
	s.mu.Unlock()

	for i := range spans {
		spans[i].begin += before
		spans[i].end += before
	}
	rows, flows := layout(tracks, spans, other.Dropped > 0)
	data, err := encode(rows, flows, other)
	if err == nil {
		err = report.ReplaceFile(path, data)
	}
	if err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

func fromMicroseconds(t float64) time.Duration { return time.Duration(math.Round(t * 1e3)) }
