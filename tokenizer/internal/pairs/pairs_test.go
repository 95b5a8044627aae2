package pairs

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// naiveMerge applies, as long as there is one, the leftmost of the pairs of
// lowest rank.
func naiveMerge(p *Table, ids []int32) []int32 {
	for {
		best, at, into := int32(noRank), 0, int32(0)
		for i := range len(ids) - 1 {
			if rank, id := p.get(ids[i], ids[i+1]); rank < best {
				best, at, into = rank, i, id
			}
		}
		if best == noRank {
			return ids
		}
		ids = slices.Replace(ids, at, at+2, into)
	}
}

func TestMergeOrders(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		p := New(40)
		next := int32(4)
		for rank := range int32(40) {
			p.Put(r.Int32N(next), r.Int32N(next), rank, next)
			next++
		}
		word := make([]int32, r.IntN(3*maxShortWord))
		for i := range word {
			word[i] = r.Int32N(4)
		}
		want := naiveMerge(p, slices.Clone(word))
		long := slices.Clone(word)
		require.Equal(t, want, long[:p.mergeLong(long)])
		if len(word) <= maxShortWord {
			require.Equal(t, want, word[:p.Merge(word)])
		}
	}
}
