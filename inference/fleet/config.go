package fleet

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/easyrl/easyrl/inference/fleet/state"
)

// Config sets timeouts, retries and health thresholds.
type Config struct {
	state.Config
	// CallTimeout limits one attempt, including the wait in the instance's own queue.
	CallTimeout time.Duration
	// PublishTimeout limits one instance's publish.
	PublishTimeout time.Duration
	// ProbeEvery is the pause between probes of an instance that does not serve.
	// ProbeTimeout limits one probe.
	ProbeEvery, ProbeTimeout time.Duration
	// Vocab is the size of the vocabulary, 0 if unknown. An answer with a token outside it
	// is a fault of the instance.
	Vocab int
	// Exact means that callers compute the bits of exact instances, so that they may reject
	// answers.
	Exact bool
	// Notify, if set, receives each change of state. It is called with the fleet locked and
	// must not call the fleet.
	Notify func(Event)
}

// DefaultConfig returns a configuration for instances that answer within minutes.
func DefaultConfig() Config {
	return Config{
		Config: state.Config{
			MinServing: 1, Attempts: 5, DeadAfter: 3, MaxRestarts: 10, Ahead: 0.5, EmptyWait: 2 * time.Minute,
			Backoff: 200 * time.Millisecond, BackoffMax: 10 * time.Second, Watchdog: 45 * time.Minute,
		},
		CallTimeout: 30 * time.Minute, PublishTimeout: 10 * time.Minute,
		ProbeEvery: 5 * time.Second, ProbeTimeout: 10 * time.Second,
	}
}

// Validate reports all faults of c in one error.
func (c *Config) Validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("fleet: "+format, args...))
		}
	}
	least := func(name string, value, low int) {
		fault(value < low, "%s %d, expected at least %d", name, value, low)
	}
	lasts := func(name string, d time.Duration) {
		fault(d <= 0, "%s %v, expected more than 0", name, d)
		fault(c.Watchdog <= d, "watchdog %v, expected more than %s (%v)", c.Watchdog, name, d)
	}
	least("min serving", c.MinServing, 1)
	least("attempts", c.Attempts, 1)
	least("dead after", c.DeadAfter, 1)
	least("max restarts", c.MaxRestarts, 0)
	least("vocabulary", c.Vocab, 0)
	lasts("call timeout", c.CallTimeout)
	lasts("publish timeout", c.PublishTimeout)
	lasts("empty wait", c.EmptyWait)
	lasts("backoff", c.Backoff)
	lasts("largest backoff", c.BackoffMax)
	lasts("probe every", c.ProbeEvery)
	lasts("probe timeout", c.ProbeTimeout)
	fault(c.BackoffMax < c.Backoff, "largest backoff %v, expected at least the first backoff (%v)", c.BackoffMax,
		c.Backoff)
	fault(!(c.Ahead >= 0) || math.IsInf(c.Ahead, 0), "ahead %v, expected 0 or more", c.Ahead)
	return errors.Join(faults...)
}
