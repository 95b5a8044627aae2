// Package lease says which trainer an instance takes weights from: one at a time,
// for as long as it is heard of.
package lease

import (
	"fmt"
	"sync"
	"time"
)

// Time is how long a trainer that is not heard of keeps an instance.
const Time = time.Minute

// Lease is a place for one trainer. Its zero value is free. It is safe for
// concurrent use.
type Lease struct {
	mu    sync.Mutex
	id    string // empty where the place is free
	name  string
	heard time.Time
}

// Take gives the place to trainer id, or lets it keep it; name is what people know
// it by. The error says who else has the place.
func (l *Lease) Take(id, name string, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(id, now); err != nil {
		return err
	}
	l.id, l.name, l.heard = id, name, now
	return nil
}

// Check is an error where another than trainer id has the place; an empty id is
// nobody's.
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
	return fmt.Errorf("it serves %.120q, heard of %v ago, expected no other trainer: take it out of that run, or end the run; one that is gone is forgotten after %v",
		l.name, silent.Truncate(time.Second), Time)
}

// Free ends trainer id's.
func (l *Lease) Free(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.id == id {
		l.id, l.name = "", ""
	}
}

// Holder is the name of who has the place, empty where it is free.
func (l *Lease) Holder(now time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.id == "" || now.Sub(l.heard) >= Time {
		return ""
	}
	return l.name
}
