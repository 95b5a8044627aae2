package compare

import (
	"slices"
	"strings"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/report/steptime"
)

// split returns how a configuration divides cores.
func (c *comparing) split(cfg *configs.Resolved, cores int) steptime.Split {
	training, each, lends := c.o.Threads(&cfg.Config, cores)
	return steptime.Split{TrainerThreads: training, Instances: cfg.Inference.Instances, InstanceThreads: each, LendsIdle: lends,
		Alternating: cfg.Run.Mode == configs.Colocated}
}

// change returns those settings that a user has to add to the command line for the same
// run, since the others are what the configuration has already.
func (c *comparing) change(settings []string) ([]string, error) {
	want, err := c.outcome(settings)
	if err != nil {
		return nil, err
	}
	needed := slices.Clone(settings)
	for i := len(needed) - 1; i >= 0; i-- {
		fewer := slices.Delete(slices.Clone(needed), i, i+1)
		got, err := c.outcome(fewer)
		if err != nil {
			continue // this one makes the others valid
		}
		if got.share == want.share && got.mode == want.mode && slices.Equal(got.values(settings), want.values(settings)) {
			needed = fewer
		}
	}
	return needed, nil
}

// outcome is what settings lead to.
type outcome struct {
	mode  string
	share steptime.Split
	all   map[string]string // values by key
}

func (c *comparing) outcome(settings []string) (outcome, error) {
	cfg, err := configs.Load(c.o.Files, slices.Concat(c.o.Settings, settings))
	if err == nil {
		err = cfg.Validate(configs.TrainTask)
	}
	if err != nil {
		return outcome{}, err
	}
	return outcome{cfg.Run.Mode, c.split(cfg, c.o.Cores), cfg.Values("")}, nil
}

// values returns the values of the keys that settings set, except for those that only
// determine mode and split.
func (o outcome) values(settings []string) (values []string) {
	for _, setting := range without(settings, sharing()...) {
		key, _, _ := strings.Cut(setting, "=")
		values = append(values, o.all[strings.TrimSpace(key)])
	}
	return values
}

// relate notes which run has the configuration's own mode and split, and what the
// recommendation changes in the configuration.
func (c *comparing) relate(variants []variant) error {
	for _, v := range variants {
		if needed, err := c.change(v.settings); err == nil && len(needed) == 0 {
			c.found.Current = v.name
		}
	}
	r := c.found.Recommend
	if r == nil {
		return nil
	}
	if c.swaps && r.Mode != configs.Colocated {
		r.Settings = append(r.Settings, "train.swap=false")
	}
	var err error
	r.Change, err = c.change(r.Settings)
	return err
}
