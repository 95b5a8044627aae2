package state

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// scan is the obvious implementation of least.
func scan(f *members, avoid *member) *member {
	var best *member
	least := int64(math.MaxInt64)
	for _, m := range f.all {
		if m.serves() && m.hasRoom(f.growth.share, f.cfg.Ahead) && m != avoid && m.tokens < least {
			best, least = m, m.tokens
		}
	}
	return best
}

func TestLeastMatchesScan(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	s := New(config(), now)
	f := s.members
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 40 {
		_, _, err := s.Join(now, string(rune('A'+i)), 1+rng.IntN(4), false)
		require.NoError(t, err)
	}
	type booked struct {
		m *member
		r *Request
	}
	var out []booked
	found := 0
	for range 20000 {
		m := f.all[rng.IntN(len(f.all))]
		switch rng.IntN(11) {
		case 10:
			f.growth.answers = recent - 1 // so that earlier answers soon count little
			f.learn(m, responses(1+rng.IntN(99), 1+rng.IntN(99)))
		case 0:
			s.health.set(now, m, []Health{Healthy, Healthy, Suspect, Dead, Stale}[rng.IntN(5)], nil)
		case 1, 2, 3, 4:
			if n := len(out); n > 0 {
				i := rng.IntN(n)
				f.give(now, out[i].m, out[i].r)
				out[i] = out[n-1]
				out = out[:n-1]
			}
		default:
			r := NewRequest(request(1+rng.IntN(3), 1+rng.IntN(9)))
			var avoid *member
			if rng.IntN(2) == 0 {
				avoid = m
				if f.ready.Len() > 0 && rng.IntN(2) == 0 {
					avoid = f.ready.At(0)
				}
			}
			want := scan(f, avoid)
			require.Same(t, want, f.leastBusy(avoid))
			if want != nil {
				found++
				s.queue.book(now, want, r)
				out = append(out, booked{want, r})
			}
		}
		serving, capacity := 0, 0
		for _, m := range f.all {
			if m.serves() {
				serving, capacity = serving+1, capacity+m.capacity
			}
		}
		require.Equal(t, serving, f.serving)
		require.Equal(t, capacity, f.capacity)
	}
	require.Greater(t, found, 5000)
}

func TestPrefixesAreBoundedAndForgetDeadInstances(t *testing.T) {
	t.Parallel()
	var p prefixes
	one, two := &member{}, &member{}
	for key := range uint64(10 * maxPrefixes) {
		p.note([]uint64{key}, one)
		require.LessOrEqual(t, len(p.newer)+len(p.older), 2*maxPrefixes)
	}
	require.Nil(t, p.home([]uint64{0}))
	require.Same(t, one, p.home([]uint64{10*maxPrefixes - 1}))
	one.health = Dead
	p.note([]uint64{10*maxPrefixes - 1}, two)
	require.Same(t, two, p.home([]uint64{10*maxPrefixes - 1}))

	require.Empty(t, prefixKeys(make([]int32, prefixBlock-1)))
	require.Len(t, prefixKeys(make([]int32, prefixBlock)), 1)
	long := prefixKeys(make([]int32, 2*prefixBlock+1))
	require.Len(t, long, 3)
	require.Equal(t, prefixKeys(make([]int32, 2*prefixBlock)), long[:2])
	different := map[uint64]bool{}
	for n := prefixBlock; n <= 3*prefixBlock; n++ { // the tokens alone would hash equally
		keys := prefixKeys(make([]int32, n))
		different[keys[len(keys)-1]] = true
	}
	require.Len(t, different, 2*prefixBlock+1)
}
