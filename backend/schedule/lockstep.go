package schedule

import "slices"

// rounds is the plan of replicas that hold shards of one model: all receive the same
// sequence of messages. A round gives each replica one micro-batch, which is empty for replicas without
// work.
type rounds struct {
	replicas int
	depth    int // max. rounds in flight
	byID     map[int64]*item
	waiting  []*item  // micro-batches in no round yet, in the order of Add
	rounds   []*round // all rounds of the step
	begun    int      // number of rounds whose Forward was sent
	ended    int      // number of rounds whose Backward was sent
	passed   []int    // by replica: number of rounds that it has passed
}

// round has an item for each of the first replicas. The other replicas get an empty micro-batch.
type round struct{ items []*item }

// id returns the ID of a replica's micro-batch in the round with index n. That of an empty one is below 0.
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

// form reports whether there is a round to begin, and makes one from waiting micro-batches if needed. A
// round is incomplete only if no micro-batch follows in this step, or if one follows later and replicas
// have nothing else to do until then.
func (p *rounds) form(next Outlook) bool {
	if p.begun < len(p.rounds) { // after Restart
		return true
	}
	busy := p.begun > p.done()
	waitForMore := next == More || (next == Later && busy)
	n := min(len(p.waiting), p.replicas)
	if n == 0 || (n < p.replicas && waitForMore) {
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
