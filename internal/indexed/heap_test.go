package indexed

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

type item struct{ key, at int }

// list is a trivial heap: a sorted list of all items.
type list []*item

func (l *list) remove(i *item) {
	*l = slices.DeleteFunc(*l, func(o *item) bool { return o == i })
}

func (l *list) sort() { slices.SortFunc(*l, func(a, b *item) int { return a.key - b.key }) }

// After random operations, the smallest item is on top and each item knows its
// position.
func TestHeapAgainstSort(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 3))
		h := New(func(a, b *item) bool { return a.key < b.key }, func(i *item, at int) { i.at = at })
		var want list
		for range 400 {
			switch op := rng.IntN(10); {
			case op < 5 || len(want) == 0:
				i := &item{key: rng.IntN(50), at: Out}
				h.Push(i)
				want = append(want, i)
			case op == 5:
				i := h.Pop()
				require.Equal(t, want[0].key, i.key)
				require.Equal(t, Out, i.at)
				want.remove(i)
			case op == 6:
				i := want[rng.IntN(len(want))]
				require.Same(t, i, h.Remove(i.at))
				require.Equal(t, Out, i.at)
				want.remove(i)
			case op == 7 && rng.IntN(8) == 0:
				odd := func(i *item) bool { return i.key%2 == 1 }
				h.DeleteFunc(odd)
				for _, i := range want {
					require.Equal(t, odd(i), i.at == Out)
				}
				want = slices.DeleteFunc(want, odd)
			default:
				i := want[rng.IntN(len(want))]
				i.key = rng.IntN(50)
				h.Fix(i.at)
			}
			want.sort()
			require.Equal(t, len(want), h.Len())
			for _, i := range want {
				require.Same(t, i, h.At(i.at))
			}
			if len(want) > 0 {
				require.Equal(t, want[0].key, h.At(0).key)
			}
		}
		for _, i := range want {
			require.Equal(t, i.key, h.Pop().key, "what is left comes in order")
		}
	}
}

func TestHeapOfValues(t *testing.T) {
	t.Parallel()
	h := New(func(a, b int) bool { return a < b }, nil)
	for _, v := range []int{3, 1, 2} {
		h.Push(v)
	}
	require.Equal(t, []int{1, 2, 3}, []int{h.Pop(), h.Pop(), h.Pop()})
	require.Zero(t, h.Len())
}
