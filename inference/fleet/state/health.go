package state

import (
	"errors"
	"fmt"
)

// ErrStuck is the error of a call that did not return by its deadline.
var ErrStuck = errors.New("call ignored its deadline")

// Health says whether an instance gets work.
type Health int

// The states of an instance. Only a verified publish makes a DEAD or STALE instance
// HEALTHY. DRAINING and RETIRED instances never return to service.
const (
	Healthy  Health = iota // holds the current weights and answers
	Suspect                // failed its last call: gets one request at a time until one succeeds
	Dead                   // failed too often in a row
	Stale                  // not known to hold the current weights
	Draining               // finishes its requests
	Retired                // failed too often, or ignored a deadline; another of its name may join
)

func (h Health) String() string {
	return [...]string{"HEALTHY", "SUSPECT", "DEAD", "STALE", "DRAINING", "RETIRED"}[h]
}

// Event is a change of an instance's state. Err is the cause, if known. An event without ID
// is about the fleet: with Err, too few instances serve; without, enough serve again. If
// Waits is set, Err says what requests wait for, and nothing has changed.
type Event struct {
	ID       string
	From, To Health
	Waits    bool
	Err      error
}

// String returns the event as a line for people to read.
func (e Event) String() string {
	switch {
	case e.ID == "" && e.Err == nil:
		return "fleet: enough instances serve again"
	case e.ID == "":
		return "fleet: " + e.Err.Error()
	case e.From == e.To:
		return fmt.Sprintf("instance %s: still %s: %v", e.ID, e.To, e.Err)
	case e.Err == nil:
		return fmt.Sprintf("instance %s: %s, was %s", e.ID, e.To, e.From)
	}
	return fmt.Sprintf("instance %s: %s, was %s: %v", e.ID, e.To, e.From, e.Err)
}
