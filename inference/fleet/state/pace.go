package state

import (
	"math/bits"
	"time"
)

const (
	// A call is late after as long as the longest answer took, at least leastLate, and
	// before any answer after unknownLate.
	leastLate   = time.Second / 2
	unknownLate = 2 * time.Minute
	// The instance of a late call is silent if it has given no sign of work for half of that
	// time, at least leastQuiet.
	leastQuiet = 600 * time.Millisecond
	// A publish waits for an instance twice as long as the slowest one took, at least
	// leastPatience.
	leastPatience = time.Second
)

// pace holds how long answers took under the current weights and those before. Requests are
// classed by the bit length of their limit of tokens.
type pace struct {
	longest, before [bits.UintSize + 1]time.Duration
}

func (p *pace) learn(took time.Duration, maxTokens int) {
	class := bits.Len(uint(maxTokens))
	p.longest[class] = max(p.longest[class], took)
}

// turn begins the time of new weights, unless the current ones have answered nothing.
func (p *pace) turn() {
	if p.longest != [len(p.longest)]time.Duration{} {
		p.longest, p.before = [len(p.longest)]time.Duration{}, p.longest
	}
}

// late returns the time after which a call with this limit of tokens is late. Without an
// answer of its class, late scales up the time of the nearest smaller class, or takes that
// of the nearest larger one.
func (p *pace) late(maxTokens int) time.Duration {
	class := bits.Len(uint(maxTokens))
	for c := class; c >= 0; c-- {
		if d := max(p.longest[c], p.before[c]); d > 0 {
			return max(leastLate, d<<min(class-c, 20))
		}
	}
	for c := class; c < len(p.longest); c++ {
		if d := max(p.longest[c], p.before[c]); d > 0 {
			return max(leastLate, d)
		}
	}
	return unknownLate
}

// publishes holds how long the slowest instance took to take the current weights and those
// before.
type publishes struct {
	begun           time.Time
	slowest, before time.Duration
}

// begin begins a publish.
func (p *publishes) begin(now time.Time) {
	p.begun = now
	if p.slowest > 0 {
		p.slowest, p.before = 0, p.slowest
	}
}

// took records an instance that has taken the weights.
func (p *publishes) took(now time.Time) { p.slowest = max(p.slowest, now.Sub(p.begun)) }

// patience returns how long a publish waits for an instance if others suffice, or unknown
// before any instance has taken weights.
func (p *publishes) patience(unknown time.Duration) time.Duration {
	if d := max(p.slowest, p.before); d > 0 {
		return max(leastPatience, 2*d)
	}
	return unknown
}
