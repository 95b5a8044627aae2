package simulate

import (
	"container/heap"
	"sync"
	"time"
)

// Clock is the time of many instances and the one timer that they share. It
// runs on package time, so that it is virtual inside a testing/synctest bubble
// in which it was made. It needs no Close: without alarms it holds no timer.
type Clock struct {
	start time.Time

	mu     sync.Mutex
	alarms alarms
	timer  *time.Timer
	firing bool // alarms; arms the timer at its end
}

// NewClock returns a clock that starts now.
func NewClock() *Clock { return &Clock{start: time.Now()} }

// alarm calls fire, from one goroutine for all of the clock's, at a time.
type alarm struct {
	at    time.Duration
	index int // in the heap, or unset
	fire  func()
}

const unset = -1

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
		heap.Push(&c.alarms, a)
	case a.at != at:
		a.at = at
		heap.Fix(&c.alarms, a.index)
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
		heap.Remove(&c.alarms, a.index)
		c.arm()
	}
}

// arm sets the timer to the first alarm. c is locked.
func (c *Clock) arm() {
	switch {
	case c.firing:
	case len(c.alarms) == 0:
		if c.timer != nil {
			c.timer.Stop()
		}
	case c.timer == nil:
		c.timer = time.AfterFunc(c.alarms[0].at-c.now(), c.run)
	default:
		c.timer.Reset(c.alarms[0].at - c.now())
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
	for len(c.alarms) > 0 && c.alarms[0].at <= c.now() {
		a := heap.Pop(&c.alarms).(*alarm)
		c.mu.Unlock()
		a.fire()
		c.mu.Lock()
	}
	c.firing = false
	c.arm()
}

// alarms is a heap, the first alarm on top.
type alarms []*alarm

func (h alarms) Len() int           { return len(h) }
func (h alarms) Less(i, j int) bool { return h[i].at < h[j].at }
func (h alarms) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *alarms) Push(x any) {
	a := x.(*alarm)
	a.index = len(*h)
	*h = append(*h, a)
}

func (h *alarms) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.index = unset
	return a
}
