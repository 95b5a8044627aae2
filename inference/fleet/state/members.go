package state

import (
	"slices"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/indexed"
)

// members holds the instances of the fleet and their work. After each change of a member's health,
// capacity or work, place restores ready.
type members struct {
	cfg      *Config
	effects  *Effects
	all      []*member             // in the order of joining
	joined   Handle                // last handle assigned
	ready    indexed.Heap[*member] // exactly those that serve and have room, the least work first
	growth   growth
	serving  int           // members that serve
	capacity int           // of the members that serve
	removed  time.Duration // busy time of members that left
	moved    time.Time     // when a request last started or ended on an instance, or a health changed
}

func newMembers(cfg *Config, effects *Effects) *members {
	return &members{
		cfg: cfg, effects: effects, growth: growth{share: 1},
		ready: indexed.New((*member).before, func(m *member, at int) { m.at = at }),
	}
}

// join adds a STALE member.
func (p *members) join(name string, capacity int, probed bool) *member {
	p.joined++
	m := &member{handle: p.joined, name: name, probed: probed, health: Stale, at: indexed.Out, capacity: capacity}
	p.all = append(p.all, m)
	return m
}

// get returns the member with handle h, or nil.
func (p *members) get(h Handle) *member {
	at, ok := slices.BinarySearchFunc(p.all, h, func(m *member, h Handle) int { return int(m.handle - h) })
	if !ok {
		return nil
	}
	return p.all[at]
}

// named returns the member called name, or nil.
func (p *members) named(name string) *member {
	at := slices.IndexFunc(p.all, func(m *member) bool { return m.name == name })
	if at < 0 {
		return nil
	}
	return p.all[at]
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
	may := m.serves() && m.hasRoom(p.growth.share, p.cfg.Ahead)
	switch {
	case may && m.at == indexed.Out:
		p.ready.Push(m)
	case may:
		p.ready.Fix(m.at)
	case m.at != indexed.Out:
		p.ready.Remove(m.at)
	}
}

// recount updates serving and capacity after m's state changed. served says whether m
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

// least returns the ready member with the least work, other than without, or nil.
func (p *members) least(without *member) *member {
	var best *member
	for at := range min(p.ready.Len(), 3) { // the two with the least work are among these
		if m := p.ready.At(at); m != without && (best == nil || m.before(best)) {
			best = m
		}
	}
	return best
}

// take books r on m.
func (p *members) take(now time.Time, m *member, r *Request) {
	m.take(now, r)
	p.place(m)
	p.moved = now
}

// give releases a request that take booked on m.
func (p *members) give(now time.Time, m *member, r *Request) {
	m.give(now, r)
	p.place(m)
	p.moved = now
	if m.requests == 0 && m.health == Draining {
		p.effects.Idle = append(p.effects.Idle, m.handle)
	}
}

// learn counts the tokens of an answer of m and updates the share of growing responses.
func (p *members) learn(m *member, out []inference.Completion) {
	for i := range out {
		m.generated += int64(len(out[i].IDs))
	}
	if p.growth.add(out) {
		for _, o := range p.all {
			p.place(o)
		}
	}
}
