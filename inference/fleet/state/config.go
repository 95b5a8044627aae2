package state

import "time"

// Config sets the limits by which the machine decides.
type Config struct {
	// MinServing is the minimum number of serving instances. While fewer serve, requests wait.
	MinServing int
	// Attempts is the maximum number of tries of a request that count; see Request.next.
	Attempts int
	// EmptyWait limits how long requests, and a publish, wait while fewer than MinServing
	// instances serve.
	EmptyWait time.Duration
	// Backoff is the pause before a request's second try. The pause doubles with each try, up to
	// BackoffMax.
	Backoff, BackoffMax time.Duration
	// DeadAfter is the number of failures in a row that make an instance DEAD.
	DeadAfter int
	// MaxRestarts is how often an instance may fail and return to service. After one more
	// failure it is RETIRED.
	MaxRestarts int
	// Ahead sets how many responses an instance gets beyond its capacity, as a share of the
	// capacity, so that others are ready when one ends. If Ahead is not 0, an instance gets at
	// least one request beyond the one it runs.
	Ahead float64
	// Watchdog is longer than every other timeout. It bounds a call that ignores its cancellation,
	// and the wait of a request while no request starts or ends on any instance.
	Watchdog time.Duration
	// Patience is the least time before a call without an answer is late (pace.late).
	Patience time.Duration
}

// backoff returns the pause after this number of tries, which is at least 1.
func (c *Config) backoff(tries int) time.Duration {
	d := c.Backoff
	for range tries - 1 {
		d = min(2*d, c.BackoffMax)
	}
	return d
}
