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
// maxCachedWord bytes. It is safe for concurrent use without a lock: a slot's fields are
// atomic, and a lost race costs only a miss.
type wordCache struct {
	seed  maphash.Seed
	slots []wordSlot
}

type wordSlot struct {
	word    atomic.Pointer[cachedWord] // nil if empty
	lastTag atomic.Uint32              // tag of the last word that missed here
}

type cachedWord struct {
	text string
	ids  []int32 // never changed
}

func newWordCache() *wordCache {
	return &wordCache{maphash.MakeSeed(), make([]wordSlot, cacheSlots)}
}

// slot returns the only slot that may hold a word, and the word's tag: a part of its hash
// that did not select the slot.
func (c *wordCache) slot(word string) (slot *wordSlot, tag uint32) {
	h := maphash.String(c.seed, word)
	return &c.slots[h%cacheSlots], uint32(h >> 32)
}

// repeats reports whether the last word that missed here had the same tag, and stores tag
// as that of the last one. Only repeated words are cached, because a word that occurs once
// is not worth an allocation.
func (s *wordSlot) repeats(tag uint32) bool { return s.lastTag.Swap(tag) == tag }
