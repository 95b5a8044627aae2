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
	Dead                   // failed Config.DeadAfter times in a row, or was silent
	Stale                  // not known to hold the current weights
	Draining               // finishes its requests and gets no more
	Retired                // failed more than Config.MaxRestarts times, or ignored a deadline; may be replaced
)

func (h Health) String() string {
	return [...]string{"HEALTHY", "SUSPECT", "DEAD", "STALE", "DRAINING", "RETIRED"}[h]
}

// Event is a change of an instance's state. Err is the cause, if known. If From equals To, the
// instance has failed again in the same state. An event without an ID is about the fleet: if Err is
// set, too few instances serve; otherwise enough serve again. If Waits is set, nothing has changed
// and Err says what requests wait for.
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
