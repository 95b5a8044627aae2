package schedule

import "slices"

// queue is the plan of replicas that work independently. A micro-batch goes to the replica
// with the fewest tokens in flight.
//
// A replica gets its Backwards in the order of its Forwards, even if a later derivative is known first.
// It sums gradients in that order, so a repeated step, in which all derivatives are known, has the same
// bits.
type queue struct {
	depth  int // max. micro-batches in flight on a replica
	byID   map[int64]*item
	items  []*item // all micro-batches of the step, in the order of Add
	unsent []*item // micro-batches whose Forward was not sent, in the order of Add
	begun  []*item // micro-batches whose Forward was sent and whose Backward was not, in the order of Forward
	passed int     // number of micro-batches that have passed

	// By replica.
	inFlight []int // micro-batches in flight
	load     []int // tokens in flight
	total    []int // tokens sent in this step
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
	blocked := make([]bool, len(q.inFlight)) // by replica: whether an earlier micro-batch is not derived
	q.begun = slices.DeleteFunc(q.begun, func(it *item) bool {
		if !it.derived || blocked[it.replica] {
			blocked[it.replica] = true
			return false
		}
		out = append(out, Message{it.replica, Backward, it.id})
		return true
	})
	return out
}

// choose returns the replica with the fewest tokens in flight; among equals, the one with the fewest in
// this step. It returns -1 if every replica has depth micro-batches in flight.
func (q *queue) choose() int {
	less := func(a, b int) bool {
		return q.load[a] < q.load[b] || (q.load[a] == q.load[b] && q.total[a] < q.total[b])
	}
	best := -1
	for r, n := range q.inFlight {
		if n < q.depth && (best < 0 || less(r, best)) {
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
