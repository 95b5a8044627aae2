package state

import (
	"math/bits"
	"time"
)

const (
	// unknownLate is when a call is late if there has been no answer.
	unknownLate = 2 * time.Minute
	// minQuiet bounds when the instance of a late call is silent: after half of that time without a
	// sign of work, but not before minQuiet.
	minQuiet = 600 * time.Millisecond
	// minPatience bounds how long a publish waits for an instance: twice as long as the slowest one
	// took, but not less than minPatience.
	minPatience = time.Second
)

// times holds a duration for each class of requests (classOf). 0 means unknown.
type times [bits.UintSize + 1]time.Duration

// classOf returns the class of a request with this limit of tokens, the limit's bit length.
// Limits of consecutive classes differ by a factor of about two.
func classOf(maxTokens int) int { return bits.Len(uint(maxTokens)) }

// pace records how long the longest answer of each class took.
type pace struct {
	current  times // under the current weights
	previous times // under the last weights before them that answered
}

// learn records an answer.
func (p *pace) learn(took time.Duration, maxTokens int) {
	class := classOf(maxTokens)
	p.current[class] = max(p.current[class], took)
}

// turn starts the times of new weights. If the current weights have answered nothing, the times of the
// weights before them stay.
func (p *pace) turn() {
	if p.current != (times{}) {
		p.previous = p.current
		p.current = times{}
	}
}

// longest returns the longest time that an answer of a class took, or 0.
func (p *pace) longest(class int) time.Duration { return max(p.current[class], p.previous[class]) }

// late returns the time after which a call with this limit of tokens is late: the longest time that an answer
// took, but not less than patience. If its class has no answer, late doubles the time of the nearest smaller class
// for each class between, or else takes the time of the nearest larger one.
func (p *pace) late(maxTokens int, patience time.Duration) time.Duration {
	class := classOf(maxTokens)
	for c := class; c >= 0; c-- {
		if d := p.longest(c); d > 0 {
			const maxDoublings = 20 // keeps the shift from overflowing for any realistic time
			return max(patience, d<<min(class-c, maxDoublings))
		}
	}
	for c := class; c < len(p.current); c++ {
		if d := p.longest(c); d > 0 {
			return max(patience, d)
		}
	}
	return unknownLate
}

// publishes records how long the slowest instance needed to take the weights.
type publishes struct {
	begun    time.Time     // when the last publish began
	current  time.Duration // for the current weights; 0 if no instance has taken them
	previous time.Duration // for the last weights before them that an instance has taken
}

// begin records that a publish begins.
func (p *publishes) begin(now time.Time) {
	p.begun = now
	if p.current > 0 {
		p.previous = p.current
		p.current = 0
	}
}

// took records that an instance has taken the current weights.
func (p *publishes) took(now time.Time) { p.current = max(p.current, now.Sub(p.begun)) }

// patience returns how long a publish waits for an instance if enough others serve, or unknown
// before any instance has taken weights.
func (p *publishes) patience(unknown time.Duration) time.Duration {
	if d := max(p.current, p.previous); d > 0 {
		return max(minPatience, 2*d)
	}
	return unknown
}
