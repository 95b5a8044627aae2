package state

import (
	"time"

	"github.com/easyrl/easyrl/inference"
)

// Handle identifies a member of the fleet. An instance that leaves and rejoins gets a new
// handle. Handles increase in the order in which instances join; 0 is no instance.
type Handle int64

// Effects lists what the caller must do after calls of a Machine's methods.
type Effects struct {
	Events   []Event   // changes to report
	Grants   []Grant   // requests to send to their instances
	Refusals []Refusal // requests that left the queue without an instance
	Orders   []Order   // publishes to start
	Probes   []Probe   // probes to start
	Rests    []Rest    // rests to time
	Idle     []Handle  // draining or removed instances whose last request has ended
}

// reset empties e and keeps its memory.
func (e *Effects) reset() {
	e.Events, e.Grants, e.Refusals = e.Events[:0], e.Grants[:0], e.Refusals[:0]
	e.Orders, e.Probes, e.Rests, e.Idle = e.Orders[:0], e.Probes[:0], e.Rests[:0], e.Idle[:0]
}

// Grant assigns a request to an instance. Machine.Settle ends it, or Machine.Leave if the
// caller does not send it.
type Grant struct {
	Request  *Request
	Instance Handle
	Version  int64     // version of the weights that must answer
	Checksum string    // checksum of those weights
	epoch    int64     // m's epoch at the time of the grant
	try      int       // number of the request's try, from 1
	since    time.Time // time of the grant
	m        *member
}

// Refusal removes a request from the queue with an error.
type Refusal struct {
	Request *Request
	Err     error
}

// Outcome is the result of a granted call.
type Outcome struct {
	Completions []inference.Completion
	Err         error // wraps ErrStuck if the call did not return in time
	Abandoned   bool  // the request's caller no longer wants the result
}

// Order asks for a publish of the current weights to an instance. Machine.Published ends
// it.
type Order struct {
	Instance   Handle
	Version    int64 // version of the weights; 0 if the fleet has none yet
	generation int64 // the supervisor's generation at the time of the order
	probed     bool  // the order follows a successful probe
	m          *member
}

// Publication is the result of an Order.
type Publication struct {
	Checksum  string // checksum of the published weights
	Reported  string // checksum that the instance reports
	Capacity  int    // the instance's capacity after the publish
	Err       error  // wraps ErrStuck if the publish did not return in time
	Abandoned bool   // the publish's caller no longer wants the result
}

// Probe asks the caller to probe an instance that does not serve repeatedly, while
// Machine.KeepProbing reports true. After a successful probe the caller calls Machine.Probed.
type Probe struct {
	Instance   Handle
	generation int64 // the supervisor's generation at the time of the request
	m          *member
}

// Rest asks the caller to call Machine.Rested after For. The instance gets no requests meanwhile.
type Rest struct {
	Instance Handle
	For      time.Duration
}

// Next says how a request continues after its call.
type Next int

// The ways in which a request continues.
const (
	Answered  Next = iota // the call's completions are the answer
	Cancelled             // the answer is no longer wanted
	Failed                // the request ends with Verdict.Err
	Retry                 // enqueue the request again after Verdict.Pause
)

// Verdict is the machine's decision on a request after its call.
type Verdict struct {
	Next  Next
	Pause time.Duration // how long to wait before a Retry
	Err   error         // why the request failed or is tried again; nil if it is answered or cancelled
}
