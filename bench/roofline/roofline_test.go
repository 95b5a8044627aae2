package roofline

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// First half of the peak and a tenth of the bandwidth, then the reverse.
func TestPhaseUnderCeilings(t *testing.T) {
	t.Parallel()
	p := phase{name: "x", rows: 7, flop: 5e9, read: 3e8, write: 1e8}
	require.Equal(t, Point{Phase: "x", Rows: 7, Seconds: 0.1, FLOP: 5e9, FLOPPerSecond: 5e10, FMAShare: 0.5, Bytes: 4e8,
		BytesPerSecond: 4e9,
		Bandwidth:      4e10, BandwidthShare: 0.1, Bound: "fma"}, p.point(100*time.Millisecond, 1e11, 4e10))
	s := p.point(100*time.Millisecond, 5e11, 8e9)
	require.Equal(t, []float64{0.1, 0.5}, []float64{s.FMAShare, s.BandwidthShare})
	require.Equal(t, "bandwidth", s.Bound)
}

func TestReportTable(t *testing.T) {
	t.Parallel()
	r := Report{Device: "cpu/x", Numerics: "bf16", Model: "m", Parameters: 1_500_000,
		Ceilings: npu.Ceilings{One: npu.Ceiling{Threads: 1, FLOPPerSecond: 1e11, Read: 2e10, Copy: 1.5e10},
			All: npu.Ceiling{Threads: 2, FLOPPerSecond: 2e11, Read: 3e10, Copy: 2.5e10}}}
	p := phase{name: "decode 8", rows: 8, flop: 5e9, read: 3e8, write: 1e8}
	r.Phases = []Point{p.point(100*time.Millisecond, 2e11, 4e10)}
	var out strings.Builder
	require.NoError(t, r.Print(&out))
	lines := strings.Split(out.String(), "\n")
	require.Equal(t, []string{"cpu/x, bf16; m, 1.5 M parameters", "",
		"   threads                             1       2",
		"   fused multiply-adds, GFLOP/s    100.0   200.0",
		"   memory read, GB/s                20.0    30.0",
		"   memory copied, GB/s              15.0    25.0", "",
		"   phase        rows    ms   GFLOP/s   of peak   GB/s   of GB/s   share   bound",
		"   decode 8        8   100      50.0     25.0%    4.0      40.0   10.0%     fma"}, lines[:9])

	out.Reset()
	r.Ceilings.All = r.Ceilings.One
	require.NoError(t, r.Print(&out))
	require.Contains(t, out.String(), "GFLOP/s    100.0\n", "one thread appears once")
}

func TestMeasurementStops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	runs := 0
	b := &measurement{ctx: ctx}
	_, err := b.fastest(&phase{run: func() error {
		if runs++; runs == 2 {
			cancel()
		}
		return nil
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 2, runs)
}
