package report

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
)

// PageFile is the name of the page in a run's folder.
const PageFile = "report.html"

// How much of the last sampled answers the page shows.
const (
	pageGroups    = 4
	pageResponses = 4
	pageText      = 2000 // bytes of one text
)

//go:embed page.html.tmpl
var pageSource string

// page is what the template sees.
type page struct {
	Name   string
	Rows   []Row
	Curves []curve
	Step   int // of Groups
	Groups []sampleGroup
	Config string
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

// WriteHTML writes a self-contained report.html from what the run in dir
// recorded: its metrics, which must be there, and its configuration and last
// answers where they are. It returns the page's path.
func WriteHTML(dir string) (string, error) {
	steps, err := ReadMetrics(filepath.Join(dir, MetricsFile))
	if err != nil {
		return "", err
	}
	if len(steps) == 0 {
		return "", fmt.Errorf("write report: %s has no steps yet", filepath.Join(dir, MetricsFile))
	}
	config, err := os.ReadFile(filepath.Join(dir, "run.toml"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("write report: %w", err)
	}
	groups, err := lastGroups(dir)
	if err != nil {
		return "", fmt.Errorf("write report: %w", err)
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("write report: %w", err)
	}
	p := page{Name: filepath.Base(absolute), Rows: Compare(steps), Curves: curves(steps), Groups: groups, Config: string(config)}
	if len(groups) > 0 {
		p.Step = groups[0].Step
	}
	view, err := template.New("page").Funcs(template.FuncMap{"number": Number}).Parse(pageSource)
	if err != nil {
		return "", fmt.Errorf("write report: %w", err)
	}
	var html bytes.Buffer
	if err := view.Execute(&html, p); err != nil {
		return "", fmt.Errorf("write report: %w", err)
	}
	path := filepath.Join(dir, PageFile)
	if err := replaceFile(path, html.Bytes()); err != nil {
		return "", fmt.Errorf("write report: %w", err)
	}
	return path, nil
}

// lastGroups reads a few groups of the newest rollouts file; a line that was cut
// short ends them.
func lastGroups(dir string) ([]sampleGroup, error) {
	files, err := filepath.Glob(filepath.Join(escapeGlob(dir), "rollouts", "step-*.jsonl"))
	if err != nil || len(files) == 0 {
		return nil, err
	}
	file, err := os.Open(slices.Max(files))
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
func Compare(steps []Values) []Row {
	var rows []Row
	for _, name := range allNames(steps) {
		evaluated := strings.HasPrefix(name, "eval/") && strings.Contains(name, "@") && !strings.HasSuffix(name, "pass@1") // the mean at 1
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
func allNames(steps []Values) []string {
	all := Values{}
	for _, values := range steps {
		for name := range values {
			all[name] = 0
		}
	}
	return all.names()
}

// series are the steps that have name, and its values there.
func series(steps []Values, name string) (xs, ys []float64) {
	for _, values := range steps {
		if y, ok := values[name]; ok {
			xs = append(xs, values["step"])
			ys = append(ys, y)
		}
	}
	return xs, ys
}
