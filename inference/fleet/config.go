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
	ProbeEvery time.Duration
	// ProbeTimeout limits one probe.
	ProbeTimeout time.Duration
	// Vocab is the size of the vocabulary, 0 if unknown. An answer with a token outside it
	// is a fault of the instance.
	Vocab int
	// Exact means that callers compare the log-probabilities of exact instances with their own, bit
	// by bit. Completions of these instances then have a Reject.
	Exact bool
	// Notify, if set, receives each change of state. It is called with the fleet locked, so it must
	// not call the fleet or block.
	Notify func(Event)
}

// DefaultConfig returns a configuration for instances that answer within minutes.
func DefaultConfig() Config {
	return Config{
		Config: state.Config{
			MinServing: 1, Attempts: 5, DeadAfter: 3, MaxRestarts: 10, Ahead: 0.5, EmptyWait: 2 * time.Minute,
			Backoff: 200 * time.Millisecond, BackoffMax: 10 * time.Second, Watchdog: 45 * time.Minute,
			Patience: time.Second / 2,
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
	atLeast := func(name string, value, low int) {
		fault(value < low, "%s %d, expected at least %d", name, value, low)
	}
	duration := func(name string, d time.Duration) {
		fault(d <= 0, "%s %v, expected more than 0", name, d)
		fault(c.Watchdog <= d, "watchdog %v, expected more than %s (%v)", c.Watchdog, name, d)
	}
	atLeast("min serving", c.MinServing, 1)
	atLeast("attempts", c.Attempts, 1)
	atLeast("dead after", c.DeadAfter, 1)
	atLeast("max restarts", c.MaxRestarts, 0)
	atLeast("vocabulary", c.Vocab, 0)
	duration("call timeout", c.CallTimeout)
	duration("publish timeout", c.PublishTimeout)
	duration("empty wait", c.EmptyWait)
	duration("patience", c.Patience)
	duration("backoff", c.Backoff)
	duration("largest backoff", c.BackoffMax)
	duration("probe every", c.ProbeEvery)
	duration("probe timeout", c.ProbeTimeout)
	fault(c.BackoffMax < c.Backoff, "largest backoff %v, expected at least the first backoff (%v)", c.BackoffMax,
		c.Backoff)
	fault(!(c.Ahead >= 0) || math.IsInf(c.Ahead, 0), "ahead %v, expected 0 or more", c.Ahead) // NaN too
	return errors.Join(faults...)
}
