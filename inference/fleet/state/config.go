package state

import "time"

// Config sets the limits by which the machine decides.
type Config struct {
	// MinServing is the number of instances that must hold the weights. With fewer,
	// requests wait.
	MinServing int
	// Attempts is the number of times a request is tried, on one instance after another.
	Attempts int
	// EmptyWait limits how long requests, and a publish, wait while fewer than MinServing
	// serve.
	EmptyWait time.Duration
	// Backoff is the pause before the second try. It doubles with each try, up to
	// BackoffMax.
	Backoff, BackoffMax time.Duration
	// DeadAfter is the number of failures in a row that make an instance DEAD.
	DeadAfter int
	// MaxRestarts is how often an instance may fail and return to service. After one more
	// failure it is RETIRED.
	MaxRestarts int
	// Ahead is the share of an instance's capacity that it gets in addition, so that more
	// responses are ready when one ends. If it is not 0, an instance gets at least one
	// request ahead.
	Ahead float64
	// Watchdog outlasts every other deadline. It ends a call that ignores its cancellation
	// and a queue in which nothing moves.
	Watchdog time.Duration
}

// backoff returns the pause after this number of tries, at least 1.
func (c *Config) backoff(tries int) time.Duration {
	d := c.Backoff
	for range tries - 1 {
		d = min(2*d, c.BackoffMax)
	}
	return d
}
