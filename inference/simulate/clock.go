package simulate

import (
	"sync"
	"time"

	"github.com/easyrl/easyrl/internal/indexed"
)

// Clock provides time and a single shared timer to many instances. It uses
// package time, so it is virtual inside the testing/synctest bubble that created
// it. It needs no Close: without alarms it holds no timer.
type Clock struct {
	start time.Time

	mu     sync.Mutex
	alarms indexed.Heap[*alarm] // earliest on top
	timer  *time.Timer
	firing bool // run is firing alarms and will arm the timer when done
}

// NewClock returns a clock that starts now.
func NewClock() *Clock {
	earlier := func(a, b *alarm) bool { return a.at < b.at }
	return &Clock{start: time.Now(), alarms: indexed.New(earlier, func(a *alarm, at int) { a.index = at })}
}

// alarm calls fire at a given time. A clock fires its alarms one at a time.
type alarm struct {
	at    time.Duration
	index int // in the heap, or unset
	fire  func()
}

const unset = indexed.Out

// now returns the time since the clock's start.
func (c *Clock) now() time.Duration { return time.Since(c.start) }

// set schedules a to fire once at the given time, which may have passed. It
// replaces an earlier setting, unless the alarm is firing right now.
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

// stop cancels a.
func (c *Clock) stop(a *alarm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.index != unset {
		c.alarms.Remove(a.index)
		c.arm()
	}
}

// arm sets the timer to the earliest alarm. The caller holds c.mu.
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

// run fires all due alarms.
func (c *Clock) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.firing {
		return // the running call fires them
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
