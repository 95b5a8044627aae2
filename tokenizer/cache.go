package tokenizer

import (
	"hash/maphash"
	"sync/atomic"
)

const (
	cacheSlots    = 1 << 15
	maxCachedWord = 64 // bytes
)

// wordCache remembers the ids of words: one word a slot, the latest. It holds at
// most cacheSlots words of maxCachedWord bytes and needs no lock.
type wordCache struct {
	seed  maphash.Seed
	slots []atomic.Pointer[cachedWord]
}

type cachedWord struct {
	text string
	ids  []int32 // never changed
}

func newWordCache() *wordCache {
	return &wordCache{maphash.MakeSeed(), make([]atomic.Pointer[cachedWord], cacheSlots)}
}

// slot returns the one place where a word may be.
func (c *wordCache) slot(word string) *atomic.Pointer[cachedWord] {
	return &c.slots[maphash.String(c.seed, word)%cacheSlots]
}
