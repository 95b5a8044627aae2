package simulate

import (
	"sync"
	"time"

	"github.com/easyrl/easyrl/internal/indexed"
)

// Clock provides time and a single shared timer to many instances. It uses package time, so it is
// virtual inside the testing/synctest bubble that created it. It needs no Close, because its timer
// runs only while an alarm is set. Its methods may be called concurrently.
type Clock struct {
	start time.Time

	mu     sync.Mutex
	alarms indexed.Heap[*alarm] // earliest on top
	timer  *time.Timer          // nil until the first alarm
	firing bool                 // run is firing alarms and will arm the timer when done
}

// NewClock returns a clock that starts now.
func NewClock() *Clock {
	earlier := func(a, b *alarm) bool { return a.at < b.at }
	return &Clock{start: time.Now(), alarms: indexed.New(earlier, func(a *alarm, index int) { a.index = index })}
}

// alarm calls fire at a given time. A clock fires its alarms one at a time, without holding its
// lock, so fire may call set and stop. The clock's lock guards at and index.
type alarm struct {
	at    time.Duration // on the clock
	index int           // position in Clock.alarms, or unset
	fire  func()
}

// unset is the index of an alarm that is not set.
const unset = indexed.Out

// now returns the time since the clock's start.
func (c *Clock) now() time.Duration { return time.Since(c.start) }

// set schedules a to fire once at the given time, which may have passed. It replaces an earlier
// setting of a that has not begun to fire.
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

// stop cancels a unless it has begun to fire.
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
