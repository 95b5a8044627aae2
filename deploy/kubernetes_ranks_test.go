//go:build linux

package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// startRanks runs ranks.sh as the second pod does, with a stand-in for torchrun.
func startRanks(t *testing.T, env ...string) *job {
	t.Helper()
	c := readTorch(t)
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	for _, name := range []string{"MACHINES", "MASTER", "EASYRL_ADDRESS"} {
		env = append(env, name+"="+c.value(t, ranks, name))
	}
	env = append(env, "EASYRL_TOKEN_FILE="+token, "JOB_COMPLETION_INDEX=1")
	return startScript(t, "../kubernetes/torch/ranks.sh", torchStubs(), "", env...)
}

// Ranks that fail start again, and the pod ends with status 0 only at the end of the run.
func TestPodRestartsRanks(t *testing.T) {
	t.Parallel()
	j := startRanks(t, "TRIES=3", "PYTHONPATH=/own")
	for range 2 {
		line := j.until(1, " started torchrun ")[0]
		require.Contains(t, line, " -m torch.distributed.run --nnodes 2 --node-rank 1 --nproc-per-node gpu "+
			"--master-addr easyrl-ranks-0.easyrl-ranks --master-port 29500 -m easyrl_torch to easyrl-trainer:7100 "+
			"from /own token 6")
		j.end(line, "1")
		j.until(1, "slept 5")
	}
	require.Contains(t, j.output(), "torchrun in pod 1 exited with status 1, failure 2 of 3 in a row")
	j.end(j.until(1, " started torchrun ")[0], "0")
	require.Equal(t, 0, j.status())
}

func TestPodGivesUp(t *testing.T) {
	t.Parallel()
	j := startRanks(t, "TRIES=2")
	for range 2 {
		j.end(j.until(1, " started torchrun ")[0], "127")
	}
	require.Equal(t, 1, j.status())
	require.Equal(t, 1, strings.Count(j.output(), "giving up"))
}

// An evicted pod fails, so that the Job replaces it, and leaves no ranks.
func TestPodStops(t *testing.T) {
	t.Parallel()
	j := startRanks(t)
	j.until(1, " started torchrun ")
	require.NoError(t, j.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 143, j.status())
	require.Contains(t, j.output(), "stopped torchrun")
}
