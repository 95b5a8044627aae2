package compare

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"path/filepath"
	"strings"

	"github.com/easyrl/easyrl/internal/plain"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/chart"
)

// PageFile is the name of the HTML page in a comparison's folder.
const PageFile = "compare.html"

//go:embed page.html.tmpl
var pageSource string

// page is the template's data.
type page struct {
	*Comparison
	Style   template.CSS
	Verdict string   // the advice, the last finding
	Details []string // the other findings
	Table   runTable
	Charts  []template.HTML
}

// runTable is a table with a row for each run.
type runTable struct {
	Head [][2]string // titles of the columns and their meanings
	Rows [][]string
}

// Turned returns the table with a column for each run, which fits a narrow screen.
func (t runTable) Turned() [][]string {
	var all [][]string
	for i := range t.Head {
		cells := []string{t.Head[i][0]}
		for _, row := range t.Rows {
			cells = append(cells, row[i])
		}
		all = append(all, cells)
	}
	return all
}

// writePage writes the comparison's page: the table, the findings, and the runs' curves
// over steps and over time.
func writePage(c *Comparison) error {
	last := len(c.Findings) - 1
	p := page{Comparison: c, Style: chart.Style(), Verdict: c.Findings[last], Details: c.Findings[:last],
		Table: runTable{head(), rows(c.Runs)}, Charts: charts(c.Runs)}
	view, err := template.New("page").Parse(pageSource)
	var html bytes.Buffer
	if err == nil {
		err = view.Execute(&html, p)
	}
	if err == nil {
		err = report.ReplaceFile(filepath.Join(c.dir, PageFile), plain.Page(html.Bytes()))
	}
	if err != nil {
		return fmt.Errorf("write comparison page: %w", err)
	}
	return nil
}

// charts returns the curves of reward and evaluations over steps and over time, and of
// the speed.
func charts(runs []Result) (all []template.HTML) {
	learned := []string{"reward/mean"}
	for _, name := range report.Values(runs[0].Eval).Names() {
		if strings.Contains(name, "/mean@") {
			learned = append(learned, name)
		}
	}
	for _, name := range learned {
		all = append(all,
			chart.Lines(chart.Plot{Title: name + " by step", X: "step", Series: lines(runs, name, false)}),
			chart.Lines(chart.Plot{Title: name + " by time", X: "seconds", Series: lines(runs, name, true)}))
	}
	return append(all,
		chart.Lines(chart.Plot{Title: "seconds per step", X: "step", Series: lines(runs, "timing_s/step", false)}),
		chart.Lines(chart.Plot{Title: "tokens per second", X: "step",
			Series: lines(runs, "perf/tokens_per_second", false)}))
}

// lines returns a metric of each run over the steps, or over the seconds that the steps
// took without evaluations and checkpoints.
func lines(runs []Result, name string, overTime bool) (all []chart.Series) {
	for i := range runs {
		s, elapsed := chart.Series{Name: runs[i].Name}, 0.0
		for _, values := range runs[i].steps {
			elapsed += values["timing_s/step"]
			y, ok := values[name]
			if !ok {
				continue
			}
			x := values["step"]
			if overTime {
				x = elapsed
			}
			s.X, s.Y = append(s.X, x), append(s.Y, y)
		}
		all = append(all, s)
	}
	return all
}
