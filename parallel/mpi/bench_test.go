//go:build mpi

package mpi

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/parallel/paralleltest"
)

// BenchmarkMPI compares the transport with loops in C that call the same MPI in the same processes, by
// turns: AllReduceSum with MPI_Allreduce, AllGather with MPI_Allgather, Send with MPI_Isend and
// MPI_Irecv. An operation is one call of each; its speed is the loop's time divided by the transport's.
// "speed" is the median over operations, "min-speed" and "max-speed" are the range. A fixed number of
// operations, such as -benchtime 41x, avoids several starts.
func BenchmarkMPI(b *testing.B) {
	line := regexp.MustCompile(`took (\d+) (\d+)`)
	for _, n := range []int{2, 4} {
		for _, c := range paralleltest.Cases(n) {
			b.Run(fmt.Sprintf("%s/%d", c.Name, n), func(b *testing.B) {
				var flags []string
				if n > runtime.NumCPU() {
					flags = append(flags, "--oversubscribe")
				}
				cmd := mpirun(n, fmt.Sprintf("bench %s %d", c.Name, b.N), flags...)
				// A C program keeps memory that MPI frees, but threads other than its first one do not.
				cmd.Env = append(cmd.Env, "MALLOC_ARENA_MAX=1", "MALLOC_MMAP_THRESHOLD_=536870912",
					"MALLOC_TRIM_THRESHOLD_=536870912", "MALLOC_TOP_PAD_=268435456")
				out, err := cmd.CombinedOutput()
				require.NoError(b, err, "%s", out)
				var took, speed []float64
				for _, m := range line.FindAllStringSubmatch(string(out), -1) {
					own, _ := strconv.ParseFloat(m[1], 64)
					bare, _ := strconv.ParseFloat(m[2], 64)
					took, speed = append(took, own), append(speed, bare/own)
				}
				require.Len(b, speed, b.N, "%s", out)
				slices.Sort(took)
				slices.Sort(speed)
				b.ReportMetric(took[b.N/2], "ns/op")
				b.ReportMetric(float64(n*c.Bytes)/took[b.N/2]*1e3, "MB/s")
				b.ReportMetric(speed[0], "min-speed")
				b.ReportMetric(speed[b.N/2], "speed")
				b.ReportMetric(speed[b.N-1], "max-speed")
			})
		}
	}
}

// measure is a rank's part of BenchmarkMPI. Rank 0 prints what its own and the bare calls took.
func measure(ctx context.Context, w *World, name string) error {
	words := strings.Fields(name)
	times, err := strconv.Atoi(words[2])
	if err != nil {
		return err
	}
	cases := paralleltest.Cases(w.Size())
	at := slices.IndexFunc(cases, func(c paralleltest.Case) bool { return c.Name == words[1] })
	ranks := make([]int, w.Size())
	for i := range ranks {
		ranks[i] = i
	}
	g, err := parallel.NewGroup(w, "bench", ranks, 0)
	if err != nil {
		return err
	}
	call, bare := cases[at].Prepare(ctx, g), paralleltest.BareMPI(words[1])
	own := func() error {
		if err := call(); err != nil {
			return err
		}
		return g.Barrier(ctx)
	}
	plain := func() error {
		return w.do(&job{call: func() error { return bare(1) }})
	}
	for i := range times + 1 {
		var took [2]time.Duration
		for j, run := range []func() error{own, plain} {
			start := time.Now()
			if err := run(); err != nil {
				return err
			}
			took[j] = time.Since(start)
		}
		if w.Rank() == 0 && i > 0 { // the first connects
			fmt.Printf("took %d %d\n", took[0], took[1])
		}
	}
	return nil
}
