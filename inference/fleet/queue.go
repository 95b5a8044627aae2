package fleet

import "github.com/easyrl/easyrl/internal/indexed"

// before is the order of the instances that may get a request now: the one with
// the least outstanding work first and of equals the one that joined first.
func (m *member) before(o *member) bool {
	if m.tokens != o.tokens {
		return m.tokens < o.tokens
	}
	return m.joined < o.joined
}

// least is the first of the instances that may get a request now which is not
// without, or nil. f is locked.
func (f *Fleet) least(without *member) *member {
	var best *member
	for at := range min(f.ready.Len(), 3) { // the first two are among these
		if m := f.ready.At(at); m != without && (best == nil || m.before(best)) {
			best = m
		}
	}
	return best
}

// place puts m where its state and its work say. f is locked.
func (f *Fleet) place(m *member) {
	may := m.serves() && m.hasRoom(f.growth.share, f.cfg.Ahead)
	switch {
	case may && m.at == indexed.Out:
		f.ready.Push(m)
	case may:
		f.ready.Fix(m.at)
	case m.at != indexed.Out:
		f.ready.Remove(m.at)
	}
}

// A prompt's prefix is known by blocks of so many tokens; to compute fewer again
// is cheaper than to wait for the instance that has them.
const prefixBlock = 64

// mostPrefixes bounds each of the two maps of prefixes.
const mostPrefixes = 1 << 15

// prefixes remembers which instance has computed the beginning of a prompt. Once
// the newer map is full the older one is forgotten.
type prefixes struct{ newer, older map[uint64]*member }

// prefixKeys names ids and its beginnings of whole blocks, the shortest first.
func prefixKeys(ids []int32) []uint64 {
	if len(ids) < prefixBlock {
		return nil
	}
	keys := make([]uint64, 0, len(ids)/prefixBlock+1)
	h := uint64(0xcbf29ce484222325) // FNV-1a's, over whole tokens
	for i, id := range ids {
		h = (h ^ uint64(uint32(id))) * 0x100000001b3
		h ^= h >> 29
		if (i+1)%prefixBlock == 0 || i+1 == len(ids) {
			keys = append(keys, h)
		}
	}
	return keys
}

func (p *prefixes) get(key uint64) (*member, bool) {
	if m, ok := p.newer[key]; ok {
		return m, true
	}
	m, ok := p.older[key]
	return m, ok
}

// home is the instance that has the longest beginning which one alone has, or
// nil: what several have, as a system prompt, says nothing.
func (p *prefixes) home(keys []uint64) *member {
	for i := len(keys) - 1; i >= 0; i-- {
		if m, ok := p.get(keys[i]); ok {
			return m
		}
	}
	return nil
}

// note says that m computes the beginnings with keys.
func (p *prefixes) note(keys []uint64, m *member) {
	for _, key := range keys {
		had, ok := p.get(key)
		switch {
		case !ok || (had != nil && !had.serves()):
			p.put(key, m)
		case had != m && had != nil:
			p.put(key, nil)
		}
	}
}

func (p *prefixes) put(key uint64, m *member) {
	if len(p.newer) >= mostPrefixes {
		p.older, p.newer = p.newer, nil
	}
	if p.newer == nil {
		p.newer = map[uint64]*member{}
	}
	p.newer[key] = m
}
