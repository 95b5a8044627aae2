// Package schedule decides which replica of a model computes which micro-batch of an
// optimizer step: a state machine without goroutines, locks, clocks or I/O.
//
// A micro-batch takes two messages. The first orders its log-probabilities, the second its
// gradients, once the loss's derivative is known. With two micro-batches in flight, a replica
// computes one while the trainer evaluates the loss of the other.
package schedule

// Depth is the depth of a plan (see New) with which a replica without pipeline stages always has work.
const Depth = 2

// Kind is the kind of a message.
type Kind int

// The two messages of a micro-batch.
const (
	Forward Kind = iota
	Backward
)

// Message is an order to a replica.
type Message struct {
	Replica int
	Kind    Kind
	ID      int64 // ID of the micro-batch; below 0 if it is empty
}

// Outlook says whether micro-batches follow those added so far.
type Outlook int

// The outlooks.
const (
	More  Outlook = iota // others follow at once
	Later                // others may follow after a while
	None                 // none follows in this step
)

// Plan is the work of one optimizer step. The caller sends its messages in order, and a replica
// answers its messages in order.
type Plan interface {
	// Add adds a micro-batch. Its ID is above 0 and new.
	Add(id int64, tokens int)
	// Room reports whether the caller should add another micro-batch now, rather than wait for replicas.
	Room() bool
	// Derived records that the loss's derivative for a micro-batch is known, so that its Backward can be sent.
	Derived(id int64)
	// Passed records that a replica has answered the Backward of a micro-batch, which may be empty.
	Passed(replica int, id int64)
	// Due returns the messages to send now, and counts them as sent.
	Due(next Outlook) []Message
	// Idle reports whether all micro-batches have passed.
	Idle() bool
	// Restart begins the step again with new replicas. Each micro-batch that was sent before goes to
	// the same replica, and a replica gets the messages of each kind in the same order. Derivatives
	// remain known.
	Restart()
}

// New returns the plan of a step with up to depth micro-batches in flight on a replica. In lockstep
// all replicas receive the same sequence of messages; otherwise each one receives work as it
// finishes its own.
func New(replicas, depth int, lockstep bool) Plan {
	if lockstep {
		return &rounds{replicas: replicas, depth: depth, byID: map[int64]*item{}, passed: make([]int, replicas)}
	}
	return &queue{depth: depth, byID: map[int64]*item{}, inFlight: make([]int, replicas), load: make([]int, replicas),
		total: make([]int, replicas)}
}

// item is a micro-batch.
type item struct {
	id      int64
	tokens  int
	replica int // -1 before it is sent for the first time; unused in rounds
	derived bool
}
