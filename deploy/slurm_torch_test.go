//go:build linux

package deploy

import (
	"maps"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// torchStubs returns stand-ins that print their arguments and wait as stubs' do.
func torchStubs() map[string]string {
	waits := func(name, print, status string) string {
		return `mkfifo "$WORK/$$"; exec 3<>"$WORK/$$"
trap 'echo "stopped ` + name + `"; exit ` + status + `' TERM
echo "$$ started ` + name + ` $* ` + print + `"
(read -r status <&3; exit "$status") >/dev/null 2>&1 &
wait $!`
	}
	all := stubs()
	maps.Copy(all, map[string]string{
		"easyrl": waits("easyrl",
			`token $(stat -c %a "$EASYRL_TOKEN_FILE") servers $(tr '\n' , <"${EASYRL_TOKEN_FILE%/*}/servers")`, "3"),
		"python3": waits("torchrun", `to $EASYRL_ADDRESS from $PYTHONPATH token $(wc -c <"$EASYRL_TOKEN_FILE")`, "1"),
		"vllm":    waits("vllm", `dev $VLLM_SERVER_DEV_MODE from $PYTHONPATH`, "0"),
	})
	return all
}

// startTorch runs torch.sbatch on three nodes of four GPUs, one of which samples, and returns
// what started, by name.
func startTorch(t *testing.T, env ...string) (j *job, started map[string][]string) {
	t.Helper()
	env = append([]string{"TRAIN_NODES=2", "SLURM_GPUS_ON_NODE=4", "PYTHONPATH=/own"}, env...)
	j = startScript(t, "torch.sbatch", torchStubs(), "n1,n2,n3", env...)
	started = map[string][]string{}
	for _, line := range j.until(4, " started ") {
		name := strings.Fields(line)[2]
		started[name] = append(started[name], line)
	}
	require.Len(t, started["easyrl"], 1)
	require.Len(t, started["torchrun"], 2)
	require.Len(t, started["vllm"], 1)
	return j, started
}

func TestSlurmStartsRanks(t *testing.T) {
	t.Parallel()
	j, started := startTorch(t, "TP=2", "VLLM_ARGS=--max-model-len 9216")
	trainer := started["easyrl"][0]
	require.Regexp(t, ` easyrl train run\.toml -set run\.seed=2 -resume -set model\.path=/scratch/base -set `+
		`train\.backend=torch -set parallel\.dp=4 `+
		`-set parallel\.tp=2 -set torch\.listen=10\.0\.0\.10:7100 -set torch\.token_file=\S+/token -set `+
		`inference\.kind=vllm `+
		`-set inference\.watch=\S+/servers -set inference\.wait_seconds=1800 token 600 servers http://n3:8000,$`,
		trainer)
	for _, node := range []string{"0", "1"} {
		require.Contains(t, strings.Join(started["torchrun"], "\n"),
			" torchrun -m torch.distributed.run --nnodes 2 --node-rank "+node+
				" --nproc-per-node 4 --master-addr 10.0.0.10 --master-port "+
				"7101 -m easyrl_torch to 10.0.0.10:7100 from "+j.dir+"/torch/worker:/own token 44")
	}
	require.Regexp(t, ` vllm serve /scratch/base --host 0\.0\.0\.0 --port 8000 --tensor-parallel-size 4 `+
		`.*--max-model-len 9216 dev 1 from `+
		j.dir+`/deploy/vllm:/own$`, started["vllm"][0])
	require.Contains(t, j.output(),
		"--nodes=2 --nodelist=n1,n2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=9 --gpus-per-node=4")
	require.Contains(t, j.output(), "--nodes=1 --nodelist=n3 --ntasks=1 ")
	j.end(trainer, "0")
	require.Equal(t, 0, j.status())
	require.Equal(t, 2, strings.Count(j.output(), "stopped torchrun"))
	require.Equal(t, 1, strings.Count(j.output(), "stopped vllm"))
	require.NotContains(t, j.output(), "scontrol requeue")
}

// A torchrun that fails starts again, however often; one that ends well does not.
func TestSlurmRestartsRanks(t *testing.T) {
	t.Parallel()
	j, started := startTorch(t)
	first, second := started["torchrun"][0], started["torchrun"][1]
	command := func(line string) string { return line[strings.Index(line, " "):] }
	for range 3 {
		j.end(first, "1")
		again := j.until(1, " started torchrun ")[0]
		require.Equal(t, command(first), command(again))
		first = again
	}
	require.Equal(t, 3, strings.Count(j.output(), "exited with status 1, starting it again"))
	j.end(first, "0")
	j.end(second, "0")
	j.until(1, "srun ends")
	j.end(started["vllm"][0], "1")
	j.until(1, " started vllm ")
	require.Contains(t, j.output(), "vLLM on node 0 exited with status 1, try 1 of 10")
	j.end(started["easyrl"][0], "1")
	require.Equal(t, 1, j.status())
}

func TestSlurmSignalsTorch(t *testing.T) {
	t.Parallel()
	j, _ := startTorch(t)
	require.NoError(t, j.cmd.Process.Signal(syscall.SIGUSR1))
	require.Equal(t, 3, j.status())
	require.Contains(t, j.output(), "stopped easyrl")
	require.Equal(t, 2, strings.Count(j.output(), "stopped torchrun"))
	require.Contains(t, j.output(), "scontrol requeue 7")
}

func TestSlurmTorchRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ env, want string }{
		"no model":       {"MODEL=", "usage: MODEL=DIR sbatch"},
		"no GPUs":        {"SLURM_GPUS_ON_NODE=", "GPUS is empty, expected 1 or more"},
		"no node left":   {"TRAIN_NODES=3", "the job has 3 nodes, expected more than the 3 that train"},
		"uneven axis":    {"TP=3", "TP is 3, expected a divisor of the 4 ranks"},
		"another folder": {"SLURM_SUBMIT_DIR=/nowhere", "/nowhere/deploy/slurm/ranks.sh not found. Submit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := startScript(t, "torch.sbatch", torchStubs(), "n1,n2,n3", "SLURM_GPUS_ON_NODE=4", test.env)
			require.Equal(t, 2, j.status())
			require.Contains(t, j.output(), test.want)
			require.NotContains(t, j.output(), " started ")
		})
	}
}
