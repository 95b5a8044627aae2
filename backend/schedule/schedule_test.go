package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// world plays the replicas of a plan and checks its promises.
type world struct {
	t        *testing.T
	plan     Plan
	random   *rand.Rand
	lockstep bool
	depth    int
	messages [][]Message // to each replica, since the last restart
	answered []int       // of these
	derived  map[int64]bool
	wanted   []int64 // answered Forwards, not yet derived
}

func newWorld(t *testing.T, replicas int, lockstep bool, random *rand.Rand) *world {
	depth := 1 + random.IntN(Depth)
	w := &world{t: t, plan: New(replicas, depth, lockstep), random: random, lockstep: lockstep, depth: depth,
		derived: map[int64]bool{}}
	w.restart(replicas)
	return w
}

func (w *world) restart(replicas int) {
	w.messages, w.answered, w.wanted = make([][]Message, replicas), make([]int, replicas), nil
}

func (w *world) send(next Outlook) {
	w.t.Helper()
	for _, m := range w.plan.Due(next) {
		sent := w.messages[m.Replica]
		require.False(w.t, slices.Contains(sent, m), "%v twice", m)
		if m.Kind == Backward {
			require.Contains(w.t, sent, Message{m.Replica, Forward, m.ID})
			require.True(w.t, m.ID < 0 || w.derived[m.ID], "derivative of %d is unknown", m.ID)
		}
		w.messages[m.Replica] = append(sent, m)
		open := 0
		for i, m := range w.messages[m.Replica] {
			switch {
			case m.Kind == Forward:
				open++
			case i < w.answered[m.Replica]:
				open--
			}
		}
		require.LessOrEqual(w.t, open, w.depth)
	}
	require.Empty(w.t, w.plan.Due(next), "all at once")
	for replica, sent := range w.messages {
		require.Equal(w.t, w.order(replica, Forward)[:len(w.order(replica, Backward))], w.order(replica, Backward))
		if w.lockstep {
			require.Len(w.t, sent, len(w.messages[0]))
			for i := range sent {
				require.Equal(w.t, w.messages[0][i].Kind, sent[i].Kind)
			}
		}
	}
}

// order returns the IDs of a replica's messages of a kind, without empty micro-batches.
func (w *world) order(replica int, kind Kind) []int64 {
	ids := []int64{}
	for _, m := range w.messages[replica] {
		if m.Kind == kind && m.ID > 0 {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// advance answers a message, or derives a micro-batch. It reports whether there was one.
func (w *world) advance() bool {
	var can []int
	for replica := range w.messages {
		if w.answered[replica] < len(w.messages[replica]) {
			can = append(can, replica)
		}
	}
	if len(w.wanted) > 0 && (len(can) == 0 || w.random.IntN(2) == 0) {
		id := w.wanted[0]
		w.wanted = w.wanted[1:]
		w.derived[id] = true
		w.plan.Derived(id)
		return true
	}
	if len(can) == 0 {
		return false
	}
	replica := can[w.random.IntN(len(can))]
	m := w.messages[replica][w.answered[replica]]
	w.answered[replica]++
	switch {
	case m.Kind == Backward:
		w.plan.Passed(replica, m.ID)
	case m.ID > 0 && !w.derived[m.ID]:
		w.wanted = append(w.wanted, m.ID)
	}
	return true
}

func (w *world) finish() {
	for {
		w.send(None)
		if !w.advance() {
			break
		}
	}
	require.True(w.t, w.plan.Idle())
}

// Whatever the order of answers, each micro-batch takes its two messages once, on one
// replica, and a restart repeats them in the same places and order.
func TestRandomSteps(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 16))
		replicas, lockstep := 1+random.IntN(5), seed%2 == 0
		w := newWorld(t, replicas, lockstep, random)
		n := int64(random.IntN(20))
		for id := int64(1); id <= n; id++ {
			w.plan.Add(id, 1+random.IntN(100))
			if random.IntN(4) == 0 { // a piece whose derivative is known
				w.derived[id] = true
				w.plan.Derived(id)
			}
			w.send(Outlook(random.IntN(2)))
			for !w.plan.Room() || random.IntN(3) == 0 {
				if !w.advance() {
					break
				}
				w.send(Outlook(random.IntN(2)))
			}
			require.True(t, w.plan.Room())
			if random.IntN(10) == 0 {
				before := make([][]int64, replicas)
				for replica := range before {
					before[replica] = w.order(replica, Forward)
				}
				w.plan.Restart()
				w.restart(replicas)
				for w.send(Later); w.advance(); {
					w.send(Later)
				}
				for replica, was := range before {
					require.Equal(t, was, w.order(replica, Forward)[:len(was)])
				}
			}
		}
		w.finish()
		var ids []int64
		for replica := range w.messages {
			require.Equal(t, w.order(replica, Forward), w.order(replica, Backward))
			ids = append(ids, w.order(replica, Backward)...)
		}
		slices.Sort(ids)
		require.Len(t, ids, int(n))
		require.Len(t, slices.Compact(ids), int(n))
	}
}

// A replica gets its next micro-batch when it has passed one; the fewest tokens in flight
// decide.
func TestFreeBalances(t *testing.T) {
	t.Parallel()
	p := New(2, Depth, false)
	for id, tokens := range []int{100, 30, 30, 30, 50} {
		p.Add(int64(id+1), tokens)
	}
	require.Equal(t, []Message{{0, Forward, 1}, {1, Forward, 2}, {1, Forward, 3}, {0, Forward, 4}}, p.Due(More))
	require.False(t, p.Room())
	p.Derived(2)
	require.Equal(t, []Message{{1, Backward, 2}}, p.Due(More))
	p.Passed(1, 2)
	require.Equal(t, []Message{{1, Forward, 5}}, p.Due(More))
	require.True(t, p.Room())
	require.False(t, p.Idle())
}

// A round waits for more micro-batches while replicas are busy or others follow at once.
func TestRounds(t *testing.T) {
	t.Parallel()
	p := New(3, Depth, true)
	p.Add(1, 10)
	require.Empty(t, p.Due(More))
	require.Equal(t, []Message{{0, Forward, 1}, {1, Forward, -1}, {2, Forward, -1}}, p.Due(Later))
	p.Add(2, 10)
	p.Add(3, 10)
	require.Empty(t, p.Due(Later), "busy")
	p.Add(4, 10)
	require.False(t, p.Room())
	require.Equal(t, []Message{{0, Forward, 2}, {1, Forward, 3}, {2, Forward, 4}}, p.Due(More))
	p.Derived(3)
	p.Derived(2)
	p.Derived(4)
	require.Empty(t, p.Due(None), "in the order of Forwards")
	p.Derived(1)
	var kinds []string
	for _, m := range p.Due(None) {
		kinds = append(kinds, fmt.Sprint(m))
	}
	require.Equal(t, []string{"{0 1 1}", "{1 1 -1}", "{2 1 -1}", "{0 1 2}", "{1 1 3}", "{2 1 4}"}, kinds)
}
