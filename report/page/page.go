package page

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/easyrl/easyrl/report"
)

// File is the name of the page in a run's folder.
const File = "report.html"

// How much of the first and the last sampled answers the page shows.
const (
	pageGroups    = 4
	pageResponses = 4
	pageText      = 2000 // bytes of one text
)

//go:embed page.html.tmpl
var pageSource string

// page is what the template sees.
type page struct {
	Name     string
	Steps    string // how many, and in what time
	Rows     []Row
	Parts    []Share
	Idle     []Share
	Timeline *timeline // nil where no trace was written
	Sections []section
	Drawn    bool // there is a curve
	Samples  []sample
	Config   string
}

// sample is what the page shows of a rollouts file.
type sample struct {
	Step   int
	Groups []sampleGroup
}

// sampleGroup is what the page shows of a line of the rollouts file.
type sampleGroup struct {
	Prompt    string          `json:"prompt"`
	Answer    json.RawMessage `json:"answer"`
	Step      int             `json:"step"`
	Responses []struct {
		Text   string  `json:"text"`
		Reward float64 `json:"reward"`
		Finish string  `json:"finish"`
	} `json:"responses"`
}

// AnswerText is the answer, without quotes where it is a string.
func (g sampleGroup) AnswerText() string {
	var s string
	if json.Unmarshal(g.Answer, &s) == nil {
		return s
	}
	return string(g.Answer)
}

// Write writes a self-contained report.html from what the run in dir
// recorded: its metrics, which must be there, and its configuration, trace and
// answers where they are. It returns the page's path.
func Write(dir string) (string, error) {
	steps, err := report.ReadMetrics(filepath.Join(dir, report.MetricsFile))
	if err != nil {
		return "", err
	}
	if len(steps) == 0 {
		return "", fmt.Errorf("write report: %s has no steps yet", filepath.Join(dir, report.MetricsFile))
	}
	config, err := os.ReadFile(filepath.Join(dir, "run.toml"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("write report: %w", err)
	}
	samples, err := readSamples(dir)
	if err != nil {
		return "", fmt.Errorf("write report: %w", err)
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("write report: %w", err)
	}
	p := page{Name: title(absolute), Steps: extent(steps), Rows: Compare(steps), Timeline: readTimeline(dir),
		Sections: sections(steps), Samples: samples, Config: string(config)}
	p.Parts, p.Idle = Times(steps)
	p.Drawn = slices.ContainsFunc(p.Sections, func(s section) bool { return len(s.Curves) > 0 })
	view, err := template.New("page").Funcs(template.FuncMap{"number": report.Number, "percent": percent}).Parse(pageSource)
	if err != nil {
		return "", fmt.Errorf("write report: %w", err)
	}
	var html bytes.Buffer
	if err := view.Execute(&html, p); err != nil {
		return "", fmt.Errorf("write report: %w", err)
	}
	path := filepath.Join(dir, File)
	if err := report.ReplaceFile(path, html.Bytes()); err != nil {
		return "", fmt.Errorf("write report: %w", err)
	}
	return path, nil
}

// title is the name of a run's folder, and before it that of the folder that it
// is in, unless that is runs.
func title(dir string) string {
	parent := filepath.Base(filepath.Dir(dir))
	if parent == "runs" || parent == string(filepath.Separator) {
		return filepath.Base(dir)
	}
	return parent + "/" + filepath.Base(dir)
}

// extent says how far a run has come, as in "100 steps in 1m02s".
func extent(steps []report.Values) string {
	first, last := steps[0], steps[len(steps)-1]
	text := report.Number(last["step"]) + " steps"
	if begin, end := first["time"], last["time"]; begin > 0 && end > begin {
		text += " in " + report.Duration(time.Duration((end-begin+first["timing_s/step"])*float64(time.Second)))
		text += ", until " + time.Unix(int64(end), 0).UTC().Format("2006-01-02 15:04") + " UTC"
	}
	return text
}

func percent(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }

// readSamples reads a few groups of the first and of the last rollouts file.
func readSamples(dir string) ([]sample, error) {
	files, err := filepath.Glob(filepath.Join(escapeGlob(dir), "rollouts", "step-*.jsonl"))
	if err != nil || len(files) == 0 {
		return nil, err
	}
	var samples []sample
	for _, path := range slices.Compact([]string{slices.Min(files), slices.Max(files)}) {
		groups, err := firstGroups(path)
		if err != nil {
			return nil, err
		}
		if len(groups) > 0 {
			samples = append(samples, sample{Step: groups[0].Step, Groups: groups})
		}
	}
	return samples, nil
}

// firstGroups reads a few groups of a rollouts file; a line that was cut short
// ends them.
func firstGroups(path string) ([]sampleGroup, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	var groups []sampleGroup
	lines := json.NewDecoder(file)
	for len(groups) < pageGroups {
		var g sampleGroup
		if lines.Decode(&g) != nil {
			break
		}
		g.Prompt = shorten(g.Prompt)
		g.Responses = g.Responses[:min(len(g.Responses), pageResponses)]
		for i := range g.Responses {
			g.Responses[i].Text = shorten(g.Responses[i].Text)
		}
		groups = append(groups, g)
	}
	return groups, nil
}

func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func shorten(s string) string {
	if len(s) <= pageText {
		return s
	}
	return strings.ToValidUTF8(s[:pageText], "") + " …"
}

// Row compares a number at the beginning and at the end of a run.
type Row struct {
	Name        string
	First, Last float64
	FirstStep   int // where the name first appears
	LastStep    int
}

// Compare gives the first and the last value of what tells whether a run
// learned: evaluations, reward, lengths and entropy.
func Compare(steps []report.Values) []Row {
	var rows []Row
	for _, name := range allNames(steps) {
		evaluated := strings.HasPrefix(name, "eval/") && (strings.Contains(name, "@") && !strings.HasSuffix(name, "pass@1") || // the mean at 1
			strings.HasSuffix(name, "/loss"))
		if !evaluated && !slices.Contains([]string{"reward/mean", "reward/zero_std_frac",
			"response_length/mean", "actor/loss", "actor/entropy", "perf/tokens_per_second"}, name) {
			continue
		}
		xs, ys := series(steps, name)
		last := len(xs) - 1
		rows = append(rows, Row{Name: name, First: ys[0], Last: ys[last], FirstStep: int(xs[0]), LastStep: int(xs[last])})
	}
	return rows
}

// allNames are the names in any of steps, in the order of a line.
func allNames(steps []report.Values) []string {
	all := report.Values{}
	for _, values := range steps {
		for name := range values {
			all[name] = 0
		}
	}
	return all.Names()
}

// series are the steps that have name, and its values there.
func series(steps []report.Values, name string) (xs, ys []float64) {
	for _, values := range steps {
		if y, ok := values[name]; ok {
			xs = append(xs, values["step"])
			ys = append(ys, y)
		}
	}
	return xs, ys
}
