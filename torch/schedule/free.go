package schedule

import "slices"

// queue is the plan of replicas that work independently. A micro-batch goes to the replica
// with the fewest tokens in flight.
//
// A replica gets its Backwards in the order of its Forwards, even if a later derivative is known first.
// It sums gradients in that order, so a repeated step, in which all derivatives are known, has the same
// bits.
type queue struct {
	depth  int // micro-batches in flight on a replica
	byID   map[int64]*item
	items  []*item // of the step, in order
	unsent []*item
	begun  []*item // their Forward was sent, their Backward was not; in order
	passed int

	// of each replica
	inFlight []int // micro-batches
	load     []int // tokens in flight
	total    []int // tokens in this step
}

func (q *queue) Add(id int64, tokens int) {
	it := &item{id: id, tokens: tokens, replica: -1}
	q.byID[id] = it
	q.items = append(q.items, it)
	q.unsent = append(q.unsent, it)
}

func (q *queue) Room() bool { return len(q.unsent) == 0 }

func (q *queue) Derived(id int64) { q.byID[id].derived = true }

func (q *queue) Passed(replica int, id int64) {
	q.passed++
	q.inFlight[replica]--
	q.load[replica] -= q.byID[id].tokens
}

func (q *queue) Due(Outlook) []Message {
	out := q.backwards(nil)
	q.unsent = slices.DeleteFunc(q.unsent, func(it *item) bool {
		if it.replica < 0 {
			it.replica = q.choose()
		}
		r := it.replica
		if r < 0 || q.inFlight[r] == q.depth {
			return false
		}
		q.inFlight[r]++
		q.load[r] += it.tokens
		q.total[r] += it.tokens
		out = append(out, Message{r, Forward, it.id})
		q.begun = append(q.begun, it)
		if it.derived {
			out = q.backwards(out)
		}
		return true
	})
	return out
}

// backwards appends the Backwards that are due to out.
func (q *queue) backwards(out []Message) []Message {
	waits := make([]bool, len(q.inFlight)) // replicas with an earlier micro-batch that is not derived
	q.begun = slices.DeleteFunc(q.begun, func(it *item) bool {
		if !it.derived || waits[it.replica] {
			waits[it.replica] = true
			return false
		}
		out = append(out, Message{it.replica, Backward, it.id})
		return true
	})
	return out
}

// choose returns the replica with the fewest tokens in flight, and of several the one with
// the fewest in the step. It returns -1 if all have enough.
func (q *queue) choose() int {
	best := -1
	for r, n := range q.inFlight {
		switch {
		case n == q.depth:
		case best < 0, q.load[r] < q.load[best], q.load[r] == q.load[best] && q.total[r] < q.total[best]:
			best = r
		}
	}
	return best
}

func (q *queue) Idle() bool { return q.passed == len(q.items) }

func (q *queue) Restart() {
	q.unsent = slices.Clone(q.items)
	q.begun = nil
	q.passed = 0
	clear(q.inFlight)
	clear(q.load)
	clear(q.total)
}
