package state

import (
	"time"

	"github.com/easyrl/easyrl/inference"
)

// Handle identifies a member of the fleet. An instance that leaves and rejoins gets a new
// handle. Handles grow in the order in which instances join; 0 is no instance.
type Handle int64

// Effects lists what the caller must do after an event.
type Effects struct {
	Events   []Event   // to report
	Grants   []Grant   // requests to send to their instances
	Refusals []Refusal // requests that left the queue without an instance
	Orders   []Order   // publishes to start
	Probes   []Probe   // probes to start
	Idle     []Handle  // draining instances that have no request left
}

// reset empties e and keeps its memory.
func (e *Effects) reset() {
	e.Events, e.Grants, e.Refusals = e.Events[:0], e.Grants[:0], e.Refusals[:0]
	e.Orders, e.Probes, e.Idle = e.Orders[:0], e.Probes[:0], e.Idle[:0]
}

// Grant books a request on an instance. Machine.Settle ends it, or Machine.Leave if the
// caller does not send it.
type Grant struct {
	Request  *Request
	Instance Handle
	Version  int64  // of the weights that must answer
	Checksum string // of those weights
	epoch    int64  // of the publish that gave the instance these weights
	try      int    // of the request
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
	Err         error // ErrStuck for a call that did not return in time
	Abandoned   bool  // the caller ended the call
}

// Order asks for a publish of the current weights to an instance. Machine.Published ends
// it.
type Order struct {
	Instance   Handle
	Version    int64 // 0 if the fleet has no weights yet
	generation int64
	probed     bool // a probe has just succeeded
	m          *member
}

// Publication is the result of an Order.
type Publication struct {
	Checksum  string // of the weights
	Reported  string // by the instance
	Capacity  int    // of the instance
	Err       error  // ErrStuck for a publish that did not return in time
	Abandoned bool   // the caller ended the publish
}

// Probe asks the caller to probe an instance as long as Machine.Mending reports true. After
// a successful probe the caller calls Machine.Probed.
type Probe struct {
	Instance   Handle
	generation int64
	m          *member
}

// Next says how a request continues after one of its calls.
type Next int

// The ways in which a request continues.
const (
	Pending   Next = iota // the request's other call decides, or has decided
	Answered              // the call's completions are the answer
	Cancelled             // the caller left
	Failed                // the request ends with the verdict's error
	Retry                 // enqueue the request again after the Pause
)

// Verdict is the machine's decision on a request after one of its calls.
type Verdict struct {
	Next  Next
	Pause time.Duration // of Retry
	Err   error         // of Failed, or why to retry
}
