package schedule

import "slices"

// rounds is the plan of replicas that hold shards of one model: all receive the same
// sequence of messages. A round is one micro-batch a replica. Replicas without work receive
// an empty one.
type rounds struct {
	replicas int
	depth    int // rounds in flight
	byID     map[int64]*item
	waiting  []*item // not yet in a round
	rounds   []*round
	begun    int   // rounds whose Forward was sent
	ended    int   // rounds whose Backward was sent
	passed   []int // rounds that each replica has passed
}

// round has an item for each of the first replicas, and none for the others.
type round struct{ items []*item }

// id returns the ID of a replica's micro-batch in round n.
func (r *round) id(n, replica int) int64 {
	if replica < len(r.items) {
		return r.items[replica].id
	}
	return int64(-1 - n)
}

// derived reports whether the derivatives of all items are known.
func (r *round) derived() bool {
	for _, it := range r.items {
		if !it.derived {
			return false
		}
	}
	return true
}

func (p *rounds) Add(id int64, tokens int) {
	it := &item{id: id, tokens: tokens}
	p.byID[id] = it
	p.waiting = append(p.waiting, it)
}

func (p *rounds) Room() bool { return len(p.waiting) < p.replicas }

func (p *rounds) Derived(id int64) { p.byID[id].derived = true }

func (p *rounds) Passed(replica int, _ int64) { p.passed[replica]++ }

// done returns the number of rounds that all replicas have passed.
func (p *rounds) done() int { return slices.Min(p.passed) }

func (p *rounds) Due(next Outlook) []Message {
	var out []Message
	for {
		switch {
		case p.ended < p.begun && p.rounds[p.ended].derived():
			out = p.send(out, p.ended, Backward)
			p.ended++
		case p.begun-p.done() < p.depth && p.form(next):
			out = p.send(out, p.begun, Forward)
			p.begun++
		default:
			return out
		}
	}
}

// send appends the messages of a round to all replicas.
func (p *rounds) send(out []Message, n int, kind Kind) []Message {
	for replica := range p.replicas {
		out = append(out, Message{replica, kind, p.rounds[n].id(n, replica)})
	}
	return out
}

// form makes sure that there is a round to begin, from waiting micro-batches. It makes an
// incomplete one if no micro-batch follows, or if replicas have nothing else to do until one
// follows.
func (p *rounds) form(next Outlook) bool {
	if p.begun < len(p.rounds) {
		return true
	}
	n := min(len(p.waiting), p.replicas)
	if n == 0 || n < p.replicas && (next == More || next == Later && p.begun > p.done()) {
		return false
	}
	p.rounds = append(p.rounds, &round{p.waiting[:n:n]})
	p.waiting = p.waiting[n:]
	return true
}

func (p *rounds) Idle() bool { return len(p.waiting) == 0 && p.done() == len(p.rounds) }

func (p *rounds) Restart() {
	p.begun, p.ended = 0, 0
	clear(p.passed)
}
