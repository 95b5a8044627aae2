package bpe

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// naiveMerge repeatedly applies the leftmost pair of lowest rank.
func naiveMerge(p *pairTable, ids []int32) []int32 {
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

// randomTable returns merges of random pairs: of earlier results, as training
// produces, or of any symbols, in any order and some of equal rank.
func randomTable(r *rand.Rand, merges int, trained bool) *pairTable {
	p := newPairTable(merges)
	for i := range int32(merges) {
		rank, made := i, 4+i
		if !trained {
			rank, made = r.Int32N(int32(merges)), 4+r.Int32N(int32(merges))
			p.put(r.Int32N(4+int32(merges)), r.Int32N(4), rank, made)
			continue
		}
		p.put(r.Int32N(made), r.Int32N(made), rank, made)
	}
	return p
}

func TestMergeOrders(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 300 {
		p := randomTable(r, 40, i%3 > 0)
		word := make([]int32, r.IntN(3*maxShort))
		for i := range word {
			word[i] = r.Int32N(4)
		}
		want := naiveMerge(p, slices.Clone(word))
		long := slices.Clone(word)
		var w heapWord
		require.Equal(t, want, long[:w.merge(p, long)])
		if len(word) <= maxShort {
			require.Equal(t, want, word[:p.merge(word)])
		}
	}
}

// randomWord has runs, repetitions and random letters.
func randomWord(r *rand.Rand, n int) []int32 {
	word := make([]int32, 0, n+64)
	for len(word) < n {
		from := max(0, len(word)-1-r.IntN(20))
		for range r.IntN(64) {
			switch k := len(word); r.IntN(40) {
			case 0:
				from = max(0, k-1-r.IntN(20))
				fallthrough
			default:
				word = append(word, append(word, 0)[from])
				from++
			case 1, 2, 3, 4:
				word = append(word, r.Int32N(4))
			}
		}
	}
	return word[:n]
}

// A word merged part by part equals the word merged whole, even with pieces
// longer than a part.
func TestMergePartsIsMergingWhole(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 400 {
		p := randomTable(r, 8+r.IntN(400), i%2 > 0)
		if i%10 == 0 { // runs of any power of two
			p = newPairTable(20)
			for k := range int32(12) {
				made := 4 + k
				if k == 0 {
					p.put(0, 0, k, made)
				} else {
					p.put(made-1, made-1, k, made)
				}
			}
		}
		word := randomWord(r, window+1+r.IntN(20*window))
		if i%20 == 0 {
			clear(word)
			word[r.IntN(len(word))] = 1
		}
		whole := slices.Clone(word)
		var w heapWord
		whole = whole[:w.merge(p, whole)]
		require.True(t, slices.Equal(whole, word[:p.merge(word)]), "table %d", i)
	}
}
