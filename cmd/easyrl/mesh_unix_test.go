//go:build unix

package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/internal/porttest"
	"github.com/easyrl/easyrl/parallel"
)

// world describes the processes of a run whose ranks meet over TCP.
type world struct {
	t        *testing.T
	dir, out string // of the run's files and of the run
	verb     string
	mesh     parallel.Mesh
	port     string
	args     []string
}

// newWorld returns a world that trains dir's run into dir/name.
func newWorld(t *testing.T, dir, name string, m parallel.Mesh, settings ...string) *world {
	t.Helper()
	w := &world{t: t, dir: dir, out: filepath.Join(dir, name), verb: "train", mesh: m, port: freePort(t)}
	token := write(t, t.TempDir(), "token", "0123456789abcdef\n")
	for _, s := range append([]string{mesh(m), fmt.Sprintf("run.dir=%q", w.out)},
		append(settings, "parallel.token_file="+token)...) {
		w.args = append(w.args, "-set", s)
	}
	return w
}

// freePort returns a free port.
func freePort(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(porttest.Address(t))
	require.NoError(t, err)
	return port
}

// env returns the variables that a launcher sets for a rank.
func (w *world) env(rank int) []string {
	return []string{fmt.Sprint("RANK=", rank), fmt.Sprint("WORLD_SIZE=", w.mesh.Size()), "MASTER_ADDR=127.0.0.1",
		"MASTER_PORT=" + w.port}
}

// rank starts the process of a rank.
func (w *world) rank(rank int, env []string, more ...string) *process {
	w.t.Helper()
	args := append(append([]string{w.verb, filepath.Join(w.dir, "run.toml")}, w.args...), more...)
	return startProcess(w.t, func(cmd *exec.Cmd) { cmd.Env = append(append(cmd.Env, w.env(rank)...), env...) }, args...)
}

// start starts the processes of all ranks, rank 0 first.
func (w *world) start(more ...string) (ranks []*process) {
	w.t.Helper()
	for i := range w.mesh.Size() {
		ranks = append(ranks, w.rank(i, nil, more...))
	}
	return ranks
}

// run starts all ranks and requires that they succeed.
func (w *world) run(more ...string) {
	w.t.Helper()
	for i, p := range w.start(more...) {
		code, errs := p.end()
		require.Zero(w.t, code, "rank %d: %s", i, errs)
	}
}

// processCases returns some of meshCases with meshes for several processes.
func processCases() (some []meshCase) {
	meshes := map[string][]parallel.Mesh{
		"both":           {{DP: 2, TP: 1, PP: 1}, {DP: 2, TP: 2, PP: 1}},
		"previous split": {{DP: 1, TP: 2, PP: 1}, {DP: 1, TP: 1, PP: 2}},
		"gspo":           {{DP: 1, TP: 1, PP: 2}, {DP: 2, TP: 2, PP: 1}},
	}
	for _, c := range meshCases() {
		if c.meshes = meshes[c.name]; c.meshes != nil {
			some = append(some, c)
		}
	}
	return some
}

// Ranks in processes of their own end in the weights, moments and metrics of one rank.
func TestProcessesEndInSameBits(t *testing.T) {
	t.Parallel()
	for i, c := range processCases() {
		dir := meshRun(t, c.model)
		want := trainTiny(t, dir, "one", c.settings...)
		for k, m := range c.meshes {
			w := newWorld(t, dir, m.String(), m, append([]string{meshWith(m, i+2*k)}, c.settings...)...)
			w.run()
			requireSameBits(t, want, w.out, 5)
		}
	}
}

// pauseAtRandom stops and continues random processes until the result is called. It returns the
// number of stops.
func pauseAtRandom(t *testing.T, ranks []*process, seed uint64) (stop func() int) {
	t.Helper()
	random, over, count := rand.New(rand.NewPCG(seed, 5)), make(chan struct{}), make(chan int)
	wait := func() { <-time.After(time.Duration(1+random.IntN(50)) * time.Millisecond) }
	go func() {
		for n := 0; ; n++ {
			select {
			case <-over:
				count <- n
				return
			default:
			}
			p := ranks[random.IntN(len(ranks))].cmd.Process
			_ = p.Signal(syscall.SIGSTOP) // it may have exited
			wait()
			_ = p.Signal(syscall.SIGCONT)
			wait()
		}
	}()
	stop = sync.OnceValue(func() int {
		close(over)
		return <-count
	})
	t.Cleanup(func() { stop() })
	return stop
}

// Processes that stop at any time and continue end in the bits of one rank.
func TestPausedProcessesEndInSameBits(t *testing.T) {
	t.Parallel()
	dir := meshRun(t, "qwen3")
	settings := []string{"loss.old_policy=previous-step", "train.minibatches=2"}
	want := trainTiny(t, dir, "one", settings...)
	for i, m := range []parallel.Mesh{{DP: 1, TP: 2, PP: 1}, {DP: 2, TP: 2, PP: 1}} {
		t.Run(m.String(), func(t *testing.T) {
			w := newWorld(t, dir, m.String(), m, append([]string{meshWith(m, 5-i)}, settings...)...)
			ranks := w.start()
			stop := pauseAtRandom(t, ranks, uint64(i))
			var codes []int
			var errs []string
			for _, p := range ranks {
				code, text := p.end()
				codes, errs = append(codes, code), append(errs, text)
			}
			t.Logf("%d pauses", stop())
			require.Equal(t, make([]int, len(ranks)), codes, errs)
			requireSameBits(t, want, w.out, 5)
		})
	}
}

func TestProcessesTuneToSameBits(t *testing.T) {
	t.Parallel()
	dir := meshRun(t, "qwen2")
	settings := []string{"sft.steps=5", "sft.batch_size=16",
		"sft.data=" + write(t, dir, "demos.jsonl", demonstrations())}
	want := tuneTiny(t, dir, "one", settings...)
	w := newWorld(t, dir, "two", parallel.Mesh{DP: 1, TP: 1, PP: 2}, settings...)
	w.verb = "sft"
	w.run()
	requireSameBits(t, want, w.out, 5)
}

// stepGate holds a run in the middle of a step: the instances of its rank 0 sample behind a proxy, which
// answers some requests of version 3 and holds the others until open is closed.
func stepGate(t *testing.T, model string) (proxied string, came <-chan struct{}, open chan<- struct{}) {
	t.Helper()
	root, _, _ := serveFolder(t, "-model", model, "-threads", "1", "-max-running", "5")
	p, there, wait := newProxy(t, root), make(chan struct{}), make(chan struct{})
	var asked atomic.Int64
	p.on(func(x *exchange) {
		if !x.update && x.version == 3 {
			switch n := asked.Add(1); {
			case n == 4:
				close(there)
				fallthrough
			case n > 4:
				x.wait(wait)
			}
		}
		x.pass()
	})
	return endpoints(p), there, wait
}

// await waits for an event while the process runs.
func (p *process) await(event <-chan struct{}) {
	p.t.Helper()
	for {
		select {
		case <-event:
			return
		case line, ok := <-p.lines:
			require.True(p.t, ok, "the process exited too early: %s", &p.log)
			p.log.WriteString(line + "\n")
		}
	}
}

// The ranks of a run end if rank 0 dies or hangs in the middle of a step. All name it, the last checkpoint
// remains, and the resumed run ends in the bits of an undisturbed one.
func TestTrainerFailures(t *testing.T) {
	t.Parallel()
	dir := meshRun(t, "qwen3")
	settings := []string{"train.minibatches=2", "train.micro_batch_tokens=10"}
	want, model := trainTiny(t, dir, "one", settings...), initTiny(t, dir, "served", 9)
	for name, row := range map[string]struct {
		mesh   parallel.Mesh
		signal syscall.Signal
		reason string // besides that the connection has ended
	}{
		"killed":  {parallel.Mesh{DP: 1, TP: 2, PP: 2}, syscall.SIGKILL, ""},
		"stopped": {parallel.Mesh{DP: 1, TP: 2, PP: 1}, syscall.SIGSTOP, "no sign of life for 3s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxied, came, _ := stepGate(t, model)
			w := newWorld(t, dir, name, row.mesh, append([]string{meshWith(row.mesh, 0)}, settings...)...)
			var ranks []*process
			var env []string
			if row.reason != "" {
				env = []string{silenceKey + "=3s"}
			}
			for i := range row.mesh.Size() {
				ranks = append(ranks, w.rank(i, env, "-set", "inference.kind=easyrl", "-set", proxied))
			}
			ranks[0].await(came)
			last := filepath.Join(w.out, "checkpoints", checkpoint.StepName(2))
			require.Eventually(t, func() bool { _, err := os.Stat(last); return err == nil }, time.Minute,
				time.Millisecond, "it is written beside step 3")
			ranks[0].signal(row.signal)
			for _, p := range ranks[1:] {
				requireEnd(t, p, exitFailed, `^error: .*\brank 0 \(127\.0\.0\.1:\d+\): .*`+row.reason)
			}
			ranks[0].signal(syscall.SIGKILL)
			code, errs := ranks[0].end()
			require.Equal(t, -1, code, errs)
			require.DirExists(t, last)
			require.NoDirExists(t, filepath.Join(w.out, "checkpoints", checkpoint.StepName(3)))
			w.run("-resume")
			requireSameBits(t, want, w.out, 5)
		})
	}
}

// A rank other than 0 that dies or hangs in the middle of a step is replaced by a process that is started with its
// command. The run ends in the bits of an undisturbed one.
func TestLostRanksAreReplaced(t *testing.T) {
	t.Parallel()
	dir := meshRun(t, "qwen3")
	settings := []string{"train.minibatches=2", "train.micro_batch_tokens=10", "loss.old_policy=previous-step",
		"loss.beta=0.1"}
	want, model := trainTiny(t, dir, "one", settings...), initTiny(t, dir, "served", 9)
	for name, row := range map[string]struct {
		mesh   parallel.Mesh
		victim int
		signal syscall.Signal
		reason string
	}{
		"killed tensor rank":   {parallel.Mesh{DP: 1, TP: 2, PP: 1}, 1, syscall.SIGKILL, "connection is closed"},
		"killed pipeline rank": {parallel.Mesh{DP: 1, TP: 2, PP: 2}, 3, syscall.SIGKILL, "connection is closed"},
		"killed data rank":     {parallel.Mesh{DP: 2, TP: 1, PP: 1}, 1, syscall.SIGKILL, "connection is closed"},
		"stopped tensor rank":  {parallel.Mesh{DP: 2, TP: 2, PP: 1}, 3, syscall.SIGSTOP, "no sign of life for 3s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxied, came, open := stepGate(t, model)
			w := newWorld(t, dir, name, row.mesh, append([]string{meshWith(row.mesh, row.victim)}, settings...)...)
			start := func(rank int) *process {
				return w.rank(rank, []string{silenceKey + "=3s"}, "-set", "inference.kind=easyrl", "-set", proxied)
			}
			var ranks []*process
			for i := range row.mesh.Size() {
				ranks = append(ranks, start(i))
			}
			ranks[0].await(came)
			lost := ranks[row.victim]
			lost.signal(row.signal)
			ranks[row.victim] = start(row.victim)
			ranks[row.victim].until("rank ")
			close(open)
			for i, p := range ranks {
				code, errs := p.end()
				require.Zero(t, code, "rank %d: %s", i, errs)
				if i == 0 {
					require.Regexp(t, fmt.Sprintf(
						`warning: .*\brank %d \(127\.0\.0\.1:\d+\): .*%s.*; waiting for all ranks `+
							`to join again, from update \d \(1 of 3\)`, row.victim, row.reason), errs)
				}
			}
			lost.signal(syscall.SIGKILL)
			lost.end()
			require.NoDirExists(t, filepath.Join(w.out, "recovery"))
			requireSameBits(t, want, w.out, 5)
		})
	}
}

// A rank that dies while the weights are evaluated is replaced at once, because the others wait only a minute.
func TestLostRankIsReplacedDuringEvaluation(t *testing.T) {
	t.Parallel()
	dir := meshRun(t, "qwen3")
	want, model := trainTiny(t, dir, "one", "eval.every=1"), initTiny(t, dir, "served", 9)
	proxied, came, open := stepGate(t, model) // version 3 is first evaluated
	w := newWorld(t, dir, "two", parallel.Mesh{DP: 1, TP: 2, PP: 1}, "eval.every=1", "inference.kind=easyrl", proxied)
	ranks := w.start()
	ranks[0].await(came)
	ranks[1].signal(syscall.SIGKILL)
	ranks[1].end()
	ranks[1] = w.rank(1, nil)
	ranks[0].until("warning: ")
	ranks[0].until("rank 0 of 2 joins at ")
	close(open)
	for i, p := range ranks {
		code, errs := p.end()
		require.Zero(t, code, "rank %d: %s", i, errs)
	}
	requireSameBits(t, want, w.out, 5)
}

// Ranks that are killed at random moments of a run, and started again, change no bit.
func TestRanksAreReplacedAtRandom(t *testing.T) {
	t.Parallel()
	kills := 2
	if os.Getenv("EASYRL_SOAK") != "" {
		kills = 20
	}
	steps := kills + 1
	random := rand.New(rand.NewPCG(uint64(kills), 7))
	dir := meshRun(t, "qwen2")
	settings := []string{fmt.Sprintf("run.steps=%d", steps), "train.minibatches=2", "train.micro_batch_tokens=10",
		"loss.beta=0.1", "checkpoint.every=3"}
	want := trainTiny(t, dir, "one", settings...)
	for i, m := range []parallel.Mesh{{DP: 2, TP: 2, PP: 1}, {DP: 1, TP: 1, PP: 3}} {
		t.Run(m.String(), func(t *testing.T) {
			w := newWorld(t, dir, m.String(), m, append([]string{meshWith(m, i+1)}, settings...)...)
			ranks := w.start()
			for step := 1; step <= kills; step++ {
				ranks[0].until(fmt.Sprintf("step %d/", step))
				<-time.After(time.Duration(random.IntN(100)) * time.Millisecond)
				victim := 1 + random.IntN(m.Size()-1)
				ranks[victim].signal(syscall.SIGKILL)
				ranks[victim].end()
				ranks[victim] = w.rank(victim, nil)
			}
			for k, p := range ranks {
				code, errs := p.end()
				require.Zero(t, code, "rank %d: %s", k, errs)
			}
			requireSameBits(t, want, w.out, steps)
		})
	}
}

// A signal ends a run whose ranks wait for a lost one. The last checkpoint remains: that of the last step, unless the
// rank was lost before its copies were written.
func TestSignalWhileRanksJoinAgain(t *testing.T) {
	t.Parallel()
	dir := meshRun(t, "llama")
	w := newWorld(t, dir, "run", parallel.Mesh{DP: 3, TP: 1, PP: 1}, "run.steps=1000", "checkpoint.every=1")
	ranks := w.start()
	ranks[0].until("step 2/")
	ranks[1].signal(syscall.SIGKILL)
	ranks[0].until("rank 0 of 3 joins")
	for _, i := range []int{2, 0} {
		ranks[i].signal(syscall.SIGTERM)
	}
	code, errs := ranks[0].end()
	if code == exitStopped {
		require.Regexp(t, `\nstopped after step \d+\nhint: `, errs)
	} else {
		require.Equal(t, exitFailed, code, errs)
		require.Regexp(t, `\nerror: .*stopped by signal: terminated.*; `+
			`-resume continues from the checkpoint of step \d+\n$`, errs)
	}
	code, errs = ranks[2].end()
	require.Equal(t, exitFailed, code, errs)
	require.Regexp(t, `\nerror: .*rank 1 \(.*; join world .* as rank 2 of 3: `, errs)
	ranks[1].end()
}

// A signal to all processes, as launchers send it, writes a checkpoint of the last finished step.
func TestStoppedRanks(t *testing.T) {
	t.Parallel()
	dir := meshRun(t, "llama")
	settings := []string{"run.steps=8", "checkpoint.every=1000"}
	want := trainTiny(t, dir, "one", settings...)
	for i, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		w := newWorld(t, dir, s.String(), parallel.Mesh{DP: 1, TP: 2, PP: 2}, settings...)
		ranks := []*process{w.rank(0, []string{holdKey + "=step 2/8"})}
		for k := 1; k < w.mesh.Size(); k++ {
			ranks = append(ranks, w.rank(k, nil))
		}
		ranks[0].until("step 2/8")
		for k := range ranks {
			ranks[(i+k)%len(ranks)].signal(s)
		}
		code, errs := ranks[0].end()
		require.Equal(t, exitStopped, code, errs)
		var step int
		lines := strings.Split(strings.TrimSpace(errs), "\n")
		_, err := fmt.Sscanf(lines[len(lines)-2], "stopped after step %d", &step)
		require.NoError(t, err, errs)
		require.DirExists(t, filepath.Join(w.out, "checkpoints", checkpoint.StepName(step)))
		for _, p := range ranks[1:] {
			code, errs := p.end()
			require.Equal(t, exitStopped, code, errs)
			require.NotContains(t, errs, "error")
			require.NotContains(t, errs, stoppingCleanly)
			require.Contains(t, errs, "\n"+s.String()+
				": this rank continues until rank 0 ends; press Ctrl-C again to quit now\n")
			require.True(t, strings.HasSuffix(errs, "rank 0 has stopped the run\n"), errs)
		}
		w.run("-resume")
		requireSameBits(t, want, w.out, 8)
	}
}

// A run goes on after a signal to a rank other than 0. One to rank 0 alone stops all.
func TestSignalToOneRank(t *testing.T) {
	t.Parallel()
	dir := meshRun(t, "llama")
	w := newWorld(t, dir, "run", parallel.Mesh{DP: 1, TP: 2, PP: 1}, "run.steps=40", "rollout.prompts_per_step=24")
	ranks := w.start()
	ranks[0].until("step 1/")
	ranks[1].signal(syscall.SIGTERM)
	ranks[0].until("step 3/")
	ranks[0].signal(syscall.SIGINT)
	code, errs := ranks[0].end()
	require.Equal(t, exitStopped, code, errs)
	require.Contains(t, errs, "\ninterrupt: "+stoppingCleanly+"\n")
	code, errs = ranks[1].end()
	require.Equal(t, exitStopped, code, errs)
	require.Regexp(t, "(?s)\nterminated: this rank continues until rank 0 ends; .*rank 0 has stopped the run\n$", errs)
}

// If a run fails for another reason than a rank, rank 0 says why, and no process looks complete.
func TestFailedRunEndsAllRanks(t *testing.T) {
	t.Parallel()
	dir := meshRun(t, "llama")
	w := newWorld(t, dir, "run", parallel.Mesh{DP: 1, TP: 2, PP: 1}, "inference.kind=easyrl",
		"inference.endpoints=http://127.0.0.1:9", "inference.wait_seconds=1")
	ranks := w.start()
	code, errs := ranks[0].end()
	require.NotZero(t, code, errs)
	require.Contains(t, errs, "127.0.0.1:9")
	requireEnd(t, ranks[1], exitFailed, "^error: the run has failed; rank 0 says why$")
}

// requireEnd requires that a process ends with a status and a line, and with at most one error.
func requireEnd(t *testing.T, p *process, status int, want string) {
	t.Helper()
	code, errs := p.end()
	require.Equal(t, status, code, errs)
	require.Regexp(t, "(?m)"+want, errs)
	require.LessOrEqual(t, strings.Count(errs, "error: "), 1, errs)
}

// A rank that does not belong to a run is refused with one line, and the run starts without it.
func TestStrangeRanks(t *testing.T) {
	t.Parallel()
	dir := meshRun(t, "qwen2")
	m := parallel.Mesh{DP: 1, TP: 2, PP: 1}
	w := newWorld(t, dir, "run", m, "run.steps=2")
	host := w.rank(0, nil)
	host.until("rank 0 of 2 joins at ")
	other := write(t, dir, "other", "fedcba9876543210\n")
	for want, setting := range map[string]string{
		`refused: "token differs, or the data was changed on the way"$`: "parallel.token_file=" + other,
		`run is .*dp=2 tp=1 pp=1.*expected .*dp=1 tp=2 pp=1`:            mesh(parallel.Mesh{DP: 2, TP: 1, PP: 1}),
		`run is .*elsewhere.*expected .*`:                               "run.dir=elsewhere",
		`rank 1 computes in .*bf16 .*, expected .*float32 .*, as rank`:  "device.numerics=bf16",
	} {
		other := w.rank(1, nil, "-set", setting)
		requireEnd(t, other, exitFailed, "^error: join world at 127.0.0.1:"+w.port+" as rank 1 of 2: rank 0: .*"+want)
	}
	requireEnd(t, w.rank(1, nil), exitDone, "rank 1 of 2 joins")
	code, errs := host.end()
	require.Zero(t, code, errs)
	require.Equal(t, 2, strings.Count(errs, "refuse connection from 127.0.0.1:"), errs)
	require.Contains(t, errs, "refused 2 more connections: 2 of ranks that do not belong here")
}

// relayTo accepts connections and passes them on to a port of this machine. It changes one byte of what
// the first connection carries that carries enough.
func relayTo(t *testing.T, port string) (at string) {
	t.Helper()
	const offset = 3000 // behind the handshake
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	var changed atomic.Bool
	join := func(near net.Conn) {
		defer near.Close()
		far, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return // the rank tries again
		}
		defer far.Close()
		go func() {
			defer near.Close()
			_, _ = io.Copy(near, far) // until either side ends
		}()
		if _, err := io.CopyN(far, near, offset); err != nil {
			return
		}
		b := make([]byte, 1)
		if _, err := io.ReadFull(near, b); err != nil {
			return
		}
		if changed.CompareAndSwap(false, true) {
			b[0] ^= 1
		}
		_, _ = far.Write(b) // copying fails too
		_, _ = io.Copy(far, near)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go join(c)
		}
	}()
	_, at, err = net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return at
}

// A bit that changes between two ranks ends the run. No process goes on with other data.
func TestAlteredTraffic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, meshRun(t, "qwen3"), "altered", parallel.Mesh{DP: 1, TP: 2, PP: 1})
	between := relayTo(t, w.port)
	for _, p := range []*process{w.rank(0, nil), w.rank(1, []string{"MASTER_PORT=" + between})} {
		requireEnd(t, p, exitFailed,
			`rank 1 \(127\.0\.0\.1:\d+\): .*frame \d+ is not authentic, the data was changed on the way`)
	}
}

// A signal ends ranks that wait for others.
func TestSignalWhileRanksJoin(t *testing.T) {
	t.Parallel()
	dir := meshRun(t, "qwen2")
	w := newWorld(t, dir, "run", parallel.Mesh{DP: 3, TP: 1, PP: 1})
	host, other := w.rank(0, nil), w.rank(2, nil)
	host.until("rank 0 of 3 joins at ")
	other.until("rank 2 of 3 joins at ")
	other.signal(syscall.SIGTERM)
	requireEnd(t, other, exitStopped, "^stopped before step 1: join world .*stopped by signal: terminated")
	host.signal(syscall.SIGINT)
	requireEnd(t, host, exitStopped,
		`^stopped before step 1: join world .*stopped by signal: interrupt; ranks \[1 2\] have not joined`)
	require.NoDirExists(t, w.out)
}

// A signal to one process of a run that has not begun ends all with 3, and -resume begins the run.
func TestStoppedRanksBeforeFirstStep(t *testing.T) {
	t.Parallel()
	dir := meshRun(t, "qwen2")
	settings := []string{"run.steps=2", "control.listen=127.0.0.1:0", "inference.min_instances=2"}
	w := newWorld(t, dir, "run", parallel.Mesh{DP: 2, TP: 1, PP: 1}, settings...)
	ranks := w.start()
	ranks[0].until("waiting for instances: 1 available, expected at least 2")
	ranks[0].signal(syscall.SIGTERM)
	requireEnd(t, ranks[0], exitStopped, "^stopped before step 1$")
	requireEnd(t, ranks[1], exitStopped, "stopped")
	w.run("-resume", "-set", "inference.min_instances=1")
	requireSameBits(t, trainTiny(t, dir, "one", "run.steps=2"), w.out, 2)
}

// Ranks that cannot join say why in one line.
func TestRanksThatCannotJoin(t *testing.T) {
	t.Parallel()
	dir := meshRun(t, "qwen2")
	w := newWorld(t, dir, "run", parallel.Mesh{DP: 1, TP: 2, PP: 1})
	used, err := net.Listen("tcp", "127.0.0.1:"+w.port)
	require.NoError(t, err)
	defer used.Close()
	set := func(setting string) []string { return []string{"-set", setting} }
	short := write(t, dir, "short", "secret\n")
	for _, c := range []struct {
		env, args []string
		code      int
		want      string
		first     bool // only rank 0 fails
	}{
		{nil, nil, exitFailed, "as rank 0 of 2: listen tcp 127.0.0.1:" + w.port + ": bind: address already in use",
			true},
		{[]string{"WORLD_SIZE=3"}, nil, exitUsage,
			"the launcher started 3 processes, but [parallel] sets 2 ranks (dp=1 tp=2 pp=1)", false},
		{nil, set("parallel.tp=3"), exitUsage,
			"the launcher started 2 processes, but [parallel] sets 3 ranks (dp=1 tp=3 pp=1)", false},
		{nil, set("parallel.token_file=\"\""), exitUsage,
			"parallel.token_file is not set, expected a file with a token of at least 16 bytes", false},
		{nil, set("parallel.token_file=none"), exitUsage,
			"parallel.token_file: open none: no such file or directory", false},
		{nil, set("parallel.token_file=" + short), exitUsage, "token has 6 bytes, expected at least 16", false},
		{[]string{"MASTER_ADDR=", "MASTER_PORT="}, nil, exitUsage,
			"MASTER_ADDR and MASTER_PORT are not set, expected the address at which rank 0 of 2 listens", false},
		{[]string{"MASTER_PORT=none"}, nil, exitUsage, `MASTER_PORT is "none", expected a host and a port`, false},
		{[]string{"RANK=2"}, nil, exitUsage,
			`RANK is "2" and WORLD_SIZE is "2", expected a rank from 0 to the number of ranks minus 1`, false},
	} {
		for rank := range w.mesh.Size() {
			if rank == 0 || !c.first {
				requireEnd(t, w.rank(rank, c.env, c.args...), c.code, "^error: .*"+regexp.QuoteMeta(c.want))
			}
		}
	}
	require.NoDirExists(t, w.out)
}
