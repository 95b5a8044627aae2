//go:build mpi

package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/parallel/paralleltest"
)

// scenario names what a rank that mpirun has started does.
const scenario = "EASYRL_TEST_MPI"

func TestMain(m *testing.M) {
	name := os.Getenv(scenario)
	if name == "" {
		os.Exit(m.Run())
	}
	w, err := Open()
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
	os.Exit(0)
}

func play(name string, w *World) error {
	ctx := context.Background()
	if name == "all" {
		mesh := parallel.Mesh{DP: 2, TP: 2, PP: 1}
		return errors.Join(paralleltest.Check(ctx, w, 150_001), paralleltest.CheckMesh(ctx, w, mesh, 1, 30))
	}
	g, err := parallel.NewGroup(w, "world", []int{0, 1, 2, 3}, time.Second)
	if err != nil {
		return err
	}
	length := 1000
	if w.Rank() == 2 {
		switch name {
		case "abort":
			w.Abort(errors.New("loss is NaN"))
		case "leave":
			return nil
		case "length":
			length = 500
		case "hang":
			<-w.watch() // told by the others
			return w.failure()
		}
	}
	return g.AllReduceSum(ctx, make([]int64, length))
}

// watch returns a channel that is closed when the world has failed.
func (w *World) watch() <-chan struct{} {
	failed := make(chan struct{})
	go func() {
		defer close(failed)
		for w.failure() == nil {
			select {
			case <-w.ended:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return failed
}

func TestMPI(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"all":    `rank 2 of 4: <nil>`,
		"abort":  `rank 0 of 4: all-reduce over world: rank 2: loss is NaN`,
		"leave":  `rank 3 of 4: all-reduce over world: rank 2: left`,
		"length": `rank 0 of 4: all-reduce over world: rank [12]: message of all-reduce 0 is [0-9]+ bytes, expected`,
		"hang":   `rank 3 of 4: all-reduce over world: rank [0-3]: no message for 1s in all-reduce over world`,
	} {
		t.Run(name, func(t *testing.T) {
			self, err := os.Executable()
			require.NoError(t, err)
			cmd := exec.Command("mpirun", "-n", "4", "--oversubscribe", "--allow-run-as-root", self)
			cmd.Env = append(os.Environ(), scenario+"="+name)
			out, _ := cmd.CombinedOutput() // mpirun dislikes ranks that end without MPI_Finalize
			require.Regexp(t, want, string(out))
			if name == "all" {
				for rank := range 4 {
					require.Contains(t, string(out), fmt.Sprintf("rank %d of 4: <nil>", rank))
				}
			}
		})
	}
}
