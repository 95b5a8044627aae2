//go:build mpi

package mpi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/parallel/paralleltest"
)

// scenario names what a rank that mpirun has started does.
const scenario = "EASYRL_TEST_MPI"

// ends is a rank's last line.
const ends = "A rank ends."

// silence is short, but longer than any rank waits for its turn on a busy machine.
const silence = 2 * time.Second

func TestMain(m *testing.M) {
	name := os.Getenv(scenario)
	if name == "" {
		os.Exit(m.Run())
	}
	end := finalize
	if name == "vanish" && os.Getenv("OMPI_COMM_WORLD_RANK") == "1" {
		end = func() error {
			introduce(1)
			return syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
	}
	w, err := open(silence, end)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	err = play(name, w)
	if err != nil { // now, because mpirun may end this process once another has ended
		fmt.Printf("rank %d of %d: %v\n", w.Rank(), w.Size(), err)
	}
	if closed := w.Close(); err == nil {
		fmt.Printf("rank %d of %d: %v\n", w.Rank(), w.Size(), closed)
	}
	w = nil
	collect()
	fmt.Println(ends)
	os.Exit(0)
}

// collect runs the finalizers of garbage. That of a Pinner whose memory is still pinned panics.
func collect() {
	for range 3 {
		ran := make(chan struct{})
		runtime.SetFinalizer(new([1 << 10]byte), func(*[1 << 10]byte) { close(ran) })
		runtime.GC()
		<-ran
	}
}

func play(name string, w *World) error {
	ctx := context.Background()
	switch {
	case name == "all":
		mesh := parallel.Mesh{DP: 2, TP: 2, PP: 1}
		return errors.Join(paralleltest.Check(ctx, w, 150_001), paralleltest.CheckMesh(ctx, w, mesh, 1, 30))
	case strings.HasPrefix(name, "bench "):
		return measure(ctx, w, name)
	}
	ranks := make([]int, w.Size())
	for i := range ranks {
		ranks[i] = i
	}
	g, err := parallel.NewGroup(w, "world", ranks, 3*silence/2)
	if err != nil {
		return err
	}
	sum := func(length int) error { return g.AllReduceSum(ctx, make([]int64, length)) }
	switch name {
	case "busy":
		if w.Rank() == 1 {
			for start := time.Now(); time.Since(start) < 5*silence/4; { // says nothing
			}
		}
	case "reduce", "idle":
		for i := 0; err == nil; i++ {
			if err = sum(300_000); i == 3 {
				introduce(w.Rank())
				if name == "idle" {
					<-w.failed
				}
			}
		}
		return err
	}
	if w.Rank() != 2 {
		return sum(1000)
	}
	switch name {
	case "abort":
		w.Abort(errors.New("loss is NaN"))
	case "leave":
		return nil
	case "length":
		return sum(500)
	case "hang":
		<-w.failed // the others report it
	}
	return sum(1000)
}

func introduce(rank int) { fmt.Printf("rank %d is process %d.\n", rank, os.Getpid()) }

// mpirun starts n processes that play a scenario.
func mpirun(n int, name string, flags ...string) *exec.Cmd {
	cmd := exec.Command("mpirun", append(flags, "-n", strconv.Itoa(n), "--allow-run-as-root", os.Args[0])...)
	cmd.Env = append(os.Environ(), scenario+"="+name)
	return cmd
}

func TestMPI(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"all":    `rank 2 of 4: <nil>`,
		"busy":   `rank 2 of 4: <nil>`,
		"abort":  `rank 0 of 4: all-reduce over world: rank 2: loss is NaN`,
		"leave":  `rank 3 of 4: all-reduce over world: rank 2: left`,
		"length": `rank 0 of 4: all-reduce over world: rank [12]: message of all-reduce 0 is [0-9]+ bytes, expected`,
		"hang":   `rank 3 of 4: all-reduce over world: rank 2: no message for 3s in all-reduce over world`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// mpirun dislikes ranks that end without MPI_Finalize
			out, _ := mpirun(4, name, "--oversubscribe").CombinedOutput()
			require.Regexp(t, want, string(out))
			for rank := range 4 {
				if strings.HasSuffix(want, "<nil>") {
					require.Contains(t, string(out), fmt.Sprintf("rank %d of 4: <nil>", rank))
				}
			}
		})
	}
}

// All others name a rank that is killed or stopped, and end by themselves.
func TestDeath(t *testing.T) {
	t.Parallel()
	const n = 3
	for name, row := range map[string]struct {
		scenario string
		says     int // processes that introduce themselves
		signal   syscall.Signal
		victim   int
		want     string
	}{
		"killed": {"reduce", n, syscall.SIGKILL, 1,
			"all-reduce over world: rank 1: no sign of life for 2s"},
		"killed idle": {"idle", n, syscall.SIGKILL, 1, "all-reduce over world: rank 1: no sign of life for 2s"},
		"killed rank 0": {"reduce", n, syscall.SIGKILL, 0,
			"all-reduce over world: rank 0: no sign of life for 2s"},
		"stopped": {"reduce", n, syscall.SIGSTOP, 1,
			"all-reduce over world: rank 1: no sign of life for 2s"},
		"stopped at the end": {"vanish", 1, syscall.SIGSTOP, 1,
			"MPI_Finalize has not returned for 2s, a rank has failed after it left"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := mpirun(n, row.scenario, "--enable-recovery", "--oversubscribe")
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
			lines := bufio.NewScanner(out)
			pid := processes(t, lines, row.says)[row.victim]
			require.NoError(t, syscall.Kill(pid, row.signal))
			t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
			var said, ended int // mpirun itself may never end
			for said+ended < 2*(n-1) && lines.Scan() {
				if lines.Text() == ends {
					ended++
					continue
				}
				said++
				require.Contains(t, lines.Text(), row.want)
				require.NotContains(t, lines.Text(), fmt.Sprintf("rank %d of", row.victim))
			}
			require.Equal(t, n-1, said)
			require.Equal(t, n-1, ended)
		})
	}
}

// processes returns the process of each of n ranks.
func processes(t *testing.T, lines *bufio.Scanner, n int) map[int]int {
	t.Helper()
	pids := map[int]int{}
	for len(pids) < n && lines.Scan() {
		var rank, pid int
		_, err := fmt.Sscanf(lines.Text(), "rank %d is process %d.", &rank, &pid)
		require.NoError(t, err, "%s", lines.Text())
		pids[rank] = pid
	}
	require.Len(t, pids, n)
	return pids
}
