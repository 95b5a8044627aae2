// Package simulate provides instances that compute nothing but take the time that
// a model would, for scale tests and for predicting the behavior of a cluster.
//
// An instance batches like the engine: first come, first served, response by
// response, as slots become free. A request's prompt runs once, and no response
// grows meanwhile. There are no cache pages, so no response is preempted.
//
// A response's length and tokens depend only on the request's seed, its prompt
// and the response's index, so that runs are reproducible; all log-probabilities
// are Logprob. Times follow the schedule to the nanosecond: a late timer delays
// the caller that waits for a response, but no later response.
package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/easyrl/easyrl/inference"
)

// Logprob is the log-probability of every token.
const Logprob = -1

// Config describes a simulated instance.
type Config struct {
	ID string // name of the instance
	// Checksum is the checksum of the initial weights, version 0. If empty, the
	// instance refuses requests until the first Publish.
	Checksum string
	Lengths  Lengths // distribution of the lengths of responses
	// TokensPerSecond is the speed of each response, regardless of how many run.
	TokensPerSecond float64
	// PrefillTokensPerSecond is the speed of prompts; 0 means they take no time.
	PrefillTokensPerSecond float64
	Slots                  int           // maximum number of running responses
	Publish                time.Duration // duration of a publish; the old weights serve meanwhile
	Failures               float64       // share of requests that fail; they do so when their first response ends
	Vocab                  int           // number of token IDs; they start at 0
	Context                int           // maximum number of positions of prompt and response
}

// Default returns a configuration that resembles a model with a few billion
// parameters on one accelerator.
func Default() Config {
	return Config{
		ID: "simulated", Lengths: Lengths{kind: lognormal, a: 512, b: 0.8}, TokensPerSecond: 50,
		PrefillTokensPerSecond: 20_000,
		Slots:                  64, Vocab: 32_000, Context: 32_768,
	}
}

// Validate returns all faults of c joined. Its conditions on floats are negated ranges, so that NaN
// is a fault too.
func (c *Config) Validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("simulate: "+format, args...))
		}
	}
	fault(c.ID == "", "id is empty")
	fault(c.Lengths.kind == "", "lengths are not set")
	fault(!(c.TokensPerSecond >= minSpeed && c.TokensPerSecond <= maxSpeed), "tokens_per_second %v, expected %v to %v",
		c.TokensPerSecond, minSpeed, maxSpeed)
	fault(c.PrefillTokensPerSecond != 0 &&
		!(c.PrefillTokensPerSecond >= minSpeed && c.PrefillTokensPerSecond <= maxSpeed),
		"prefill_tokens_per_second %v, expected 0 or %v to %v", c.PrefillTokensPerSecond, minSpeed, maxSpeed)
	fault(c.Slots < 1 || c.Slots > maxSlots, "slots %d, expected 1 to %d", c.Slots, maxSlots)
	fault(c.Publish < 0, "publish_seconds %v, expected 0 or more", c.Publish.Seconds())
	fault(!(c.Failures >= 0 && c.Failures <= 1), "failures %v, expected 0 to 1", c.Failures)
	fault(c.Vocab < 1 || c.Vocab > math.MaxInt32, "vocab %d, expected 1 to %d", c.Vocab, math.MaxInt32)
	fault(c.Context < 2 || c.Context > maxLength, "context %d, expected 2 to %d", c.Context, maxLength)
	return errors.Join(faults...)
}

// Limits of a Config. Within them, the duration of a response does not overflow a time.Duration.
const (
	minSpeed  = 1e-3
	maxSpeed  = 1e9
	maxSlots  = 1 << 20
	maxLength = 1 << 20
)

// Stats counts an instance's work since it started. Running and Waiting are current numbers.
type Stats struct {
	Running      int           // responses that run
	Waiting      int           // responses that wait for a slot
	PromptTokens int64         // tokens of prompts that have started
	Tokens       int64         // tokens of responses
	Busy         time.Duration // total slot time of ended responses
	Prefill      time.Duration // time during which prompts ran and no response grew
}

// Instance is an inference.Instance and an inference.Streamer that computes
// nothing. It has no goroutine of its own.
type Instance struct {
	cfg   Config
	clock *Clock

	mu       sync.Mutex // taken before the clock's lock
	s        schedule
	alarm    alarm         // calls advance at the schedule's next event
	version  int64         // version of the current weights
	checksum string        // checksum of the current weights; empty without weights
	calls    uint64        // number of requests so far
	closed   chan struct{} // closed by Close, with mu held
}

// New returns an instance that runs on clock.
func New(cfg Config, clock *Clock) (*Instance, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	i := &Instance{cfg: cfg, clock: clock, s: newSchedule(cfg.Slots), checksum: cfg.Checksum,
		closed: make(chan struct{})}
	i.alarm = alarm{index: unset, fire: i.advance}
	return i, nil
}

// ID returns the configured name.
func (i *Instance) ID() string { return i.cfg.ID }

// Capacity returns the number of slots.
func (i *Instance) Capacity() int { return i.cfg.Slots }

// Config returns the configuration passed to New.
func (i *Instance) Config() Config { return i.cfg }

// Held returns the version and checksum of the current weights; checksum is empty
// if there are none.
func (i *Instance) Held() (version int64, checksum string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.version, i.checksum
}

// Stats returns the counters as of now.
func (i *Instance) Stats() Stats {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.s.runTo(i.clock.now())
	stats := i.s.stats
	stats.Running = i.s.running.Len()
	for k := range stats.Running {
		r := i.s.running.At(k)
		stats.Tokens += int64(i.s.tokens(r.g, r.index))
	}
	for _, g := range i.s.queue {
		stats.Waiting += len(g.spans) - g.next
	}
	return stats
}

// advance runs the schedule up to now.
func (i *Instance) advance() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.s.runTo(i.clock.now())
	i.arm()
}

// arm sets the alarm to the next event. The caller holds i.mu.
func (i *Instance) arm() {
	if at, ok := i.s.nextEvent(); ok {
		i.clock.set(&i.alarm, at)
	} else {
		i.clock.stop(&i.alarm)
	}
}

// Publish makes w's version current after the configured time. It reads no values. Requests whose
// prompts started under older weights, and requests for an older version, end with
// inference.ErrStale; waiting requests for any version run under w.
func (i *Instance) Publish(ctx context.Context, w inference.Weights) (string, error) {
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("instance %s: publish version %d: %w", i.cfg.ID, w.Version(), err)
	}
	if w.Version() < 1 {
		return fail(errors.New("expected 1 or more"))
	}
	t := time.NewTimer(i.cfg.Publish)
	defer t.Stop()
	select {
	case <-t.C:
	case <-i.closed:
		return fail(inference.ErrClosed)
	case <-ctx.Done():
		return fail(context.Cause(ctx))
	}
	sum := w.Checksum()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.isClosed() {
		return fail(inference.ErrClosed)
	}
	i.s.runTo(i.clock.now())
	i.version, i.checksum = w.Version(), sum
	i.s.drop(func(g *group) error {
		if err := i.refuse(g.req.Version); err != nil {
			return err
		}
		if g.started {
			return fmt.Errorf("%w: version %d was published while the request ran", inference.ErrStale, i.version)
		}
		g.version, g.checksum = i.version, i.checksum
		return nil
	})
	i.arm()
	return sum, nil
}

// refuse returns an error unless the instance holds weights that satisfy a request for version,
// where 0 accepts any. The caller holds i.mu.
func (i *Instance) refuse(version int64) error {
	switch {
	case i.checksum == "":
		return fmt.Errorf("%w: no weights have been published yet", inference.ErrStale)
	case version != 0 && version != i.version:
		return fmt.Errorf("%w: request is for version %d, the instance holds %d", inference.ErrStale,
			version, i.version)
	}
	return nil
}

// isClosed reports whether Close was called. It needs no lock; under i.mu the result stays valid.
func (i *Instance) isClosed() bool {
	select {
	case <-i.closed:
		return true
	default:
		return false
	}
}

// Close ends all requests with inference.ErrClosed.
func (i *Instance) Close() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.isClosed() {
		return nil
	}
	close(i.closed)
	i.s.drop(func(*group) error { return inference.ErrClosed })
	i.clock.stop(&i.alarm)
	return nil
}

var (
	_ inference.Instance = (*Instance)(nil)
	_ inference.Streamer = (*Instance)(nil)
)
