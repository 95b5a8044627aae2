//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/report"
)

// process is the command in a process of its own.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string // of its standard error
	log   strings.Builder
	guard *time.Timer // kills it if it hangs
}

// startProcess starts the command. setup may change it; it may be nil.
func startProcess(t *testing.T, setup func(cmd *exec.Cmd), args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], args...), lines: make(chan string)}
	p.cmd.Env = append(os.Environ(), "EASYRL_TEST_AS_COMMAND=1")
	if setup != nil {
		setup(p.cmd)
	}
	stderr, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	p.guard = time.AfterFunc(10*time.Minute, func() { _ = p.cmd.Process.Kill() })
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has exited already if all went well
		for range p.lines {
			continue
		}
	})
	go func() { // ends with the process
		defer close(p.lines)
		in := bufio.NewScanner(stderr)
		for in.Scan() {
			p.lines <- in.Text()
		}
	}()
	return p
}

// startHeld starts a process that blocks at a line of its standard error until a signal
// arrives.
func startHeld(t *testing.T, line string, args ...string) *process {
	t.Helper()
	return startProcess(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, holdKey+"="+line) }, args...)
}

// until waits for a line of standard error that begins with prefix.
func (p *process) until(prefix string) {
	p.t.Helper()
	for line := range p.lines {
		p.log.WriteString(line + "\n")
		if strings.HasPrefix(line, prefix) {
			return
		}
	}
	require.Fail(p.t, "the process exited before it printed "+prefix, "%s", p.log.String())
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// atOnce sends signals without letting the process run in between.
func (p *process) atOnce(signals ...syscall.Signal) {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	var err error = syscall.EINTR
	for errors.Is(err, syscall.EINTR) {
		_, err = syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	}
	require.True(p.t, status.Stopped(), err)
	for _, s := range append(signals, syscall.SIGCONT) {
		p.signal(s)
	}
}

// end waits for the process and returns its status and standard error.
func (p *process) end() (code int, errs string) {
	p.t.Helper()
	for line := range p.lines {
		p.log.WriteString(line + "\n")
	}
	err := p.cmd.Wait()
	require.True(p.t, p.guard.Stop(), "the process hung:\n%s", p.log.String())
	var exit *exec.ExitError
	if err != nil {
		require.True(p.t, errors.As(err, &exit), err)
	}
	return p.cmd.ProcessState.ExitCode(), p.log.String()
}

const stoppingCleanly = "stopping cleanly; press Ctrl-C again to quit now"

// A signal in the middle of a run writes a checkpoint and exits with 3. The resumed run
// ends in the same weights as an uninterrupted one.
func TestStoppedRunResumesToSameWeights(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	settings := []string{"run.steps=8", "checkpoint.every=1000"}
	want := weightsHash(t, trainTiny(t, dir, "whole", settings...), 8)
	for name, test := range map[string]struct {
		signals  []syscall.Signal
		settings []string
	}{
		"interrupt": {[]syscall.Signal{syscall.SIGINT}, nil},
		"terminate": {[]syscall.Signal{syscall.SIGTERM}, nil},
		"hangup":    {[]syscall.Signal{syscall.SIGHUP}, nil},
		// as from a terminal and a supervisor
		"sync":          {[]syscall.Signal{syscall.SIGINT, syscall.SIGTERM}, []string{"run.mode=sync"}},
		"two instances": {[]syscall.Signal{syscall.SIGTERM, syscall.SIGINT}, []string{"inference.instances=2"}},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "hangup" && signal.Ignored(syscall.SIGHUP) {
				t.Skip("hangups are ignored here, as under nohup")
			}
			run := filepath.Join(dir, name+" of '8'")
			args := []string{"train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", run)}
			for _, s := range append(settings, test.settings...) {
				args = append(args, "-set", s)
			}
			p := startHeld(t, "step 2/8", args...)
			p.until("step 2/8")
			p.atOnce(test.signals...)
			code, errs := p.end()
			require.Equal(t, exitStopped, code, errs)
			require.Contains(t, errs, stoppingCleanly)
			lines := strings.Split(strings.TrimSpace(errs), "\n")
			var step int
			_, err := fmt.Sscanf(lines[len(lines)-2], "stopped after step %d", &step)
			require.NoError(t, err, errs)
			again := continued(t, errs)
			require.True(t, strings.HasSuffix(again, " -resume"), again)
			folder := filepath.Join(run, "checkpoints", checkpoint.StepName(step))
			require.DirExists(t, folder)

			require.Contains(t, errs, "model:  "+folder)
			_, errs = shell(t, again)
			require.Contains(t, errs, "resuming after step ")
			require.Contains(t, errs, folder)
			require.Regexp(t, fmt.Sprintf(`\n8 steps, from step %d on in `, step+1), errs)
			require.Equal(t, want, weightsHash(t, run, 8))
			requireSteps(t, run, 1, 8)
		})
	}
}

// requireSteps requires one line of metrics per step.
func requireSteps(t *testing.T, run string, first, last int) (steps []report.Values) {
	t.Helper()
	steps, err := report.ReadMetrics(filepath.Join(run, report.MetricsFile))
	require.NoError(t, err)
	require.Len(t, steps, last-first+1)
	for i, values := range steps {
		require.Equal(t, float64(first+i), values["step"])
	}
	return steps
}

// The same holds during an evaluation, which the resumed run repeats. The test decides
// when the evaluation's prompt is scored.
func TestStoppedEvaluation(t *testing.T) {
	t.Parallel()
	needsEnv(t)
	dir := tinyRun(t)
	gate := t.TempDir()
	asked, told := filepath.Join(gate, "asked"), filepath.Join(gate, "told")
	held := write(t, dir, "held.jsonl", `{"prompt":"`+gatedPrompt+`","answer":"1"}`+"\n")
	args := func(run string) []string {
		return []string{"train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", run), "-set",
			"run.steps=2",
			"-set", "eval.every=1", "-set", "data.eval=" + held,
			"-set",
			fmt.Sprintf(
				`reward={kind="command",command=["env","EASYRL_TEST_AS_REWARD=gate:%s",%q],timeout=100,concurrency=1}`,
				gate, os.Args[0])}
	}
	whole := filepath.Join(dir, "whole")
	code, _, errs := command(t, args(whole)...)
	require.Zero(t, code, errs)
	for before := range 3 { // evaluations
		t.Run(fmt.Sprint(before), func(t *testing.T) {
			for _, pipe := range []string{asked, told} {
				require.NoError(t, syscall.Mkfifo(pipe, 0o644))
			}
			run := filepath.Join(t.TempDir(), "run")
			p := startProcess(t, nil, args(run)...)
			for range before {
				requireAsked(t, asked)
				require.NoError(t, os.WriteFile(told, []byte("go"), 0o644))
			}
			requireAsked(t, asked)
			p.signal(syscall.SIGINT)
			code, errs := p.end()
			require.Equal(t, exitStopped, code, errs)
			require.NoError(t, errors.Join(os.Remove(asked), os.Remove(told)))
			code, _, errs = command(t, append(args(run), "-resume")...)
			require.Zero(t, code, errs)
			require.Equal(t, weightsHash(t, whole, 2), weightsHash(t, run, 2))
			for _, values := range requireSteps(t, run, 0, 2) {
				require.Contains(t, values, "eval/held/mean@1")
			}
		})
	}
}

// requireAsked waits until an evaluation requests its score.
func requireAsked(t *testing.T, pipe string) {
	t.Helper()
	b, err := os.ReadFile(pipe)
	require.NoError(t, err)
	require.Equal(t, "score?", string(b))
}

func TestStoppedSFT(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	var demos strings.Builder
	for i := range 40 {
		fmt.Fprintf(&demos, `{"prompt":"%d,%d","response":"%d"}`+"\n", i%10, i/10, i%7)
	}
	data := write(t, dir, "demos.jsonl", demos.String())
	args := func(run string) []string {
		return []string{"sft", filepath.Join(dir, "run.toml"), "-set", "sft.data=" + data, "-set",
			fmt.Sprintf("run.dir=%q", run),
			"-set", "sft.steps=12", "-set", "sft.batch_size=64", "-set", "checkpoint.every=1000"}
	}
	whole := filepath.Join(dir, "whole")
	code, _, errs := command(t, args(whole)...)
	require.Zero(t, code, errs)
	run := filepath.Join(dir, "run")
	p := startHeld(t, "step 3/12", args(run)...)
	p.until("step 3/12")
	p.signal(syscall.SIGINT)
	code, errs = p.end()
	require.Equal(t, exitStopped, code, errs)
	_, errs = shell(t, continued(t, errs))
	require.Contains(t, errs, "\n12 steps, from step ")
	require.Equal(t, weightsHash(t, whole, 12), weightsHash(t, run, 12))
	requireSteps(t, run, 1, 12)
}

// continued returns the command that a stopped run names as the way to continue.
func continued(t *testing.T, errs string) string {
	t.Helper()
	_, line, ok := strings.Cut(errs, "\nhint: continue with: ")
	require.True(t, ok, errs)
	line, _, ok = strings.Cut(line, "\n") // what a signal prints may come after it
	require.True(t, ok, errs)
	return line
}

// shell runs a command line and returns its output and standard error.
func shell(t *testing.T, line string) (out, errs string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", line)
	cmd.Env = append(os.Environ(), "EASYRL_TEST_AS_COMMAND=1")
	var said, complained strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &complained
	require.NoError(t, cmd.Run(), "%s\n%s", line, complained.String())
	return said.String(), complained.String()
}

// The second signal exits at once even if the run cannot stop cleanly. Here it blocks on
// a record that nobody reads.
func TestSecondSignalExitsAtOnce(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := filepath.Join(dir, "run")
	record := filepath.Join(run, "rollouts", "step-000001.jsonl")
	require.NoError(t, os.MkdirAll(filepath.Dir(record), 0o755))
	require.NoError(t, syscall.Mkfifo(record, 0o644))
	p := startProcess(t, nil, "train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", run), "-set",
		"rollout.group_size=500")
	reader, err := os.Open(record) // returns once the run has opened it; a pipe cannot hold all it writes
	require.NoError(t, err)
	defer reader.Close() //nolint:errcheck // read only
	p.signal(syscall.SIGINT)
	p.until("interrupt: stopping cleanly")
	<-time.After(time.Second) // longer than an echo of the first signal
	p.signal(syscall.SIGINT)
	code, errs := p.end()
	require.Equal(t, exitFailed, code, errs)
	require.NotContains(t, errs, "goroutine ")
}

// Verbs that write nothing end at the first signal, even while they wait for input.
func TestInterruptedVerbs(t *testing.T) {
	t.Parallel()
	dir := badRun(t)
	m := filepath.Join(dir, "m")
	requireInterrupted := func(t *testing.T, p *process) {
		p.signal(syscall.SIGINT)
		code, errs := p.end()
		require.Equal(t, exitFailed, code, errs)
		require.Contains(t, errs, "stopped by signal: interrupt\n")
	}
	t.Run("logprobs", func(t *testing.T) {
		in, feed, err := os.Pipe()
		require.NoError(t, err)
		defer feed.Close() //nolint:errcheck // input never ends
		answers, out, err := os.Pipe()
		require.NoError(t, err)
		p := startProcess(t, func(cmd *exec.Cmd) { cmd.Stdin, cmd.Stdout = in, out }, "logprobs", "-model", m)
		require.NoError(t, errors.Join(in.Close(), out.Close()))
		_, err = feed.WriteString(`{"ids":[1,2]}` + "\n")
		require.NoError(t, err)
		answer, err := bufio.NewReader(answers).ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, answer, `{"logprobs":[-`)
		requireInterrupted(t, p)
	})
	t.Run("eval", func(t *testing.T) {
		addLongPrompt(t, dir)
		p := startProcess(t, nil, "eval", "-model", m, "-data", filepath.Join(dir, "prompts.jsonl"), "-reward",
			"prefix", "-k", "60000")
		p.until("warning: " + filepath.Join(dir, "prompts.jsonl: dropped 1 of 24 prompts"))
		requireInterrupted(t, p)
	})
}

// addLongPrompt adds a prompt that is too long to a folder's prompts, so that the command
// prints a warning while it starts.
func addLongPrompt(t *testing.T, dir string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "prompts.jsonl"))
	require.NoError(t, err)
	write(t, dir, "prompts.jsonl", string(b)+`{"prompt":"`+strings.Repeat("1", 70)+`","answer":"1"}`+"\n")
}

// A signal before the first step, wherever it comes, exits with 3. -resume then begins the run.
func TestStoppedBeforeFirstStep(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	addLongPrompt(t, dir)
	var demos strings.Builder
	for i := range 40 {
		fmt.Fprintf(&demos, `{"prompt":"%d,%d","response":"%d"}`+"\n", i%10, i/10, i%7)
	}
	data := write(t, dir, "demos.jsonl", demos.String()+`{"prompt":"`+strings.Repeat("1", 70)+`","response":"1"}`+"\n")
	root, _, _ := serveFolder(t, "-model", initTiny(t, dir, "served", 9), "-threads", "1", "-max-running", "5")
	server := newPassing(t, root)
	served := []string{"inference.kind=easyrl", fmt.Sprintf("inference.endpoints=[%q]", server.URL)}
	sft := []string{"sft.data=" + data, "sft.steps=2", "sft.batch_size=8"}
	const dropped, waiting = "warning: ", "waiting for instances: 1 available, expected at least 2"
	for _, test := range []struct {
		name     string
		verb     string
		line     string // of standard error, at which the process is held; empty if it is not
		call     string // to the server, whose answer is held; empty if none is
		settings []string
		begun    bool     // the run has a folder
		instead  []string // settings of the resumed run
		signal   syscall.Signal
	}{
		{name: "reads prompts", verb: "train", line: dropped, signal: syscall.SIGTERM},
		{name: "reads demonstrations", verb: "sft", line: dropped, settings: sft, signal: syscall.SIGTERM},
		{name: "connects", verb: "train", call: "GET /v1/models", settings: served, signal: syscall.SIGTERM},
		{name: "asks for the server", verb: "train", call: "POST /v1/trainer try", settings: served,
			signal: syscall.SIGINT},
		{name: "shows its page", verb: "train", line: "live page: ",
			settings: []string{"control.listen=127.0.0.1:0"}, begun: true, signal: syscall.SIGINT},
		{name: "claims the server", verb: "train", call: "POST /v1/trainer", settings: served,
			begun: true, signal: syscall.SIGHUP},
		{name: "waits for instances", verb: "train", line: waiting,
			settings: []string{"control.listen=127.0.0.1:0", "inference.min_instances=2"},
			begun:    true, instead: []string{"inference.min_instances=1"}, signal: syscall.SIGTERM},
		{name: "publishes", verb: "train", call: "PUT /v1/weights", settings: served, begun: true,
			signal: syscall.SIGTERM},
		{name: "samples", verb: "train", call: "POST /v1/completions", settings: served, begun: true,
			signal: syscall.SIGINT},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.signal == syscall.SIGHUP && signal.Ignored(syscall.SIGHUP) {
				t.Skip("hangups are ignored here, as under nohup")
			}
			args := func(name string, settings ...string) (args []string, run string) {
				run = filepath.Join(dir, test.verb+" "+name)
				args = []string{test.verb, filepath.Join(dir, "run.toml"),
					"-set", fmt.Sprintf("run.dir=%q", run), "-set", "run.steps=2"}
				for _, s := range append(settings, test.settings...) {
					args = append(args, "-set", s)
				}
				return args, run
			}
			begin, run := args(test.name)
			held, released := make(chan struct{}), make(chan struct{})
			release := sync.OnceFunc(func() { close(released) })
			defer release()
			if test.call != "" {
				var once sync.Once
				hold := func(call string) bool {
					if call == test.call {
						once.Do(func() { close(held) })
						<-released
					}
					return call != test.call
				}
				server.after.Store(&hold)
			}
			p := startHeld(t, test.line, begin...)
			if test.line != "" {
				p.until(test.line)
			} else {
				<-held
			}
			p.signal(test.signal)
			code, errs := p.end()
			server.after.Store(nil)
			release()
			require.Equal(t, exitStopped, code, errs)
			require.Contains(t, errs, "\nstopped before step 1")
			require.NotContains(t, errs, "error: ")
			require.True(t, strings.HasSuffix(continued(t, errs), " -resume"), errs)
			if _, err := os.Stat(run); !test.begun {
				require.ErrorIs(t, err, os.ErrNotExist, "a run that has not begun leaves no folder")
			}
			var more []string
			for _, s := range test.instead {
				more = append(more, "-set "+s)
			}
			_, errs = shell(t, continued(t, errs)+" "+strings.Join(more, " "))
			require.Regexp(t, `no checkpoint in .*; starting from the beginning|resuming after step 0 from `, errs)
			undisturbed, whole := args("undisturbed", test.instead...)
			if _, err := os.Stat(whole); err != nil {
				code, _, errs := command(t, append(undisturbed, "-set", "inference.min_instances=1")...)
				require.Zero(t, code, errs)
			}
			require.Equal(t, weightsHash(t, whole, 2), weightsHash(t, run, 2))
		})
	}
}
