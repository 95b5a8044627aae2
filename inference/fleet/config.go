package fleet

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Config says how a fleet bears with its instances.
type Config struct {
	// MinServing is how many instances must hold the weights. With fewer,
	// requests wait.
	MinServing int
	// Attempts is how often a request is tried, on one instance after another.
	Attempts int
	// CallTimeout ends one try; it includes the wait in the instance's own
	// queue.
	CallTimeout time.Duration
	// PublishTimeout ends one instance's publish.
	PublishTimeout time.Duration
	// EmptyWait is how long requests, and a publish, wait while fewer than
	// MinServing serve.
	EmptyWait time.Duration
	// Backoff is the pause before the second try; each further pause is twice
	// as long, up to BackoffMax.
	Backoff, BackoffMax time.Duration
	// DeadAfter is the number of failures in a row that make an instance DEAD.
	DeadAfter int
	// MaxRestarts is how often an instance may lose its life or its weights and
	// come back; after one more it is RETIRED.
	MaxRestarts int
	// Ahead is how many responses an instance is given beyond those that it
	// samples at once, as a share of them, so that it has more at hand when one
	// ends; where it is not 0, one request at least.
	Ahead float64
	// HedgeAfter, where not 0, gives a request that has no answer after so long
	// to a second instance as well, if one has room. The first answer counts and
	// the other call is cancelled.
	HedgeAfter time.Duration
	// ProbeEvery is the pause between probes of an instance that does not serve,
	// ProbeTimeout the end of one.
	ProbeEvery, ProbeTimeout time.Duration
	// Watchdog ends what outlives every other deadline: an instance that does
	// not return when told to, a queue in which nothing moves.
	Watchdog time.Duration
	// Vocab is the size of the vocabulary, 0 where it is not known: an answer with
	// a token that is not in it is a fault of the instance.
	Vocab int
	// Notify, where set, hears each change of state. It is called with the
	// fleet locked and must not call the fleet.
	Notify func(Event)
}

// Event is a change of an instance's state; Err is its cause, where one is
// known. Without ID it is of the fleet: Err says that too few instances serve,
// none that enough do again.
type Event struct {
	ID       string
	From, To State
	Err      error
}

// String is the event as a line for people.
func (e Event) String() string {
	switch {
	case e.ID == "" && e.Err == nil:
		return "fleet: enough instances serve again"
	case e.ID == "":
		return "fleet: " + e.Err.Error()
	case e.From == e.To:
		return fmt.Sprintf("instance %s: %s still: %v", e.ID, e.To, e.Err)
	case e.Err == nil:
		return fmt.Sprintf("instance %s: %s, was %s", e.ID, e.To, e.From)
	}
	return fmt.Sprintf("instance %s: %s, was %s: %v", e.ID, e.To, e.From, e.Err)
}

// DefaultConfig suits instances that answer within minutes.
func DefaultConfig() Config {
	return Config{
		MinServing: 1, Attempts: 5, DeadAfter: 3, MaxRestarts: 10, Ahead: 0.5,
		CallTimeout: 30 * time.Minute, PublishTimeout: 10 * time.Minute, EmptyWait: 2 * time.Minute,
		Backoff: 200 * time.Millisecond, BackoffMax: 10 * time.Second,
		ProbeEvery: 5 * time.Second, ProbeTimeout: 10 * time.Second, Watchdog: 45 * time.Minute,
	}
}

// Validate reports all faults of c.
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
		fault(c.Watchdog <= d, "watchdog %v, expected more than %s, %v", c.Watchdog, name, d)
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
	if c.HedgeAfter != 0 {
		lasts("hedge after", c.HedgeAfter)
	}
	lasts("probe every", c.ProbeEvery)
	lasts("probe timeout", c.ProbeTimeout)
	fault(c.BackoffMax < c.Backoff, "largest backoff %v, expected at least the first, %v", c.BackoffMax, c.Backoff)
	fault(!(c.Ahead >= 0) || math.IsInf(c.Ahead, 0), "ahead %v, expected 0 or more", c.Ahead)
	return errors.Join(faults...)
}
