package state

import (
	"encoding/binary"
	"slices"

	"github.com/zeebo/xxh3"
)

// prefixBlock is the number of tokens in a block, the unit in which prefixes are compared.
// Recomputing fewer tokens costs less than waiting for the instance that has computed them.
const prefixBlock = 64

// maxPrefixes is the maximum size of each of the two maps of prefixes.
const maxPrefixes = 1 << 15

// prefixes records which member has computed which prefix of prompts, by key; nil means several.
// When newer is full, it replaces older, so that the prefixes noted longest ago are forgotten.
type prefixes struct{ newer, older map[uint64]*member }

// prefixKeys returns a key for each prefix of ids that consists of complete blocks, shortest
// first, and one for all of ids if they end within a block. It returns nil for less than a block.
func prefixKeys(ids []int32) []uint64 {
	if len(ids) < prefixBlock {
		return nil
	}
	keys := make([]uint64, 0, len(ids)/prefixBlock+1)
	var data [4 * prefixBlock]byte
	key := uint64(0)
	for block := range slices.Chunk(ids, prefixBlock) {
		for i, id := range block {
			binary.LittleEndian.PutUint32(data[4*i:], uint32(id))
		}
		clear(data[4*len(block):])
		// The seed chains the blocks, and distinguishes a short block from one that ends in zeros.
		key = xxh3.HashSeed(data[:], key+uint64(len(block)))
		keys = append(keys, key)
	}
	return keys
}

// get returns the member noted for key, and whether there is an entry.
func (p *prefixes) get(key uint64) (*member, bool) {
	if m, ok := p.newer[key]; ok {
		return m, true
	}
	m, ok := p.older[key]
	return m, ok
}

// home returns the only member that has computed the longest known prefix, or nil. A prefix that
// several members have, such as a system prompt, has no home.
func (p *prefixes) home(keys []uint64) *member {
	for i := len(keys) - 1; i >= 0; i-- {
		if m, ok := p.get(keys[i]); ok {
			return m
		}
	}
	return nil
}

// note records that m computes the prefixes with keys.
func (p *prefixes) note(keys []uint64, m *member) {
	for _, key := range keys {
		home, ok := p.get(key)
		switch {
		case !ok || (home != nil && !home.serves()):
			p.put(key, m)
		case home != m && home != nil:
			p.put(key, nil)
		}
	}
}

// put sets the entry of key.
func (p *prefixes) put(key uint64, m *member) {
	if len(p.newer) >= maxPrefixes {
		p.older = p.newer
		p.newer = nil
	}
	if p.newer == nil {
		p.newer = map[uint64]*member{}
	}
	p.newer[key] = m
}
