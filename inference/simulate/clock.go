package simulate

import (
	"sync"
	"time"

	"github.com/easyrl/easyrl/internal/indexed"
)

// Clock is the time of many instances and the one timer that they share. It
// runs on package time, so that it is virtual inside a testing/synctest bubble
// in which it was made. It needs no Close: without alarms it holds no timer.
type Clock struct {
	start time.Time

	mu     sync.Mutex
	alarms indexed.Heap[*alarm] // the first on top
	timer  *time.Timer
	firing bool // alarms; arms the timer at its end
}

// NewClock returns a clock that starts now.
func NewClock() *Clock {
	earlier := func(a, b *alarm) bool { return a.at < b.at }
	return &Clock{start: time.Now(), alarms: indexed.New(earlier, func(a *alarm, at int) { a.index = at })}
}

// alarm calls fire, from one goroutine for all of the clock's, at a time.
type alarm struct {
	at    time.Duration
	index int // in the heap, or unset
	fire  func()
}

const unset = indexed.Out

// now is the time since the clock's start.
func (c *Clock) now() time.Duration { return time.Since(c.start) }

// set makes a fire once, at a time that may have passed. What it was set to
// before is void, unless it fires at this moment.
func (c *Clock) set(a *alarm, at time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case a.index == unset:
		a.at = at
		c.alarms.Push(a)
	case a.at != at:
		a.at = at
		c.alarms.Fix(a.index)
	default:
		return
	}
	if a.index == 0 {
		c.arm()
	}
}

// stop makes a not fire.
func (c *Clock) stop(a *alarm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.index != unset {
		c.alarms.Remove(a.index)
		c.arm()
	}
}

// arm sets the timer to the first alarm. c is locked.
func (c *Clock) arm() {
	switch {
	case c.firing:
	case c.alarms.Len() == 0:
		if c.timer != nil {
			c.timer.Stop()
		}
	case c.timer == nil:
		c.timer = time.AfterFunc(c.alarms.At(0).at-c.now(), c.run)
	default:
		c.timer.Reset(c.alarms.At(0).at - c.now())
	}
}

// run fires all alarms that are due.
func (c *Clock) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.firing {
		return // that call finds what is due
	}
	c.firing = true
	for c.alarms.Len() > 0 && c.alarms.At(0).at <= c.now() {
		a := c.alarms.Pop()
		c.mu.Unlock()
		a.fire()
		c.mu.Lock()
	}
	c.firing = false
	c.arm()
}
