package state

// prefixBlock is the number of tokens by which prompts' prefixes are compared.
// Computing fewer again is cheaper than waiting for the instance that has them.
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

// home is the only instance that has computed the longest known beginning, or
// nil. A beginning that several have, like a system prompt, binds to none.
func (p *prefixes) home(keys []uint64) *member {
	for i := len(keys) - 1; i >= 0; i-- {
		if m, ok := p.get(keys[i]); ok {
			return m
		}
	}
	return nil
}

// note records that m computes the beginnings with keys.
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
