package membership

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/easyrl/easyrl/inference/remote"
)

// Probed describes a configured server as Probe found it.
type Probed struct {
	remote.Endpoint       // Kind is what the server reported, if Fault is nil
	Capacity        int   // number of responses that it samples at once
	Fault           error // why the run could not use it; nil if it could
}

// Probe connects to the configured servers and closes the connections: no server joins a fleet or is
// claimed. It returns one Probed per configured server, in order, and the error that Connect would
// return. engines is the number of engines in the run's process.
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
			_ = c.Close() // nothing was sent that a failure could lose
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

// enough returns an error if err is not nil, fewer than MinInstances are usable, and no other server
// may join. err says why servers could not be added.
func (c *Config) enough(usable int, err error) error {
	if err == nil || usable >= c.MinInstances || c.MayJoin {
		return nil
	}
	return fmt.Errorf("%d instances are available, expected at least %d (inference.min_instances): %s", usable,
		c.MinInstances, oneLine(err.Error()))
}
