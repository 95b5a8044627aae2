// Package compare runs one configuration in several modes, each in its own process on
// the same cores, and reports how fast each is and which mode and split of cores to use.
package compare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/internal/notice"
	"github.com/easyrl/easyrl/internal/secret"
	"github.com/easyrl/easyrl/report"
)

// File is the name of the results file in a comparison's folder.
const File = "compare.json"

// Options set what is compared and how.
type Options struct {
	Files    []string // configuration files, as for easyrl train
	Settings []string // -set arguments, as for easyrl train
	Modes    []string // the first is the baseline
	Sweep    string   // section.key=value,value,…; may be empty
	Warmup   int      // first steps of each process, not timed
	Repeats  int      // runs per variant; the variants alternate
	Resume   bool     // keep the runs already in Dir
	Dir      string   // output folder; empty for runs/<name>-compare
	// Cores is the budget of cores that each run divides, unless its thread keys set another.
	Cores int
	// Threads returns how a run divides cores.
	Threads func(cfg *configs.Config, cores int) (training, sampling int, usesIdle bool)
	// Train runs easyrl train with args in a process with the given number of cores.
	Train func(ctx context.Context, cores int, args []string) error
	Say   func(format string, args ...any)
}

// ErrUsage marks options or a configuration that cannot be compared. Nothing was
// started.
var ErrUsage = errors.New("compare")

// ErrRefused is what Options.Train returns if easyrl train rejects the configuration of
// the first run. Run returns it too. Nothing was started.
var ErrRefused = errors.New("easyrl train rejected the configuration, see its error above")

// Comparison is the content of compare.json. Times are in seconds.
type Comparison struct {
	Name    string `json:"name"`
	Cores   int    `json:"cores"`
	Steps   int    `json:"steps"`
	Warmup  int    `json:"warmup"` // untimed steps at the start of each process
	Repeats int    `json:"repeats"`
	Backend string `json:"backend"` // train.backend
	Sweep   string `json:"sweep,omitempty"`
	// Runs are in the order in which they were requested.
	Runs []Result `json:"runs"`
	// Failed are the runs that ended with an error.
	Failed []Failure `json:"failed,omitempty"`
	// Current is the run with the mode and the split of the configuration, if there is one.
	Current   string     `json:"current,omitempty"`
	Recommend *Recommend `json:"recommend,omitempty"`
	Findings  []string   `json:"words"`
	// Resumed maps a folder to the steps after which a new process resumed its run. The
	// first steps of such a process are not timed either.
	Resumed map[string][]int `json:"resumed,omitempty"`

	dir string
}

// Failure is a run that ended with an error.
type Failure struct {
	Name   string `json:"name"`
	Folder string `json:"folder"`
	Error  string `json:"error"`
}

// Dir returns the comparison's folder.
func (c *Comparison) Dir() string { return c.dir }

// comparing is a comparison in progress.
type comparing struct {
	o      Options
	found  Comparison
	inTurn bool // the configuration's run.mode is colocated
	swaps  bool // the configuration sets train.swap, which other modes refuse
}

// Run runs the comparison and writes compare.json and compare.html to its folder. If
// nothing was started, the error wraps ErrUsage or ErrRefused. If only some runs fail,
// Run returns both a comparison of the others and an error.
func Run(ctx context.Context, o Options) (*Comparison, error) {
	c := &comparing{o: o, found: Comparison{Warmup: o.Warmup, Repeats: o.Repeats, Sweep: o.Sweep,
		Resumed: map[string][]int{}}}
	variants, err := c.plan()
	if err == nil {
		err = c.claim(variants)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	c.found.dir = c.o.Dir
	if o.Resume {
		c.remember()
	}
	if err := c.train(ctx, variants); err != nil {
		return nil, err
	}
	if c.found.Runs, err = c.measure(variants); err != nil {
		return nil, err
	}
	if len(c.found.Runs) == 0 {
		return nil, errors.Join(c.failure(), c.write())
	}
	against(&c.found.Runs[0], c.found.Runs)
	c.found.Recommend = c.recommend(variants)
	c.found.Findings = c.findings()
	return &c.found, errors.Join(c.write(), writePage(&c.found), c.failure())
}

// failure returns an error that names the failed runs, nil if there are none.
func (c *comparing) failure() error {
	var all []string
	for _, f := range c.found.Failed {
		all = append(all, fmt.Sprintf("%s: %s", f.Folder, f.Error))
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%s; retry failed runs with -resume", strings.Join(all, "; "))
}

// train runs the variants that have not finished yet, one repeat of all before the
// next. It skips the remaining repeats of a variant that fails.
func (c *comparing) train(ctx context.Context, variants []variant) error {
	all := len(variants) * c.o.Repeats
	failed := map[string]bool{}
	for i := range all {
		v := variants[i%len(variants)]
		dir := v.folder(c.o.Dir, i/len(variants))
		if failed[v.name] {
			continue
		}
		if _, finished := finalWeights(dir, v.cfg.Run.Steps); finished {
			c.o.Say("%s (%d of %d): already done in %s", v.name, i+1, all, dir)
			for _, line := range report.Damage(dir) {
				c.o.Say("%s: %s", notice.Warning, line)
			}
			continue
		}
		args := append([]string{}, c.o.Files...)
		for _, s := range v.all(c.o.Settings, dir) {
			args = append(args, "-set", s)
		}
		if at, begun := reached(dir); begun {
			args = append(args, "-resume")
			c.found.Resumed[filepath.Base(dir)] = append(c.found.Resumed[filepath.Base(dir)], at)
			if err := c.write(); err != nil {
				return err
			}
		}
		c.o.Say("%s (%d of %d): %s", v.name, i+1, all, v.share)
		switch err := c.o.Train(ctx, v.cores, args); {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, ErrRefused):
			return fmt.Errorf("%s: %w", v.name, err)
		default:
			failed[v.name] = true
			c.found.Failed = append(c.found.Failed, Failure{v.name, filepath.Base(dir), secret.Hide(err.Error())})
		}
	}
	return nil
}

// claim returns an error if the folder has runs, unless they are to be resumed and have
// the same settings.
func (c *comparing) claim(variants []variant) error {
	for _, v := range variants {
		for repeat := range c.o.Repeats {
			dir := v.folder(c.o.Dir, repeat)
			if _, err := os.Stat(filepath.Join(dir, configs.RunFile)); err != nil {
				continue
			}
			if !c.o.Resume {
				return fmt.Errorf("%s already contains a comparison; continue it with -resume, or set another -out",
					c.o.Dir)
			}
			changes, err := v.cfg.Changes(dir)
			if err != nil {
				return err
			}
			if len(changes) > 0 {
				return fmt.Errorf("%s was run with different settings (%s); use the same settings or another -out",
					dir, changes[0])
			}
		}
	}
	return nil
}

// remember restores Resumed from the comparison that is resumed.
func (c *comparing) remember() {
	var before Comparison
	b, err := filetype.Read(filepath.Join(c.o.Dir, File))
	if err == nil && json.Unmarshal(b, &before) == nil && before.Resumed != nil {
		c.found.Resumed = before.Resumed
	}
}

// write writes compare.json.
func (c *comparing) write() error {
	b, err := json.MarshalIndent(&c.found, "", "  ")
	if err == nil {
		err = os.MkdirAll(c.o.Dir, 0o755)
	}
	if err == nil {
		err = report.ReplaceFile(filepath.Join(c.o.Dir, File), append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	return nil
}

// measure reads the metrics of the variants' finished runs.
func (c *comparing) measure(variants []variant) ([]Result, error) {
	var results []Result
	for _, v := range variants {
		r := Result{Name: v.name, Mode: v.mode, Value: v.value, Cores: v.cores, Steps: v.cfg.Run.Steps, Share: v.share}
		for repeat := range c.o.Repeats {
			r.Folders = append(r.Folders, filepath.Base(v.folder(c.o.Dir, repeat)))
		}
		if err := r.read(c.o.Dir, c.o.Warmup, c.found.Resumed); err != nil {
			return nil, err
		}
		if len(r.Folders) > 0 {
			results = append(results, r)
		}
	}
	return results, nil
}

// seconds formats a number of seconds for people.
func seconds(s float64) string {
	if s < 60 {
		return report.Number(round(s)) + "s"
	}
	return report.Duration(time.Duration(s * float64(time.Second)))
}
