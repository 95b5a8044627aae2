// Package tracetest reads a trace file as Perfetto's trace processor does, and
// reports what the trace processor would drop or count as an error.
package tracetest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Trace is the content of a trace file.
type Trace struct {
	Rows    []string // names, in the order of the file
	Slices  []Slice
	Flows   map[int][]Slice // by ID: the slices that each flow passes through, in order
	Dropped int             // number of events that the writer dropped, by its own count
}

// Slice is a span on a row; times are in microseconds.
type Slice struct {
	Row, Track string // Track groups rows; a row is one of its lanes
	Name       string
	Begin, End float64
	Depth      int // 0 for the outermost
	Args       map[string]any
}

// Named returns the slices with the given name.
func (t *Trace) Named(name string) []Slice {
	return slices.DeleteFunc(slices.Clone(t.Slices), func(s Slice) bool { return s.Name != name })
}

// event is an event of Chrome's trace event format. Pointers are nil for absent fields.
type event struct {
	Name     *string        `json:"name"`
	Phase    string         `json:"ph"`
	Category string         `json:"cat"`
	Time     *float64       `json:"ts"`
	Dur      *float64       `json:"dur"`
	PID      *int           `json:"pid"`
	TID      *int           `json:"tid"`
	ID       *int           `json:"id"`
	Bind     string         `json:"bp"`
	Args     map[string]any `json:"args"`
}

type file struct {
	Events []event `json:"traceEvents"`
	Unit   string  `json:"displayTimeUnit"`
	Other  struct {
		Dropped int `json:"dropped"`
	} `json:"otherData"`
}

// Read parses a trace and reports all its faults: events without required fields,
// spans that partly overlap, and flows that do not start or end, go back in time,
// or pass where there is no span.
func Read(data []byte) (*Trace, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	if f.Unit != "ms" && f.Unit != "ns" {
		return nil, fmt.Errorf("displayTimeUnit is %q, expected ms or ns", f.Unit)
	}
	r := reader{rows: map[int]*row{}, flows: map[int]*flow{}}
	var timed []event
	for i, e := range f.Events {
		if err := check(&e); err != nil {
			r.fault("event %d: %v", i, err)
		} else if e.Phase == "M" {
			r.name(&e)
		} else {
			timed = append(timed, e)
		}
	}
	slices.SortStableFunc(timed, func(a, b event) int { return cmp.Compare(*a.Time, *b.Time) })
	for i := range timed {
		if timed[i].Phase == "X" {
			r.slice(&timed[i])
		} else {
			r.flow(&timed[i])
		}
	}
	return r.end(f.Other.Dropped)
}

// check returns an error if e lacks a field that its phase requires.
func check(e *event) error {
	switch {
	case e.Name == nil || *e.Name == "":
		return errors.New("no name")
	case e.PID == nil || e.TID == nil:
		return fmt.Errorf("%s: no pid or tid", *e.Name)
	case e.Time == nil || *e.Time < 0 || math.Trunc(*e.Time) != *e.Time:
		return fmt.Errorf("%s: ts is no number of whole microseconds from 0 on", *e.Name)
	}
	switch e.Phase {
	case "M":
		_, name := e.Args["name"].(string)
		_, index := e.Args["sort_index"].(float64)
		if !name && !index {
			return fmt.Errorf("%s: neither a name nor a sort_index", *e.Name)
		}
	case "X":
		if e.Dur == nil || *e.Dur < 0 || math.Trunc(*e.Dur) != *e.Dur {
			return fmt.Errorf("%s: dur is no number of whole microseconds from 0 on", *e.Name)
		}
	case "s", "t", "f":
		if e.ID == nil || e.Category == "" {
			return fmt.Errorf("%s: a flow without id or cat", *e.Name)
		}
		if (e.Phase == "f") != (e.Bind == "e") {
			return fmt.Errorf("%s: phase %s with bp %q, expected e at the end of a flow only", *e.Name, e.Phase, e.Bind)
		}
	default:
		return fmt.Errorf("%s: phase %q", *e.Name, e.Phase)
	}
	return nil
}

type row struct {
	pid         int
	name, track string
	open        []int   // indices of open slices, innermost last
	flow        float64 // time of the last flow event
}

type flow struct {
	slices []Slice
	ended  bool
}

type reader struct {
	Trace
	rows   map[int]*row
	flows  map[int]*flow
	faults []error
}

func (r *reader) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf(format, args...))
}

// name records the name of a row.
func (r *reader) name(e *event) {
	if *e.Name != "thread_name" {
		return
	}
	if r.rows[*e.TID] != nil {
		r.fault("row %d has two names", *e.TID)
	}
	track, _ := e.Args["track"].(string)
	name, _ := e.Args["name"].(string)
	r.rows[*e.TID] = &row{pid: *e.PID, name: name, track: track, flow: -1}
	r.Rows = append(r.Rows, name)
}

// rowOf returns the row of e, after it closes the slices that have ended by e's time. If the row
// has no name, it reports a fault and returns nil.
func (r *reader) rowOf(e *event) *row {
	w := r.rows[*e.TID]
	if w == nil || w.pid != *e.PID {
		r.fault("%s at %v: row %d of process %d has no name", *e.Name, *e.Time, *e.TID, *e.PID)
		return nil
	}
	for len(w.open) > 0 && r.Slices[w.open[len(w.open)-1]].End <= *e.Time {
		w.open = w.open[:len(w.open)-1]
	}
	return w
}

// slice adds a span to its row.
func (r *reader) slice(e *event) {
	w := r.rowOf(e)
	if w == nil {
		return
	}
	if w.flow == *e.Time {
		r.fault("%s: %s begins at %v, where a flow passes the enclosing span", w.name, *e.Name, *e.Time)
	}
	s := Slice{w.name, w.track, *e.Name, *e.Time, *e.Time + *e.Dur, len(w.open), e.Args}
	if n := len(w.open); n > 0 && r.Slices[w.open[n-1]].End < s.End {
		r.fault("%s: %s from %v to %v overlaps %s, which ends at %v", w.name, s.Name, s.Begin, s.End,
			r.Slices[w.open[n-1]].Name, r.Slices[w.open[n-1]].End)
	}
	r.Slices = append(r.Slices, s)
	w.open = append(w.open, len(r.Slices)-1)
}

// flow adds the innermost open span of e's row to a flow.
func (r *reader) flow(e *event) {
	w := r.rowOf(e)
	if w == nil {
		return
	}
	f := r.flows[*e.ID]
	w.flow = *e.Time
	switch {
	case len(w.open) == 0:
		r.fault("flow %d at %v: there is no span on %s", *e.ID, *e.Time, w.name)
		return
	case e.Phase == "s" && f != nil:
		r.fault("flow %d starts twice", *e.ID)
		return
	case e.Phase == "s":
		f = &flow{}
		r.flows[*e.ID] = f
	case f == nil || f.ended:
		r.fault("flow %d at %v: phase %s, but it is not under way", *e.ID, *e.Time, e.Phase)
		return
	}
	f.slices = append(f.slices, r.Slices[w.open[len(w.open)-1]])
	f.ended = e.Phase == "f"
}

// end returns the trace and all faults in one error.
func (r *reader) end(dropped int) (*Trace, error) {
	r.Trace.Dropped, r.Trace.Flows = dropped, map[int][]Slice{}
	for id, f := range r.flows {
		if !f.ended {
			r.fault("flow %d has no end", id)
		}
		r.Trace.Flows[id] = f.slices
	}
	return &r.Trace, errors.Join(r.faults...)
}
