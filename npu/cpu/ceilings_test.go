package cpu

import (
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// allLoops are those that this build and machine have, by their names.
func allLoops() map[string]loops {
	all := map[string]loops{"go": twinLoops()}
	for _, isa := range ISAs() {
		all[isa] = loopsOf(isa)
	}
	return all
}

// The loops do all of the work that is counted: chain i, after k steps x/2 + 1
// from i, is at 2 + (i-2)/2^k, and with l lanes in c chains a round of fmaRound
// multiply-adds is k = fmaRound/(c·l) steps of each.
func TestCeilingsDoTheWork(t *testing.T) {
	t.Parallel()
	for name, l := range allLoops() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sums []float64
			for _, shape := range []struct{ chains, lanes int }{{12, 16}, {12, 8}, {12, 4}, {24, 4}, {12, 1}} {
				sum := 0.0
				for i := range shape.chains {
					sum += 2 + float64(i-2)*math.Pow(2, -2*fmaRound/float64(shape.chains*shape.lanes))
				}
				sums = append(sums, sum)
			}
			want := map[string][]float64{"avx512": sums[:1], "avx2": sums[1:2], "portable": sums[2:4], "go": sums[4:]}[name]
			require.Condition(t, func() bool {
				return slices.ContainsFunc(want, func(x float64) bool { return math.Abs(x-l.fma(2)) < 1e-4 })
			}, "%v, expected one of %v", l.fma(2), want)

			values := make([]float32, 3*readStep)
			for i := range values {
				values[i] = float32(i)
			}
			require.Equal(t, 384*383/2.0, l.read(values), "every value is read once")
			require.Zero(t, l.read(nil))
			copied := make([]float32, len(values))
			l.copy(copied, values)
			require.Equal(t, values, copied)
		})
	}
}

// Each thread works on its own part of a set, all of it in the end.
func TestBandwidthCoversTheSet(t *testing.T) {
	t.Parallel()
	const threads, part = 3, 4 * readStep
	set := make([]float32, threads*part)
	for i := range set {
		set[i] = float32(i)
	}
	var reads, copies [threads]atomic.Int64
	at := func(p []float32) int { return int(p[0]) / part }
	l := twinLoops()
	read, copied := bandwidth(loops{
		read: func(p []float32) float64 {
			require.Len(t, p, part)
			reads[at(p)].Add(1)
			return l.read(p)
		},
		copy: func(dst, src []float32) {
			require.Len(t, dst, part/2)
			copies[at(src)].Add(1)
			l.copy(dst, src)
		},
	}, threads, set)
	require.Positive(t, read)
	require.Positive(t, copied)
	for i := range threads {
		require.GreaterOrEqual(t, reads[i].Load(), int64(tries))
		require.GreaterOrEqual(t, copies[i].Load(), int64(tries))
		first := set[i*part]
		require.InDelta(t, i*part, first, 0)
		require.Equal(t, set[i*part:i*part+part/2], set[i*part+part/2:(i+1)*part], "half of part %d was copied to the other", i)
	}
}

// Only what is done at the same time adds up: in turn, two threads are no faster
// than one.
func TestMostAtOnce(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	one := []span{{0, 2 * ms}, {2 * ms, 3 * ms}, {3 * ms, 7 * ms}}
	require.InEpsilon(t, 1000, mostAtOnce([][]span{one}), 1e-9)
	together := []span{{0, 2 * ms}, {2 * ms, 4 * ms}}
	require.InEpsilon(t, 1000+500, mostAtOnce([][]span{one, together}), 1e-9)
	inTurn := []span{{0, 7 * ms}, {7 * ms, 8 * ms}}
	require.InEpsilon(t, 1000+1000/7.0, mostAtOnce([][]span{one, inTurn}), 1e-9)
}

func TestCeilings(t *testing.T) {
	t.Parallel()
	for name, l := range allLoops() {
		require.Positive(t, peakFLOPS(l, 2), name)
	}
	require.NotEmpty(t, slices.Collect(maps.Keys(allLoops())))
	peak, err := PeakFLOPS(2)
	require.NoError(t, err)
	require.Positive(t, peak)
	for _, size := range []int64{1, 300_000, 1 << 20} {
		read, copied, err := Bandwidth(2, size)
		require.NoError(t, err)
		require.Positive(t, read)
		require.Positive(t, copied)
	}
	c, err := Ceilings(2)
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, []int{c.One.Threads, c.All.Threads})
	for _, x := range []float64{c.One.FLOPS, c.One.Read, c.One.Copy, c.All.FLOPS, c.All.Read, c.All.Copy} {
		require.Positive(t, x)
	}
}

func TestCeilingsRefuse(t *testing.T) {
	t.Parallel()
	_, err := PeakFLOPS(-1)
	require.ErrorContains(t, err, "-1 threads")
	_, err = Ceilings(maxThreads + 1)
	require.ErrorContains(t, err, "1025 threads")
	_, _, err = Bandwidth(-1, 1)
	require.ErrorContains(t, err, "-1 threads")
	_, _, err = Bandwidth(1, 0)
	require.EqualError(t, err, "measure bandwidth: a set of 0 bytes, expected 1 or more")
}
