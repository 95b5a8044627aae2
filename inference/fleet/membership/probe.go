package membership

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/easyrl/easyrl/inference/remote"
)

// Probed is what Probe found out about a configured server.
type Probed struct {
	remote.Endpoint       // with the kind that it has
	Capacity        int   // responses that it samples at once
	Fault           error // why the run could not use it now; nil if it could
}

// Probe connects to the configured servers and closes the connections: no server joins a
// fleet or is claimed. engines is the number of engines in the run's process. The error is
// the one that Connect would return.
func Probe(ctx context.Context, cfg Config, engines int) ([]Probed, error) {
	if _, err := openState(cfg.Dir, nil); err != nil {
		return nil, err
	}
	dial := cfg.Dial
	if dial == nil {
		var err error
		if dial, _, err = newDialer(&cfg); err != nil {
			return nil, err
		}
	}
	all := make([]Probed, len(cfg.Endpoints))
	var calls sync.WaitGroup
	for i, e := range cfg.Endpoints {
		all[i].Endpoint = e
		calls.Go(func() {
			c, err := dial(ctx, e)
			if err != nil {
				all[i].Fault = err
				return
			}
			all[i].Kind, all[i].Capacity = c.Kind().Name, c.Capacity()
			_ = c.Close() // it has nothing to lose
		})
	}
	calls.Wait()
	usable := engines
	faults := make([]error, len(all))
	for i := range all {
		if faults[i] = all[i].Fault; faults[i] == nil {
			usable++
		}
	}
	return all, cfg.enough(usable, errors.Join(faults...))
}

// enough returns an error if err kept servers away that the run needs to start and no other
// may join.
func (c *Config) enough(usable int, err error) error {
	if err == nil || usable >= c.MinInstances || c.MayJoin {
		return nil
	}
	return fmt.Errorf("%d instances are available, expected at least %d (inference.min_instances): %s", usable,
		c.MinInstances, oneLine(err.Error()))
}
