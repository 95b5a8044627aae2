package state

import "time"

// Config sets the numbers that the machine decides by.
type Config struct {
	// MinServing is how many instances must hold the weights. With fewer,
	// requests wait.
	MinServing int
	// Attempts is how often a request is tried, on one instance after another.
	Attempts int
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
	// Ahead is how many responses an instance gets beyond those that it samples
	// at once, as a share of them, so that it has more at hand when one ends. If
	// it is not 0, an instance gets at least one request ahead.
	Ahead float64
	// Watchdog ends what outlives every other deadline: an instance that does
	// not return when told to, a queue in which nothing moves.
	Watchdog time.Duration
}

// backoff is the pause after a number of tries, 1 or more.
func (c *Config) backoff(tries int) time.Duration {
	d := c.Backoff
	for range tries - 1 {
		d = min(2*d, c.BackoffMax)
	}
	return d
}
