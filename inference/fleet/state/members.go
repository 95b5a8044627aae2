package state

import (
	"slices"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/indexed"
)

// members holds the instances of the fleet and their work. ready contains exactly the members that
// serve and have room, the least work on top: code that changes a member's health, capacity, rest or
// work must then call place.
type members struct {
	cfg      *Config
	effects  *Effects
	all      []*member             // in the order of joining, so by handle
	joined   Handle                // last handle assigned
	ready    indexed.Heap[*member] // see above
	growth   growth
	serving  int           // number of members that serve
	capacity int           // total capacity of the members that serve
	busyLeft time.Duration // total busy time of members that left
	lastMove time.Time     // when a request last started or ended on a member, or a member's health changed
}

func newMembers(cfg *Config, effects *Effects) *members {
	return &members{
		cfg: cfg, effects: effects, growth: growth{share: 1},
		ready: indexed.New((*member).before, func(m *member, index int) { m.readyIndex = index }),
	}
}

// join adds a STALE member.
func (p *members) join(name string, capacity int, probed bool) *member {
	p.joined++
	m := &member{handle: p.joined, name: name, probed: probed, health: Stale, readyIndex: indexed.Out,
		capacity: capacity}
	p.all = append(p.all, m)
	return m
}

// get returns the member with handle h, or nil.
func (p *members) get(h Handle) *member {
	i, ok := slices.BinarySearchFunc(p.all, h, func(m *member, h Handle) int { return int(m.handle - h) })
	if !ok {
		return nil
	}
	return p.all[i]
}

// named returns the member called name, or nil.
func (p *members) named(name string) *member {
	i := slices.IndexFunc(p.all, func(m *member) bool { return m.name == name })
	if i < 0 {
		return nil
	}
	return p.all[i]
}

// enough reports whether at least MinServing members serve.
func (p *members) enough() bool { return p.serving >= p.cfg.MinServing }

// hasOthers reports whether members other than m serve.
func (p *members) hasOthers(m *member) bool {
	return p.serving > 1 || (p.serving == 1 && !m.serves())
}

// place adds m to the ready heap, moves it there or removes it, according to its health and
// work.
func (p *members) place(m *member) {
	ready := m.serves() && m.hasRoom(p.growth.share, p.cfg.Ahead)
	placed := m.readyIndex != indexed.Out
	switch {
	case ready && !placed:
		p.ready.Push(m)
	case ready:
		p.ready.Fix(m.readyIndex)
	case placed:
		p.ready.Remove(m.readyIndex)
	}
}

// recount updates serving and capacity after m's health changed. served says whether m
// served before.
func (p *members) recount(m *member, served bool) {
	switch {
	case m.serves() && !served:
		p.serving++
		p.capacity += m.capacity
	case !m.serves() && served:
		p.serving--
		p.capacity -= m.capacity
	}
}

// leastBusy returns the ready member other than avoid with the least work, or nil.
func (p *members) leastBusy(avoid *member) *member {
	var best *member
	for i := range min(p.ready.Len(), 3) { // the root of the heap and its children have the two with the least work
		if m := p.ready.At(i); m != avoid && (best == nil || m.before(best)) {
			best = m
		}
	}
	return best
}

// take books r on m.
func (p *members) take(now time.Time, m *member, r *Request) {
	m.take(now, r)
	p.place(m)
	p.lastMove = now
}

// give releases a request that take booked on m.
func (p *members) give(now time.Time, m *member, r *Request) {
	m.give(now, r)
	p.place(m)
	p.lastMove = now
	if m.requests == 0 && m.health == Draining {
		p.effects.Idle = append(p.effects.Idle, m.handle)
	}
}

// learn counts the tokens of an answer of m and updates the share of growing responses, on which the
// room of every member depends.
func (p *members) learn(m *member, out []inference.Completion) {
	for i := range out {
		m.generated += int64(len(out[i].IDs))
	}
	if p.growth.add(out) {
		for _, other := range p.all {
			p.place(other)
		}
	}
}
