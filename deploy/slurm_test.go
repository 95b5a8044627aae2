//go:build linux

package deploy

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// stubs returns stand-ins for Slurm's commands, the system's and easyrl. The easyrl
// stub prints its arguments and then waits for SIGTERM or for its end.
func stubs() map[string]string {
	return map[string]string{
		"hostname": `echo "10.0.0.10 172.17.0.1 "`,
		"ip":       `echo "$4 dev eth0 src 10.0.0.11 uid 0"`,
		"sleep":    `echo "slept $1"`,
		"scontrol": `if [[ $1 == show ]]; then tr , '\n' <<<"$3"; else echo "scontrol $*"; fi`,
		"srun": `echo "srun $*"
for a in "$@"; do case $a in --ntasks=*) tasks=${a#*=} ;; esac; done
pids=(); trap 'kill -TERM "${pids[@]}"' TERM
for ((i = 0; i < tasks; i++)); do SLURM_LOCALID=$i SLURM_NODEID=$i bash "${@: -1}" & pids[i]=$!; done
for pid in "${pids[@]}"; do until wait "$pid"; code=$?; ((code <= 128)); do :; done; done
echo "srun ends"`,
		"easyrl": `mkfifo "$WORK/$$"; exec 3<>"$WORK/$$"
trap 'echo "stopped $1"; [[ $1 == train ]] && exit 3; exit 0' TERM
echo "$$ easyrl $* token $(stat -c %a "$TOKEN_FILE") $(wc -c <"$TOKEN_FILE") $(stat -c %a "${TOKEN_FILE%/*}")"
(read -r status <&3; exit "$status") >/dev/null 2>&1 &
wait $!`,
	}
}

// job is a run of a batch script with stubs.
type job struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
	seen  []string
	work  string // the stubs' working folder
	dir   string // the folder of submission
}

func startJob(t *testing.T, nodes string, env ...string) *job {
	t.Helper()
	return startScript(t, "easyrl.sbatch", stubs(), nodes, env...)
}

func startScript(t *testing.T, script string, stubs map[string]string, nodes string, env ...string) *job {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	bin := t.TempDir()
	for name, body := range stubs {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!"+bash+"\n"+body+"\n"),
			0o700)) //nolint:gosec // a command
	}
	here, err := os.Getwd()
	require.NoError(t, err)
	j := &job{t: t, work: t.TempDir(), dir: t.TempDir()}
	require.NoError(t, os.Symlink(here, filepath.Join(j.dir, "deploy")))
	out, in, err := os.Pipe()
	require.NoError(t, err)
	j.lines = bufio.NewScanner(out)
	j.cmd = exec.Command(bash, filepath.Join(here, "slurm", script), "run.toml", "-set", "run.seed=2")
	j.cmd.Dir, j.cmd.Stdout, j.cmd.Stderr = j.dir, in, in
	j.cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "WORK="+j.work, "MODEL=/scratch/base",
		"SLURM_JOB_ID=7",
		"SLURM_SUBMIT_DIR="+j.dir, "SLURM_JOB_NODELIST="+nodes, "SLURM_CPUS_ON_NODE=9")
	j.cmd.Env = append(j.cmd.Env, env...)
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, j.cmd.Start())
	require.NoError(t, in.Close())
	t.Cleanup(func() {
		_ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL) // waiting stubs, and leftovers of a failed test
		_ = out.Close()
	})
	return j
}

// until reads the job's output up to the n-th line that contains word and returns these
// n lines.
func (j *job) until(n int, word string) []string {
	j.t.Helper()
	var found []string
	for len(found) < n && j.lines.Scan() {
		line := j.lines.Text()
		j.seen = append(j.seen, line)
		if strings.Contains(line, word) {
			found = append(found, line)
		}
	}
	require.Len(j.t, found, n, "lines with %q in\n%s", word, strings.Join(j.seen, "\n"))
	return found
}

// end makes the process that printed line exit with status.
func (j *job) end(line, status string) {
	j.t.Helper()
	pid, _, _ := strings.Cut(line, " ")
	require.NoError(j.t, os.WriteFile(filepath.Join(j.work, pid), []byte(status+"\n"), 0))
}

// started reads until the trainer and n instances have started, in any order.
func (j *job) started(n int) (trainer string, instances []string) {
	j.t.Helper()
	for _, line := range j.until(n+1, " easyrl ") {
		if strings.Contains(line, " easyrl train ") {
			trainer = line
		} else {
			instances = append(instances, line)
		}
	}
	require.NotEmpty(j.t, trainer)
	return trainer, instances
}

// status waits for the job, requires that it leaves no files, and returns its exit
// status.
func (j *job) status() int {
	j.t.Helper()
	for j.lines.Scan() {
		j.seen = append(j.seen, j.lines.Text())
	}
	_ = j.cmd.Wait() // the caller checks the status
	left, err := filepath.Glob(filepath.Join(j.dir, ".easyrl-*"))
	require.NoError(j.t, err)
	require.Empty(j.t, left, "the job left its token behind")
	return j.cmd.ProcessState.ExitCode()
}

func (j *job) output() string { return strings.Join(j.seen, "\n") }

func TestSlurmStartsTrainerAndInstances(t *testing.T) {
	t.Parallel()
	j := startJob(t, "n1,n2,n3", "INSTANCES=2")
	trainer, instances := j.started(4)
	require.Regexp(t, ` easyrl train run\.toml -set run\.seed=2 -resume -set control\.listen=10\.0\.0\.10:7000 `+
		`-set control\.token_file=\S+/token -set inference\.kind=easyrl -set inference\.token_file=\S+/token -set `+
		`device\.threads=9 token 600 44 700$`, trainer)
	token := regexp.MustCompile(`token_file=(\S+)`).FindStringSubmatch(trainer)[1]
	ports := map[string]int{}
	for _, line := range instances {
		found := regexp.MustCompile(` easyrl serve -model /scratch/base -listen 10\.0\.0\.11:(\d+) -threads 4 ` +
			`-join http://10\.0\.0\.10:7000 -token-file (\S+) token 600 `).FindStringSubmatch(line)
		require.NotNil(t, found, line)
		require.Equal(t, token, found[2])
		ports[found[1]]++
	}
	require.Len(t, ports, 4) // the stub runs all tasks on one node
	require.Contains(t, ports, "8000")
	require.Contains(t, j.output(), "--nodes=2 --nodelist=n2,n3 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=4")
	j.end(trainer, "0")
	require.Equal(t, 0, j.status())
	require.Equal(t, 4, strings.Count(j.output(), "stopped serve"))
	require.Contains(t, j.output(), "srun ends")
	require.NotContains(t, j.output(), "scontrol requeue")
}

func TestSlurmSplitsOneNode(t *testing.T) {
	t.Parallel()
	j := startJob(t, "n1", "INSTANCES=2", "PORT=7100", "ADDRESS=10.9.9.9")
	trainer, instances := j.started(2)
	require.Contains(t, trainer, "-set control.listen=10.9.9.9:7100 ")
	require.Contains(t, trainer, "-set device.threads=3 ")
	for _, line := range instances {
		require.Contains(t, line, "-threads 3 -join http://10.9.9.9:7100 ")
		require.Regexp(t, `:810[01] `, line)
	}
	j.end(trainer, "1")
	require.Equal(t, 1, j.status())
}

// The job exits with the trainer's status and is requeued near its time limit.
func TestSlurmSignals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		signal  syscall.Signal
		requeue bool
	}{
		"near the time limit": {syscall.SIGUSR1, true},
		"cancelled":           {syscall.SIGTERM, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := startJob(t, "n1,n2")
			j.started(1)
			require.NoError(t, j.cmd.Process.Signal(test.signal))
			require.Equal(t, 3, j.status())
			require.Contains(t, j.output(), "stopped train")
			require.Contains(t, j.output(), "stopped serve")
			require.Equal(t, test.requeue, strings.Contains(j.output(), "scontrol requeue 7"))
		})
	}
}

func TestSlurmRestartsInstances(t *testing.T) {
	t.Parallel()
	j := startJob(t, "n1,n2")
	trainer, instances := j.started(1)
	pid, _, _ := strings.Cut(instances[0], " ")
	process, err := strconv.Atoi(pid)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(process, syscall.SIGKILL))
	again := j.until(1, " easyrl serve ")[0]
	require.Contains(t, j.output(), "the instance at 10.0.0.11:8000 exited with status 137, try 1 of 10")
	require.Contains(t, j.output(), "slept 5")
	require.Equal(t, strings.TrimPrefix(instances[0], pid), again[strings.Index(again, " "):])
	j.end(again, "2") // a wrong command line: no third try
	j.until(1, "srun ends")
	j.end(trainer, "0")
	require.Equal(t, 0, j.status())
	require.Equal(t, 2, strings.Count(j.output(), " easyrl serve "))
}

func TestSlurmRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ env, want string }{
		"no model":        {"MODEL=", "usage: MODEL=DIR sbatch"},
		"too few cores":   {"INSTANCES=10", "9 cores per node for 10 instances, expected at least one core each"},
		"another folder":  {"SLURM_SUBMIT_DIR=/nowhere", "/nowhere/deploy/slurm/instance.sh not found. Submit"},
		"not from Slurm":  {"SLURM_JOB_NODELIST=", "easyrl.sbatch: SLURM_JOB_NODELIST is not set"},
		"no instances":    {"INSTANCES=0", "expected"},
		"no whole number": {"INSTANCES=two", "expected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := startJob(t, "n1,n2", test.env)
			require.Equal(t, 2, j.status())
			require.Contains(t, j.output(), test.want)
			require.NotContains(t, j.output(), " easyrl ")
		})
	}
}
