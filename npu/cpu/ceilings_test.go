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

// allLoops returns the loops that this build and machine have, by name.
func allLoops() map[string]loops {
	all := map[string]loops{"go": pureGoLoops()}
	for _, isa := range ISAs() {
		all[isa] = loopsOf(isa)
	}
	return all
}

// The loops do all the work that is counted. After k steps x/2 + 1 from i + 3, chain
// i is at 2 + (i+1)/2^k. With l lanes in c chains, a round of fmaRound multiply-adds
// is k = fmaRound/(c·l) steps of each chain.
func TestCeilingsDoTheWork(t *testing.T) {
	t.Parallel()
	for name, l := range allLoops() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sums []float64
			for _, shape := range []struct{ chains, lanes int }{{12, 16}, {12, 8}, {12, 4}, {24, 4}, {12, 1}} {
				sum := 0.0
				for i := range shape.chains {
					sum += 2 + float64(i+1)*math.Pow(2, -2*fmaRound/float64(shape.chains*shape.lanes))
				}
				sums = append(sums, sum)
			}
			want := map[string][]float64{"avx512": sums[:1], "avx2": sums[1:2], "portable": sums[2:4],
				"go": sums[4:]}[name]
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

// The threads pass over the whole set in windows, each over its own part. They read
// all of it and copy its first half to the second.
func TestBandwidthCoversTheSet(t *testing.T) {
	t.Parallel()
	const threads, half = 3, 2 * windowFloats
	set := make([]float32, threads*2*half+5*readStep) // no thread uses the end
	for i := range set {
		set[i] = float32(i / windowFloats)
	}
	want := slices.Clone(set)
	for thread := range threads {
		copy(want[(2*thread+1)*half:][:half], want[2*thread*half:][:half])
	}
	var reads [threads * 4]atomic.Int64
	l := pureGoLoops()
	read, copied := bandwidth(loops{
		read: func(p []float32) float64 {
			reads[int(p[0])].Add(1)
			return float64(len(p))
		},
		copy: l.copy,
	}, threads, set)
	require.Positive(t, read)
	require.Positive(t, copied)
	for i := range reads {
		require.Positive(t, reads[i].Load(), "window %d", i)
	}
	require.Equal(t, want, set)
}

// maxAtOnce: two threads that take turns are no faster than one. sumOfBest: each
// thread's best call counts, unless the thread made it alone.
func TestRates(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	one := []span{{0, 2 * ms}, {2 * ms, 3 * ms}, {3 * ms, 7 * ms}}
	tests := map[string]struct {
		other       []span
		most, bests float64
	}{
		"alone":          {nil, 1000, 1000},
		"together":       {[]span{{0, 2 * ms}, {2 * ms, 4 * ms}, {4 * ms, 7 * ms}}, 1000 + 500, 1000 + 500},
		"in turn":        {[]span{{0, 7 * ms}}, 1000 + 1000/7.0, 1000 + 1000/7.0},
		"later":          {[]span{{2500 * ms / 1000, 3 * ms}, {3 * ms, 7 * ms}}, 1000 + 2000, 250 + 2000},
		"stopped sooner": {[]span{{0, ms}, {ms, 2 * ms}}, 500 + 1000, 500 + 1000},
		"not at once":    {[]span{{8 * ms, 10 * ms}, {10 * ms, 12 * ms}}, 1000, 1000 + 500},
	}
	for name, test := range tests {
		c := calls{times: 3, spans: [][]span{one}}
		if test.other != nil {
			c.spans = append(c.spans, test.other)
		}
		require.InEpsilon(t, 3*test.most, c.maxAtOnce(), 1e-9, name)
		require.InEpsilon(t, 3*test.bests, c.sumOfBest(), 1e-9, name)
	}
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
	for _, x := range []float64{c.One.FLOPPerSecond, c.One.Read, c.One.Copy, c.All.FLOPPerSecond, c.All.Read,
		c.All.Copy} {
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
	require.EqualError(t, err, "measure bandwidth: size is 0 bytes, expected at least 1")
}
