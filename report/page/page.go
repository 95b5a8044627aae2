// Package page renders a run's records as one self-contained HTML page without scripts
// or network access.
package page

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/easyrl/easyrl/internal/bytesize"
	"github.com/easyrl/easyrl/internal/plain"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/chart"
)

// File is the name of the page's file in a run's folder.
const File = "report.html"

// HeldOut is the name of the folder in a run's folder with answers to held-out prompts,
// one file per evaluation.
const HeldOut = "heldout"

//go:embed page.html.tmpl
var pageSource string

//go:embed page.css
var rules string

// page is the template's data.
type page struct {
	Name     string
	About    []Tile // what the run trains
	Style    template.CSS
	Steps    string // number of steps and their duration
	Glance   []Tile
	Rows     []Row
	Parts    []share // where the trainer's time went
	Idle     []share // how long each side was idle
	Warnings []report.Warning
	Curves   curves
	Timeline template.HTML // empty without a trace
	Answers  answers
	Config   string
	Machine  *report.Machine
}

// Write writes a self-contained report.html from the records of the run in dir. It needs metrics of at
// least one step; configuration, machine, warnings, trace and answers are optional. It returns the
// page's path and the rows that compare the first and the last values of the main metrics.
func Write(dir string) (path string, rows []Row, err error) {
	steps, err := report.ReadSteps(filepath.Join(dir, report.MetricsFile))
	if err != nil {
		return "", nil, err
	}
	if steps.Len() == 0 {
		return "", nil, fmt.Errorf("write report: %s has no steps yet", filepath.Join(dir, report.MetricsFile))
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write report: %w", err)
		}
	}()
	p, err := gather(dir, steps)
	if err != nil {
		return "", nil, err
	}
	html, err := render("page", p)
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(dir, File)
	if err := report.ReplaceFile(path, plain.Page(html)); err != nil {
		return "", nil, err
	}
	return path, p.Rows, nil
}

// Style returns the page's style sheet: that of the charts plus the page's own rules.
func Style() template.CSS { return chart.Style() + template.CSS(rules) } //nolint:gosec // both come from this module

// render returns the HTML of a template, the page or one of its parts.
func render(name string, p *page) ([]byte, error) {
	view, err := template.New("page").Funcs(template.FuncMap{
		"number": report.Number, "percent": percent, "seconds": seconds, "size": bytesize.Text,
		"signed": signed, "sign": sign, "name": breakable, "shorten": shorten, "times": timeTable,
	}).Parse(pageSource)
	if err != nil {
		return nil, err
	}
	var html bytes.Buffer
	err = view.ExecuteTemplate(&html, name, p)
	return html.Bytes(), err
}

// gather reads everything that the page shows of a run with these steps.
func gather(dir string, steps *report.Steps) (*page, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	about, err := About(dir)
	if err != nil {
		return nil, err
	}
	p := &page{Name: title(absolute), About: about, Style: Style(), Steps: extent(steps), Glance: Glance(steps)}
	for _, part := range parts() {
		if err := p.fill(part, dir, steps); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// title returns the name of a run's folder, preceded by the name of its parent folder
// unless that is runs.
func title(dir string) string {
	parent := filepath.Base(filepath.Dir(dir))
	if parent == "runs" || parent == string(filepath.Separator) {
		return filepath.Base(dir)
	}
	return parent + "/" + filepath.Base(dir)
}

// extent describes a run's progress, such as "100 steps in 1m02s".
func extent(steps *report.Steps) string {
	first, last := steps.Values(0), steps.Values(steps.Len()-1)
	text := report.Number(last["step"]) + " steps"
	if last["step"] == 1 {
		text = "1 step"
	}
	if begin, end := first["time"], last["time"]; begin > 0 && end > begin {
		text += " in " + report.Duration(time.Duration((end-begin+first["timing_s/step"])*float64(time.Second)))
		text += ", until " + time.Unix(int64(end), 0).UTC().Format("2006-01-02 15:04") + " UTC"
	}
	return text
}

// timeTable returns the data of the "times" template.
func timeTable(title string, shares []share) map[string]any {
	return map[string]any{"Title": title, "Shares": shares}
}

// breakable returns a metric's name with line breaks allowed between its parts.
func breakable(name string) template.HTML {
	escaped := template.HTMLEscapeString(name)
	return template.HTML(strings.NewReplacer("/", "/<wbr>", "_", "_<wbr>").Replace(
		escaped)) //nolint:gosec // escaped above
}

// seconds formats a time in seconds. From 100 s on it uses larger units.
func seconds(x float64) string {
	if x < 100 {
		return fmt.Sprintf("%.2f s", x)
	}
	return report.Duration(time.Duration(x * float64(time.Second)))
}

// percent formats a fraction as a percentage.
func percent(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }

// Row compares a metric's first and last value in a run.
type Row struct {
	Name        string
	First, Last float64
	FirstStep   int // first step with the metric
	LastStep    int
}

// compare returns the first and last values of the metrics that show whether a run
// learned: evaluations first, then the training metrics.
func compare(steps *report.Steps) []Row {
	var rows, held []Row
	for _, name := range steps.Names() {
		_, kind, evaluated := report.Evaluation(name)
		// pass@1 repeats mean@1
		evaluated = evaluated && (kind == "loss" || strings.Contains(kind, "@") && kind != "pass@1")
		if !evaluated && !slices.Contains([]string{"reward/mean", "reward/zero_std_frac",
			"response_length/mean", "actor/loss", "actor/entropy", "perf/tokens_per_second"}, name) {
			continue
		}
		row := rowOf(steps, name)
		if evaluated {
			held = append(held, row)
			continue
		}
		rows = append(rows, row)
	}
	return append(held, rows...)
}

// rowOf returns the row of a metric that at least one step has.
func rowOf(steps *report.Steps, name string) Row {
	xs, ys := steps.Series("step", name)
	last := len(xs) - 1
	return Row{Name: name, First: ys[0], Last: ys[last], FirstStep: int(xs[0]), LastStep: int(xs[last])}
}
