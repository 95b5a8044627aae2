package server

import (
	"fmt"
	"sync"
	"time"
)

// leaseTime is how long a silent trainer keeps its lease.
const leaseTime = time.Minute

// lease reserves the server for one trainer at a time. Its zero value is free. It is safe for
// concurrent use.
type lease struct {
	mu    sync.Mutex // guards the fields below
	id    string     // the holder's ID; empty if free
	name  string     // the holder's name, for people to read
	heard time.Time  // when the holder last took or renewed the lease
}

// take acquires or renews the lease for trainer id. It returns an error that names the holder if
// another trainer holds it.
func (l *lease) take(id, name string, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.checkLocked(id, now); err != nil {
		return err
	}
	l.id, l.name, l.heard = id, name, now
	return nil
}

// check returns an error if a trainer other than id holds the lease. No trainer has an empty id.
func (l *lease) check(id string, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.checkLocked(id, now)
}

// checkLocked is check with mu held.
func (l *lease) checkLocked(id string, now time.Time) error {
	silent := now.Sub(l.heard)
	if l.id == "" || l.id == id || silent >= leaseTime {
		return nil
	}
	return fmt.Errorf("instance is held by trainer %.120q, last heard from %v ago. "+
		"Remove the instance from that run or end the run; a silent trainer loses it after %v",
		l.name, silent.Truncate(time.Second), leaseTime)
}

// free releases the lease if trainer id holds it.
func (l *lease) free(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.id == id {
		l.id, l.name = "", ""
	}
}

// holder returns the name of the holder, or "" if the lease is free.
func (l *lease) holder(now time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.id == "" || now.Sub(l.heard) >= leaseTime {
		return ""
	}
	return l.name
}
