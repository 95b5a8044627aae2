package program

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// families returns shell scripts that start processes which outlive their parent.
func families() map[string]string {
	return map[string]string{
		"child":       `sleep 1000 &`,
		"session":     `setsid sleep 1000 &`,
		"double fork": `(setsid sh -c 'sleep 1000 & sleep 1000 &' &)`,
		"deaf": `setsid sh -c 'trap "" HUP INT QUIT TERM USR1; echo init >/proc/self/comm; while :; do sleep ` +
			`1; done' &`,
		"many": `for i in 1 2 3 4 5 6; do setsid sh -c 'while :; do setsid sleep 0.1 & sleep 0.01; done' & done`,
		// of processes that end at once
		"chain": `export chain='setsid sh -c "$chain" & exit'; sh -c "$chain"; sh -c "$chain"`,
	}
}

// familyKey marks the processes of a test in their environment.
const familyKey = "EASYRL_TEST_FAMILY"

// family returns the processes that carry a mark.
func family(mark string) (pids []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is valid
	for _, path := range paths {
		environ, err := os.ReadFile(path) // fails if the process has ended
		if err == nil && bytes.Contains(environ, []byte(familyKey+"="+mark+"\x00")) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path))) // a number by the pattern
			pids = append(pids, pid)
		}
	}
	return pids
}

// requireMany waits until n processes of a family carry the mark, except for those that live
// too briefly to be counted.
func requireMany(t *testing.T, mark string, n int, name string) {
	t.Helper()
	require.Eventually(t, func() bool { return name == "chain" || len(family(mark)) >= n }, time.Minute,
		10*time.Millisecond)
}

// requireNone waits until no process carries the mark.
func requireNone(t *testing.T, mark string) {
	t.Helper()
	gone := func() bool { return len(family(mark)) == 0 }
	defer func() { // ends what a failed test leaves behind
		for tries := 0; tries < 10_000 && !gone(); tries++ {
			for _, pid := range family(mark) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}()
	require.Eventually(t, gone, time.Minute, 20*time.Millisecond, "processes outlive the trainer")
}

// No process of a program outlives the trainer, whatever ends it.
func TestProgramsEndWithTheTrainer(t *testing.T) {
	t.Parallel()
	for name, script := range families() {
		for sig, group := range map[syscall.Signal]bool{syscall.SIGKILL: false, syscall.SIGHUP: true,
			syscall.SIGTERM: true, syscall.SIGQUIT: false} {
			t.Run(fmt.Sprintf("%s %v", name, sig), func(t *testing.T) {
				t.Parallel()
				if signal.Ignored(sig) {
					t.Skip("it is ignored here, as under nohup")
				}
				mark := fmt.Sprintf("%d %s %v", os.Getpid(), name, sig)
				c := exec.Command(os.Args[0], "lead", "sh", "-c", script+"\nwhile read -r q; do echo $q; done")
				c.Env = append(os.Environ(), familyKey+"="+mark)
				c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
				out, err := c.StdoutPipe()
				require.NoError(t, err)
				require.NoError(t, c.Start())
				defer requireNone(t, mark)
				asked, err := bufio.NewReader(out).ReadString('\n')
				require.NoError(t, err)
				require.Equal(t, "asked: <nil>\n", asked)
				requireMany(t, mark, 3, name)
				target := c.Process.Pid
				if group {
					target = -target
				}
				require.NoError(t, syscall.Kill(target, sig))
				require.Error(t, c.Wait())
			})
		}
	}
}

// startFamily starts a script whose processes carry the mark that it returns. The script
// then repeats lines.
func startFamily(t *testing.T, script string, memory *Guard) (p *Process, mark string) {
	t.Helper()
	mark = fmt.Sprintf("%d %s", os.Getpid(), t.Name())
	p, err := Start([]string{"env", familyKey + "=" + mark, "sh", "-c",
		script + "\nwhile read -r q; do [ \"$q\" = exit ] && exit 3; echo $q; done"}, os.Environ(), memory)
	require.NoError(t, err)
	return p, mark
}

// A program's descendants end with it, whatever ends it.
func TestDescendantsEndWithTheProgram(t *testing.T) {
	t.Parallel()
	for name, script := range families() {
		for end, ends := range map[string]func(p *Process){
			"kill":       (*Process).Kill,
			"exit":       func(p *Process) { require.ErrorContains(t, asked(t, p, "exit"), "exit status 3") },
			"supervisor": func(p *Process) { require.NoError(t, p.cmd.Process.Kill()); p.Kill() },
		} {
			if name == "chain" && end == "supervisor" {
				continue // nothing adopts such processes then, so they can escape on a busy machine
			}
			t.Run(name+" "+end, func(t *testing.T) {
				t.Parallel()
				p, mark := startFamily(t, script, NewGuard(0))
				defer requireNone(t, mark)
				require.NoError(t, asked(t, p, "1", "2"))
				requireMany(t, mark, 2, name)
				ends(p)
				require.Empty(t, family(mark))
			})
		}
	}
}

// A program that signals its supervisor leaves nothing behind.
func TestSignalsToTheSupervisor(t *testing.T) {
	t.Parallel()
	for _, signal := range []string{"KILL", "HUP", "TERM", "INT", "QUIT", "PIPE", "ALRM", "USR1", "TSTP"} {
		t.Run(signal, func(t *testing.T) {
			t.Parallel()
			p, mark := startFamily(t, "setsid sleep 1000 &", NewGuard(0))
			defer requireNone(t, mark)
			require.NoError(t, asked(t, p, "1"))
			require.NoError(t, exec.Command("kill", "-"+signal, strconv.Itoa(p.cmd.Process.Pid)).Run())
			if signal != "KILL" {
				require.NoError(t, asked(t, p, "2"), "the supervisor ignores it")
				requireMany(t, mark, 2, "session")
			}
			p.Kill()
			require.Empty(t, family(mark))
		})
	}
}

// What kills programs by their command line spares the supervisor.
func TestSupervisorHasNoArguments(t *testing.T) {
	t.Parallel()
	p, mark := startFamily(t, "sleep 1000 &", NewGuard(0))
	defer requireNone(t, mark)
	require.NoError(t, asked(t, p, "1"))
	line, err := os.ReadFile(procFile(p.cmd.Process.Pid, "cmdline"))
	require.NoError(t, err)
	require.Equal(t, supervisorName+"\x00", string(line))
	p.Kill()
}

// The memory limit counts descendants in other process groups.
func TestGuardCountsSessions(t *testing.T) {
	t.Parallel()
	guard := NewGuard(64 << 20)
	defer guard.Close()
	p, mark := startFamily(t, `setsid sh -c 'held=$(head -c 200000000 /dev/zero | tr "\0" x); sleep 1000' & sleep 1000`,
		guard)
	defer requireNone(t, mark)
	require.ErrorContains(t, asked(t, p, "1"), "program used more than 64.0 MiB of memory")
	require.Empty(t, family(mark))
}

func TestProgramDoesNotStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, []byte("#!/no/interpreter\n"), 0o700))
	p, err := Start([]string{path}, os.Environ(), NewGuard(0))
	require.NoError(t, err)
	require.ErrorContains(t, asked(t, p, "1"), "start program: exec "+path+": no such file or directory")
}
