package state

import (
	"encoding/binary"
	"slices"

	"github.com/zeebo/xxh3"
)

// prefixBlock is the number of tokens by which prefixes are compared. Recomputing fewer
// costs less than waiting for the instance that has them.
const prefixBlock = 64

// mostPrefixes bounds the size of each of the two maps of prefixes.
const mostPrefixes = 1 << 15

// prefixes records which instance has computed which prefix of prompts. When newer is full,
// older is dropped and newer takes its place.
type prefixes struct{ newer, older map[uint64]*member }

// prefixKeys returns a key for each prefix of ids that consists of whole blocks, shortest
// first, and one for all of ids.
func prefixKeys(ids []int32) []uint64 {
	if len(ids) < prefixBlock {
		return nil
	}
	keys := make([]uint64, 0, len(ids)/prefixBlock+1)
	var block [4 * prefixBlock]byte // XXH3 is fastest on a whole block
	key := uint64(0)
	for part := range slices.Chunk(ids, prefixBlock) {
		for i, id := range part {
			binary.LittleEndian.PutUint32(block[4*i:], uint32(id))
		}
		clear(block[4*len(part):])
		key = xxh3.HashSeed(block[:], key+uint64(len(part)))
		keys = append(keys, key)
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

// home returns the only instance that has computed the longest known prefix, or nil. A
// prefix that several instances have, such as a system prompt, has no home.
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
