package host

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
)

// copiers returns all copiers that this machine runs, by name.
func copiers() map[string]copier {
	all := map[string]copier{"go": copyGo, "best": copierOf("")}
	for _, isa := range isas() {
		all[isa] = copierOf(isa)
	}
	return all
}

// Every copier gives the library's sums for runs of any length, aligned or not,
// copied or not, on any number of threads, and writes nothing beyond them.
func TestCopySum(t *testing.T) {
	t.Parallel()
	const runs, around = 5, 40
	for name, do := range copiers() {
		for _, run := range []int{1, 7, 59, 60, 61, 64, 65, 79, 80, 255, 256, 257, 272, 511, 512, 513, 32 * 24, 1 << 14,
			copyTask + 3} {
			for offset := range 3 {
				what := fmt.Sprintf("%s: runs of %d values, %d past an edge", name, run, offset)
				from, to := make([]float32, offset+runs*run), slices.Repeat([]float32{7}, around+offset+runs*run+around)
				src, dst := from[offset:], to[around+offset:][:runs*run]
				var raw []byte
				for i := range src {
					src[i] = float32(i%1013) - 500.25
					raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(src[i]))
				}
				var want [runs]uint64
				for i := range want {
					want[i] = xxh3.Hash(raw[4*i*run : 4*(i+1)*run])
				}
				for threads := 1; threads < 4; threads++ {
					var copied, only [runs]uint64
					clear(dst)
					require.True(t, copySum(do, dst, src, run, copied[:], threads), what)
					require.True(t, copySum(do, nil, src, run, only[:], threads), what)
					require.Equal(t, want, copied, what)
					require.Equal(t, want, only, what)
					require.True(t, slices.Equal(src, dst), what)
				}
				for i, v := range slices.Concat(to[:around+offset], to[around+offset+runs*run:]) {
					require.EqualValues(t, 7, v, "%s: value %d around the copy", what, i)
				}
			}
		}
	}
}

// A value that is not finite is found at every position. The largest finite values
// pass.
func TestCopySumFinite(t *testing.T) {
	t.Parallel()
	inf := float32(math.Inf(1))
	for name, do := range copiers() {
		for _, run := range []int{3, 61, 100, 300} {
			src := slices.Repeat([]float32{math.MaxFloat32, -math.MaxFloat32, 0, math.SmallestNonzeroFloat32}, run)
			dst, sums := make([]float32, len(src)), make([]uint64, 4)
			require.True(t, copySum(do, dst, src, run, sums, 1), name)
			for at := range src {
				for _, v := range []float32{inf, -inf, float32(math.NaN()), math.Float32frombits(0xff800001)} {
					kept := src[at]
					src[at] = v
					require.False(t, copySum(do, dst, src, run, sums, 1), "%s: value %d of runs of %d is %v",
						name, at, run, v)
					require.False(t, copySum(do, nil, src, run, sums, 2), "%s: value %d of runs of %d is %v",
						name, at, run, v)
					src[at] = kept
				}
			}
		}
	}
}

func TestCopySumRefuses(t *testing.T) {
	t.Parallel()
	vals := make([]float32, 10)
	require.True(t, CopySum(nil, nil, 5, nil, 1), "empty input counts as finite")
	require.Panics(t, func() { CopySum(nil, vals, 3, make([]uint64, 3), 1) })
	require.Panics(t, func() { CopySum(vals[:9], vals, 5, make([]uint64, 2), 1) })
}

func BenchmarkCopySum(b *testing.B) {
	const n = 1 << 25
	src, dst := make([]float32, n), make([]float32, n)
	for i := range src {
		src[i] = float32(i % 1013)
	}
	sums := make([]uint64, n>>15)
	for name, do := range map[string]func(){
		"copy":     func() { copy(dst, src) },
		"copy sum": func() { CopySum(dst, src, 1<<15, sums, 1) },
		"sum":      func() { CopySum(nil, src, 1<<15, sums, 1) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(4 * n)
			for b.Loop() {
				do()
			}
		})
	}
}
