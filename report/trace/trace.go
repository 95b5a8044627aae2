package trace

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"time"

	"github.com/easyrl/easyrl/report"
)

// File is the name of the trace in a run's folder.
const File = "trace.json"

// Event is one Chrome trace event; times are in microseconds.
type Event struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	Time  float64        `json:"ts"`
	Dur   float64        `json:"dur,omitempty"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// traceFile is a Chrome trace file.
type traceFile struct {
	Events []Event     `json:"traceEvents"`
	Unit   string      `json:"displayTimeUnit"`
	Other  traceOrigin `json:"otherData"`
}

type traceOrigin struct {
	Start   time.Time `json:"start"` // what the events' times count from
	Dropped int       `json:"dropped"`
}

// Keep writes the trace as WriteFile does, so that a run that is killed has one,
// unless that has just been done: it takes a hundredth of the time at most.
func (s *Spans) Keep(path string) error {
	if s == nil {
		return nil
	}
	began := time.Now()
	s.mu.Lock()
	due := began.Sub(s.kept) >= 100*s.keeping
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

// Continue goes on from the trace that a run wrote before, where there is one. It
// comes before the first span.
func (s *Spans) Continue(path string) error {
	if s == nil {
		return nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var old traceFile
	if err == nil {
		err = json.Unmarshal(data, &old)
	}
	if err == nil && (old.Other.Start.IsZero() || old.Other.Start.After(s.start)) {
		err = fmt.Errorf("it starts at %v, expected a time before now", old.Other.Start)
	}
	if err != nil {
		return fmt.Errorf("continue trace %s: %w", path, err)
	}
	rows := map[int]Track{}
	for _, e := range old.Events {
		if name, _ := e.Args["track"].(string); e.Phase == "M" && name != "" {
			lanes, _ := e.Args["lanes"].(bool)
			rows[e.TID] = s.track(trackInfo{name, lanes})
		}
	}
	ago := s.start.Sub(old.Other.Start)
	slices.SortStableFunc(old.Events, func(a, b Event) int { return cmp.Compare(a.Time+a.Dur, b.Time+b.Dur) })
	for _, e := range old.Events {
		row, ok := rows[e.TID]
		if e.Phase != "X" || !ok {
			continue
		}
		step, known := e.Args["step"].(float64)
		if !known {
			step = noStep
		}
		begin := fromMicroseconds(e.Time) - ago
		s.add(span{track: row.id, name: e.Name, begin: begin, end: begin + fromMicroseconds(e.Dur), step: int(step)})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.origin = old.Other.Start
	s.dropped += old.Other.Dropped
	return nil
}

// WriteFile writes the trace in place of path's content.
func (s *Spans) WriteFile(path string) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	spans := slices.Clone(s.spans)
	tracks := slices.Clone(s.tracks)
	other := traceOrigin{Start: s.origin.UTC(), Dropped: s.dropped}
	before := s.start.Sub(s.origin)
	s.mu.Unlock()

	for i := range spans {
		spans[i].begin += before
		spans[i].end += before
	}
	file := traceFile{Events: events(tracks, spans), Unit: "ms", Other: other}
	data, err := json.Marshal(file)
	if err == nil {
		err = report.ReplaceFile(path, data)
	}
	if err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

// events lays the spans out on rows, track after track in the order in which
// the tracks were made.
func events(tracks []trackInfo, spans []span) []Event {
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
	out := []Event{{Name: "process_name", Phase: "M", PID: 1, Args: map[string]any{"name": "easyrl"}}}
	tid := 0
	row := func(name string, of trackInfo) {
		tid++
		out = append(out,
			Event{Name: "thread_name", Phase: "M", PID: 1, TID: tid, Args: map[string]any{"name": name, "track": of.name, "lanes": of.lanes}},
			Event{Name: "thread_sort_index", Phase: "M", PID: 1, TID: tid, Args: map[string]any{"sort_index": tid}})
	}
	for id, track := range tracks {
		row(track.name, track)
		first := tid
		var lanes []time.Duration // when each lane is free
		for len(spans) > 0 && spans[0].track == int32(id) {
			sp := spans[0]
			spans = spans[1:]
			lane := 0
			if track.lanes {
				if lane = slices.IndexFunc(lanes, func(free time.Duration) bool { return free <= sp.begin }); lane < 0 {
					if lane = len(lanes); lane > 0 {
						row(fmt.Sprintf("%s (%d)", track.name, lane+1), track)
					}
					lanes = append(lanes, 0)
				}
				lanes[lane] = sp.end
			}
			event := Event{Name: sp.name, Phase: "X", PID: 1, TID: first + lane,
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

func fromMicroseconds(t float64) time.Duration { return time.Duration(math.Round(t * 1e3)) }
