package page

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
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

// mostLanes bounds the rows shown per track, mostRows all rows.
const (
	mostLanes = 4
	mostRows  = 32
)

// timeline holds the trace: the bars of each row and the steps.
type timeline struct {
	rows  map[[2]int]*timelineRow // by process and thread
	steps []chart.Window
}

type timelineRow struct {
	name, track string
	order       int
	bars        []chart.Bar
}

// usualKinds returns the kinds of work that look the same on every page.
func usualKinds() []string {
	return []string{"backward", "policy", "decode", "prompt", "publish", "prefill", "optimizer", "request", "loss", "score", "eval", "micro-batch", "forward",
		"reduce", "checkpoint", "write checkpoint"}
}

// drawTimeline draws the newest steps of the trace in dir. It returns "" if there
// is no trace or no step in it.
func drawTimeline(dir string) (template.HTML, error) {
	file, err := filetype.Open(filepath.Join(dir, trace.File))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // only read
	t := timeline{rows: map[[2]int]*timelineRow{}}
	if err := t.read(bufio.NewReaderSize(file, 1<<20)); err != nil {
		return "", fmt.Errorf("%s: %w", file.Name(), err)
	}
	if len(t.steps) == 0 {
		return "", nil
	}
	return chart.Gantt("Workers", t.shown(), t.windows(), usualKinds()...), nil
}

// read decodes a trace event by event, because a trace may be long.
func (t *timeline) read(r io.Reader) error {
	lines := json.NewDecoder(r)
	for depth := 0; ; {
		token, err := lines.Token()
		if err != nil {
			return fmt.Errorf("traceEvents not found: %w", err)
		}
		switch token {
		case json.Delim('{'):
			depth++
		case json.Delim('}'):
			depth--
		}
		if depth == 1 && token == "traceEvents" {
			break
		}
	}
	if token, err := lines.Token(); err != nil || token != json.Delim('[') {
		return fmt.Errorf("traceEvents begins with %v, expected [", token)
	}
	for lines.More() {
		var e trace.Event
		err := lines.Decode(&e)
		var odd *json.UnmarshalTypeError
		if errors.As(err, &odd) && strings.HasPrefix(odd.Field, "args") { // the page can do without
			err = nil
		}
		if err != nil {
			return err
		}
		t.add(&e)
	}
	return nil
}

func (t *timeline) add(e *trace.Event) {
	key := [2]int{e.PID, e.TID}
	switch {
	case e.Phase == "M" && e.Name == "thread_sort_index":
		t.row(key).order = e.Args.Sort
	case e.Phase == "M" && e.Name == "thread_name" && e.Args.Name != "":
		t.row(key).name, t.row(key).track = e.Args.Name, cmp.Or(e.Args.Track, e.Args.Name)
	case e.Phase != "X" || e.Dur < 0:
	case e.Name == stepSpan:
		name := "step"
		if e.Args.Step != nil {
			name = fmt.Sprintf("step %d", *e.Args.Step)
		}
		from := e.Time / 1e6
		t.steps = append(t.steps, chart.Window{Name: name, From: from, To: from + e.Dur/1e6})
	default:
		row := t.row(key)
		from := e.Time / 1e6
		row.bars = append(row.bars, chart.Bar{Name: kind(e.Name), From: from, To: from + e.Dur/1e6})
	}
}

func (t *timeline) row(key [2]int) *timelineRow {
	row := t.rows[key]
	if row == nil {
		name := "row " + strconv.Itoa(key[1])
		row = &timelineRow{name: name, track: name}
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

// shown returns the rows with bars in trace order, but the trainer's first. In each row,
// a bar precedes the bars that it encloses.
func (t *timeline) shown() []chart.Row {
	var all []*timelineRow
	for _, row := range t.rows {
		if len(row.bars) > 0 {
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
		return cmp.Or(rank(a)-rank(b), a.order-b.order, strings.Compare(a.name, b.name))
	})
	lanes := map[string]int{}
	var rows []chart.Row
	for _, row := range all {
		if lanes[row.track]++; lanes[row.track] > mostLanes || len(rows) == mostRows {
			continue
		}
		slices.SortStableFunc(row.bars, func(a, b chart.Bar) int {
			return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(b.To, a.To))
		})
		rows = append(rows, chart.Row{Name: row.name, Bars: row.bars})
	}
	return rows
}

// windows returns the steps in time order. Each is extended to the next step, but at
// most by half its own length.
func (t *timeline) windows() []chart.Window {
	slices.SortStableFunc(t.steps, func(a, b chart.Window) int { return cmp.Compare(a.From, b.From) })
	out := slices.Clone(t.steps)
	for i := range len(out) - 1 {
		w := &out[i]
		w.To = max(w.To, min(out[i+1].From, w.To+(w.To-w.From)/2))
	}
	return out
}
