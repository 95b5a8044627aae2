package bpe

import (
	"hash/maphash"
	"sync/atomic"
)

const (
	cacheSlots    = 1 << 15
	maxCachedWord = 64 // bytes
)

// wordCache stores the ids of words. Each slot holds one word: the latest that
// occurred there twice in a row. It holds at most cacheSlots words of
// maxCachedWord bytes and needs no lock.
type wordCache struct {
	seed  maphash.Seed
	slots []wordSlot
}

type wordSlot struct {
	word atomic.Pointer[cachedWord]
	met  atomic.Uint32 // part of the hash of the last word
}

type cachedWord struct {
	text string
	ids  []int32 // never changed
}

func newWordCache() *wordCache {
	return &wordCache{maphash.MakeSeed(), make([]wordSlot, cacheSlots)}
}

// slot returns the only slot that may hold a word, and a tag for meet.
func (c *wordCache) slot(word string) (slot *wordSlot, tag uint32) {
	h := maphash.String(c.seed, word)
	return &c.slots[h%cacheSlots], uint32(h >> 32)
}

// meet reports whether to cache the word of the tag. Words that occur once must
// not cost an allocation each.
func (s *wordSlot) meet(tag uint32) bool { return s.met.Swap(tag) == tag }
