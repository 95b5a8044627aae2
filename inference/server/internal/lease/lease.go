// Package lease reserves an instance for one trainer at a time, as long as that trainer
// keeps in touch.
package lease

import (
	"fmt"
	"sync"
	"time"
)

const (
	// Time is how long a silent trainer keeps its lease.
	Time = time.Minute
	// MaxName is the maximum length of a trainer's ID and name, in bytes.
	MaxName = 4 << 10
)

// Lease is held by at most one trainer. Its zero value is free. It is safe for concurrent
// use.
type Lease struct {
	mu    sync.Mutex
	id    string // of the holder; empty if free
	name  string
	heard time.Time
}

// Take acquires or renews the lease for trainer id; name is for people to read. The error
// names another holder.
func (l *Lease) Take(id, name string, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(id, now); err != nil {
		return err
	}
	l.id, l.name, l.heard = id, name, now
	return nil
}

// Check returns an error if a trainer other than id holds the lease. An empty id matches
// no holder.
func (l *Lease) Check(id string, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.check(id, now)
}

func (l *Lease) check(id string, now time.Time) error {
	silent := now.Sub(l.heard)
	if l.id == "" || l.id == id || silent >= Time {
		return nil
	}
	return fmt.Errorf("instance is held by trainer %.120q, last heard from %v ago. Remove the instance from that run or end the run; a silent trainer loses it after %v",
		l.name, silent.Truncate(time.Second), Time)
}

// Free releases the lease if trainer id holds it.
func (l *Lease) Free(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.id == id {
		l.id, l.name = "", ""
	}
}

// Holder returns the name of the holder, or "" if the lease is free.
func (l *Lease) Holder(now time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.id == "" || now.Sub(l.heard) >= Time {
		return ""
	}
	return l.name
}
