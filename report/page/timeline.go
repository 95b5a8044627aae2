package page

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/report/chart"
	"github.com/easyrl/easyrl/report/trace"
)

// stepSpan is the name of the spans that cover a step.
const stepSpan = "step"

// maxLanes limits the rows shown of one track, maxRows the rows of the whole timeline.
const (
	maxLanes = 4
	maxRows  = 32
)

// event is the part of a trace.Event that the page uses; times are in microseconds.
type event struct {
	Name  string          `json:"name"`
	Phase string          `json:"ph"`
	Time  float64         `json:"ts"`
	Dur   float64         `json:"dur"`
	PID   int             `json:"pid"`
	TID   int             `json:"tid"`
	Args  json.RawMessage `json:"args"`
}

// span returns the event's interval, in seconds, under the given name.
func (e *event) span(name string) chart.Span {
	return chart.Span{Name: name, From: e.Time / 1e6, To: e.Time/1e6 + e.Dur/1e6}
}

// timeline holds the trace: the bars of each row and the steps.
type timeline struct {
	rows  map[[2]int]*timelineRow // by process and thread
	steps []chart.Span
}

// timelineRow is a row of the trace.
type timelineRow struct {
	chart.Row
	track string // the track's name, which all its lanes share
	order int    // the row's place in the trace
}

// usualKinds returns the kinds of work that have the same color and texture on every page.
func usualKinds() []string {
	return []string{"backward", "policy", "decode", "prompt", "publish", "prefill", "optimizer", "request", "loss",
		"score", "eval", "micro-batch", "forward", "reduce", "checkpoint", "write checkpoint"}
}

// drawTimeline draws the newest steps of the trace in dir. It returns "" if there
// is no trace or no step in it.
func drawTimeline(dir string) (template.HTML, error) {
	data, err := filetype.Read(filepath.Join(dir, trace.File))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	t := timeline{rows: map[[2]int]*timelineRow{}}
	if err := t.read(data); err != nil {
		return "", fmt.Errorf("%s: %w", trace.File, err)
	}
	if len(t.steps) == 0 {
		return "", nil
	}
	return chart.Gantt(t.shown(), t.windows(), usualKinds()...), nil
}

// read decodes a trace.
func (t *timeline) read(data []byte) error {
	var file struct {
		Events []event `json:"traceEvents"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return err
	}
	for i := range file.Events {
		t.add(&file.Events[i])
	}
	return nil
}

// add records what the timeline shows of an event.
func (t *timeline) add(e *event) {
	var args struct {
		Step  json.Number `json:"step"`
		Name  string      `json:"name"`
		Track string      `json:"track"`
		Sort  int         `json:"sort_index"`
	}
	key := [2]int{e.PID, e.TID}
	switch {
	case e.Phase == "M" && (e.Name == "thread_name" || e.Name == "thread_sort_index"):
		if json.Unmarshal(e.Args, &args) != nil {
			return
		}
		if e.Name == "thread_sort_index" {
			t.row(key).order = args.Sort
			return
		}
		t.row(key).Name, t.row(key).track = args.Name, cmp.Or(args.Track, args.Name)
	case e.Phase != "X" || e.Dur < 0:
	case e.Name == stepSpan:
		_ = json.Unmarshal(e.Args, &args) // a step without a number gets no name
		t.steps = append(t.steps, e.span(strings.TrimSpace("step "+args.Step.String())))
	default:
		row := t.row(key)
		row.Bars = append(row.Bars, e.span(kind(e.Name)))
	}
}

// row returns the row of a process and thread, and creates it if needed.
func (t *timeline) row(key [2]int) *timelineRow {
	row := t.rows[key]
	if row == nil {
		name := "row " + strconv.Itoa(key[1])
		row = &timelineRow{Row: chart.Row{Name: name}, track: name}
		t.rows[key] = row
	}
	return row
}

// kind returns a span's name without its individual part: everything from the first
// number or separator.
func kind(name string) string {
	if i := strings.IndexAny(name, "0123456789#:/(["); i > 0 {
		name = name[:i]
	}
	return strings.TrimRight(name, " -_")
}

// shown returns the rows that have bars, within the limits: the trainer's rows first, then the others in
// the order of the trace. In each row, a bar precedes the bars that it encloses.
func (t *timeline) shown() []chart.Row {
	var all []*timelineRow
	for _, row := range t.rows {
		if len(row.Bars) > 0 {
			all = append(all, row)
		}
	}
	rank := func(r *timelineRow) int {
		if strings.HasPrefix(r.track, "trainer") {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b *timelineRow) int {
		return cmp.Or(rank(a)-rank(b), a.order-b.order, strings.Compare(a.Name, b.Name))
	})
	lanes := map[string]int{}
	var rows []chart.Row
	for _, row := range all {
		if lanes[row.track]++; lanes[row.track] > maxLanes || len(rows) == maxRows {
			continue
		}
		slices.SortStableFunc(row.Bars, func(a, b chart.Span) int {
			return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(b.To, a.To))
		})
		rows = append(rows, row.Row)
	}
	return rows
}

// windows returns the steps in time order. Each is extended to the next step, but at
// most by half its own length.
func (t *timeline) windows() []chart.Span {
	slices.SortStableFunc(t.steps, func(a, b chart.Span) int { return cmp.Compare(a.From, b.From) })
	out := slices.Clone(t.steps)
	for i := range len(out) - 1 {
		w := &out[i]
		w.To = max(w.To, min(out[i+1].From, w.To+(w.To-w.From)/2))
	}
	return out
}
