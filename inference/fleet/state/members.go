package state

import (
	"math"
	"slices"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/indexed"
)

// members are the instances of the fleet and their work.
type members struct {
	cfg      *Config
	effects  *Effects
	all      []*member // in the order they joined
	joined   Handle    // the last one given
	ready    indexed.Heap[*member]
	growth   growth
	serving  int           // members that serve
	capacity int           // of those
	removed  time.Duration // busy time of the members that left
	moved    time.Time     // when a request last got an instance or left it, or a state changed
}

func newMembers(cfg *Config, effects *Effects) *members {
	return &members{
		cfg: cfg, effects: effects, growth: growth{share: 1},
		ready: indexed.New((*member).before, func(m *member, at int) { m.at = at }),
	}
}

// join adds a STALE instance.
func (p *members) join(name string, capacity int, probed bool) *member {
	p.joined++
	m := &member{handle: p.joined, name: name, probed: probed, health: Stale, at: indexed.Out, capacity: capacity}
	p.all = append(p.all, m)
	return m
}

// get is the member that h names, or nil.
func (p *members) get(h Handle) *member {
	at, ok := slices.BinarySearchFunc(p.all, h, func(m *member, h Handle) int { return int(m.handle - h) })
	if !ok {
		return nil
	}
	return p.all[at]
}

// named is the member of a name, or nil.
func (p *members) named(name string) *member {
	at := slices.IndexFunc(p.all, func(m *member) bool { return m.name == name })
	if at < 0 {
		return nil
	}
	return p.all[at]
}

// enough reports whether as many members serve as requests need.
func (p *members) enough() bool { return p.serving >= p.cfg.MinServing }

// hasOthers reports whether members other than m serve.
func (p *members) hasOthers(m *member) bool {
	return p.serving > 1 || (p.serving == 1 && !m.serves())
}

// place puts m where its health and its work say.
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

// recount keeps serving and capacity when m, which served or not, changes state.
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

// least is the ready member with the least work that is not without, or nil.
func (p *members) least(without *member) *member {
	var best *member
	for at := range min(p.ready.Len(), 3) { // the first two are among these
		if m := p.ready.At(at); m != without && (best == nil || m.before(best)) {
			best = m
		}
	}
	return best
}

// take books r on m, and give takes it off again.
func (p *members) take(now time.Time, m *member, r *Request) {
	m.take(now, r)
	p.place(m)
	p.moved = now
}

func (p *members) give(now time.Time, m *member, r *Request) {
	m.give(now, r)
	p.place(m)
	p.moved = now
	if m.requests == 0 && m.health == Draining {
		p.effects.Idle = append(p.effects.Idle, m.handle)
	}
}

// learn draws from an answer of m what dispatch goes by.
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

// targetInFlight is Machine.TargetInFlight.
func (p *members) targetInFlight(responses int) int {
	given := (1 + p.cfg.Ahead) / p.growth.share
	return int(math.Ceil((given+1)*float64(p.capacity)/float64(responses))) + 2*p.serving
}
