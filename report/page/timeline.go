package page

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"github.com/easyrl/easyrl/report/trace"
)

// stepSpan is the name of the span that encloses a step.
const stepSpan = "step"

// timelineWidth is the length of a timeline in SVG units, and the most pieces
// that a row has.
const timelineWidth = 1000

// timeline shows who did what during one step.
type timeline struct {
	Step    int
	Seconds float64
	Rows    []timelineRow
	Legend  []timelinePiece
}

type timelineRow struct {
	Name   string
	Pieces []timelinePiece
}

// timelinePiece is a bar from X on, or a colour's meaning.
type timelinePiece struct {
	Name     string
	X, Width int
	Color    string
}

// readTimeline draws the last step of the trace in dir; nil where there is no
// trace, or no step in it.
func readTimeline(dir string) *timeline {
	data, err := os.ReadFile(filepath.Join(dir, trace.File))
	if err != nil {
		return nil
	}
	var file struct {
		Events []trace.Event `json:"traceEvents"`
	}
	if json.Unmarshal(data, &file) != nil {
		return nil
	}
	return drawTimeline(file.Events)
}

func drawTimeline(events []trace.Event) *timeline {
	var window trace.Event
	for _, e := range events {
		if e.Phase == "X" && e.Name == stepSpan && e.Dur > 0 && e.Time >= window.Time {
			window = e
		}
	}
	if window.Name == "" {
		return nil
	}
	step, _ := window.Args["step"].(float64)
	t := &timeline{Step: int(step), Seconds: window.Dur / 1e6}
	for _, row := range events {
		if row.Phase != "M" || row.Name != "thread_name" {
			continue
		}
		name, _ := row.Args["name"].(string)
		pieces := t.pieces(slices.DeleteFunc(slices.Clone(events), func(e trace.Event) bool {
			return e.Phase != "X" || e.TID != row.TID || e.Name == stepSpan
		}), window)
		if len(pieces) > 0 {
			t.Rows = append(t.Rows, timelineRow{name, pieces})
		}
	}
	return t
}

// pieces cuts the window into columns and names each after the span that has
// most of it, an enclosed one rather than what encloses it; neighbours of one
// name are one piece.
func (t *timeline) pieces(spans []trace.Event, window trace.Event) []timelinePiece {
	var names [timelineWidth]string
	for _, span := range spans {
		begin := (span.Time - window.Time) / window.Dur * timelineWidth
		end := begin + span.Dur/window.Dur*timelineWidth
		for column := max(int(begin), 0); column < min(int(end)+1, timelineWidth); column++ {
			covered := min(end, float64(column+1)) - max(begin, float64(column))
			if covered >= .5 || covered > 0 && names[column] == "" {
				names[column] = span.Name
			}
		}
	}
	var out []timelinePiece
	for column, name := range names {
		switch last := len(out) - 1; {
		case name == "":
		case last >= 0 && out[last].Name == name && out[last].X+out[last].Width == column:
			out[last].Width++
		default:
			out = append(out, timelinePiece{Name: name, X: column, Width: 1, Color: t.color(name)})
		}
	}
	return out
}

// color is the same for a name in all rows; who waits is grey.
func (t *timeline) color(name string) string {
	if i := slices.IndexFunc(t.Legend, func(p timelinePiece) bool { return p.Name == name }); i >= 0 {
		return t.Legend[i].Color
	}
	colors := []string{"#2563eb", "#f59e0b", "#10b981", "#ef4444", "#8b5cf6", "#14b8a6", "#ec4899", "#84cc16"}
	color := "#8885"
	if name != "wait" && name != "idle" {
		working := slices.DeleteFunc(slices.Clone(t.Legend), func(p timelinePiece) bool { return p.Color == color })
		color = colors[len(working)%len(colors)]
	}
	t.Legend = append(t.Legend, timelinePiece{Name: name, Color: color})
	return color
}
