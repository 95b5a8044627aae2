package compare

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/report/steptime"
)

// variant is one way of running the configuration.
type variant struct {
	name     string
	mode     string
	value    string   // swept section.key=value; may be empty
	settings []string // in addition to those of the command line
	cfg      *configs.Resolved
	cores    int
	share    steptime.Split
}

// folder returns the folder of a repeat of the variant.
func (v variant) folder(dir string, repeat int) string {
	name := url.PathEscape(strings.ReplaceAll(v.name, " ", "-"))
	if repeat > 0 {
		name += fmt.Sprintf("-%d", repeat+1)
	}
	return filepath.Join(dir, name)
}

// all returns all settings of a run in dir.
func (v variant) all(given []string, dir string) []string {
	return slices.Concat(given, v.settings, []string{fmt.Sprintf("run.dir=%q", dir)})
}

// plan resolves every variant before any of them runs.
func (c *comparing) plan() ([]variant, error) {
	given, err := c.load(nil)
	if err != nil {
		return nil, err
	}
	if err := c.check(given); err != nil {
		return nil, err
	}
	if given.Origin("eval.every").File == "" && given.Eval.Every > 0 { // evaluations take time and compare nothing
		c.o.Settings = append(slices.Clone(c.o.Settings), "eval.every=0")
	}
	if c.o.Dir == "" {
		c.o.Dir = filepath.Join("runs", given.Run.Name+"-compare")
	}
	c.found.Name, c.found.Steps, c.found.Backend = given.Run.Name, given.Run.Steps, given.Train.Backend
	c.inTurn, c.swaps = given.Run.Mode == configs.Colocated, given.Train.Swap
	values, err := c.sweep()
	if err != nil {
		return nil, err
	}
	var variants []variant
	for _, value := range values {
		for _, mode := range c.modes(given) {
			v := variant{name: strings.TrimSpace(mode + " " + value), mode: mode, value: value,
				settings: []string{"run.mode=" + mode}}
			if c.swaps && mode != configs.Colocated {
				v.settings = append(v.settings, "train.swap=false")
			}
			if value != "" {
				v.settings = append(v.settings, value)
			}
			if err := c.resolve(&v); err != nil && value != "" {
				return nil, fmt.Errorf("-sweep %s: %w", value, err)
			} else if err != nil {
				return nil, err
			}
			variants = append(variants, v)
			if v.mode == given.Run.Mode && v.share == c.split(given, c.o.Cores) &&
				given.Values("")[c.sweptKey()] == v.cfg.Values("")[c.sweptKey()] {
				c.found.Current = v.name
			}
		}
	}
	c.found.Cores = variants[0].cores
	return variants, nil
}

// modes returns the requested modes. The default is all, or only the configured one if
// there is a sweep.
func (c *comparing) modes(given *configs.Resolved) []string {
	switch {
	case len(c.o.Modes) > 0:
		return c.o.Modes
	case c.o.Sweep != "":
		return []string{given.Run.Mode}
	}
	return allModes()
}

// allModes returns the modes that can be compared.
func allModes() []string { return []string{configs.Sync, configs.PeriodicAsync, configs.Colocated} }

// check returns an error if the options do not fit each other or the configuration.
func (c *comparing) check(given *configs.Resolved) error {
	all := allModes()
	var faults []error
	for i, mode := range c.o.Modes {
		switch {
		case !slices.Contains(all, mode):
			faults = append(faults, fmt.Errorf("-modes has %q, expected any of %s", mode, strings.Join(all, ", ")))
		case slices.Contains(c.o.Modes[:i], mode):
			faults = append(faults,
				fmt.Errorf("-modes has %s twice, expected each mode once (use -repeats to run it again)", mode))
		}
	}
	if c.o.Warmup < 0 || c.o.Warmup >= given.Run.Steps {
		faults = append(faults, fmt.Errorf("-warmup is %d, expected 0 or more and less than run.steps = %d", c.o.Warmup,
			given.Run.Steps))
	}
	if c.o.Repeats < 1 {
		faults = append(faults, fmt.Errorf("-repeats is %d, expected 1 or more", c.o.Repeats))
	}
	return errors.Join(faults...)
}

// sweep returns a setting for each value of the swept key, or an empty one without a
// sweep.
func (c *comparing) sweep() ([]string, error) {
	if c.o.Sweep == "" {
		return []string{""}, nil
	}
	key, list, ok := strings.Cut(c.o.Sweep, "=")
	if key = strings.TrimSpace(key); !ok || key == "" || strings.TrimSpace(list) == "" {
		return nil, fmt.Errorf("-sweep is %q, expected section.key=value,value,…", c.o.Sweep)
	}
	if strings.HasPrefix(key, "run.") && key != "run.seed" {
		return nil, fmt.Errorf(
			"-sweep varies %s, expected run.seed or a key of another section (use -modes to compare modes)", key)
	}
	var settings []string
	for _, value := range swept(list) {
		setting := key + "=" + value
		if value == "" {
			return nil, fmt.Errorf("-sweep is %q, expected a value between commas", c.o.Sweep)
		}
		if slices.Contains(settings, setting) {
			return nil, fmt.Errorf("-sweep has %s twice, expected each value once", setting)
		}
		settings = append(settings, setting)
	}
	return settings, nil
}

// swept splits a list at commas, except within brackets and quotes.
func swept(list string) (values []string) {
	depth, begin, quote := 0, 0, rune(0)
	for i, r := range list {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case r == '[' || r == '{':
			depth++
		case r == ']' || r == '}':
			depth--
		case r == ',' && depth == 0:
			values = append(values, strings.TrimSpace(list[begin:i]))
			begin = i + 1
		}
	}
	return append(values, strings.TrimSpace(list[begin:]))
}

// resolve loads the variant's configuration and divides its cores.
func (c *comparing) resolve(v *variant) error {
	cfg, err := c.load(v.settings)
	if err != nil {
		return err
	}
	v.cores = c.budget(cfg)
	for _, setting := range c.shared(cfg, v.cores) {
		if c.o.Sweep == "" || !strings.HasPrefix(setting, c.sweptKey()+"=") {
			v.settings = append(v.settings, setting)
		}
	}
	if v.cfg, err = c.load(v.settings); err == nil {
		v.share = c.split(v.cfg, v.cores)
	}
	return err
}

// load returns the valid configuration of the files with settings in addition to the command line's.
func (c *comparing) load(settings []string) (*configs.Resolved, error) {
	cfg, err := configs.Load(c.o.Files, slices.Concat(c.o.Settings, settings))
	if err == nil {
		err = cfg.Validate(configs.TrainTask)
	}
	return cfg, err
}

// split returns how a configuration divides cores.
func (c *comparing) split(cfg *configs.Resolved, cores int) steptime.Split {
	training, each, usesIdle := c.o.Threads(&cfg.Config, cores)
	return steptime.Split{TrainerThreads: training, Instances: cfg.Inference.Instances, InstanceThreads: each,
		LendsIdle: usesIdle, Alternating: cfg.Run.Mode == configs.Colocated}
}

// sweptKey returns the swept key, or "" without a sweep.
func (c *comparing) sweptKey() string {
	key, _, _ := strings.Cut(c.o.Sweep, "=")
	return strings.TrimSpace(key)
}

// budget returns the number of this machine's cores that each mode gets: all, or fewer if
// both thread keys are set and add up to less.
func (c *comparing) budget(cfg *configs.Resolved) int {
	training, sampling := cfg.Device.Threads, cfg.Inference.Threads*cfg.Inference.Instances
	switch {
	case cfg.Inference.Instances == 0 && training > 0:
		return min(training, c.o.Cores)
	case training == 0 || sampling == 0:
		return c.o.Cores
	case c.inTurn:
		return min(max(training, sampling), c.o.Cores)
	}
	return min(training+sampling, c.o.Cores)
}

// shared returns the settings that give a mode the whole budget. A colocated mode gets
// all cores for each side. Another mode uses the default division if the thread keys
// were meant for colocation.
func (c *comparing) shared(cfg *configs.Resolved, cores int) []string {
	n := cfg.Inference.Instances
	switch {
	case cfg.Run.Mode != configs.Colocated && c.inTurn:
		return []string{"device.threads=0", "inference.threads=0"}
	case cfg.Run.Mode != configs.Colocated:
		return nil
	case n == 0:
		return []string{fmt.Sprint("device.threads=", cores)}
	}
	return []string{fmt.Sprint("device.threads=", cores), fmt.Sprint("inference.threads=", max(1, cores/n))}
}
