//go:build unix

package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// startServe starts easyrl serve in a process of its own and returns its address.
func startServe(t *testing.T, args ...string) (p *process, root string) {
	t.Helper()
	p = startProcess(t, nil, append([]string{"serve", "-listen", "127.0.0.1:0"}, args...)...)
	p.until("easyrl: serving ")
	return p, regexp.MustCompile(`http://\S+`).FindString(p.log.String())
}

// A signal ends a server in order.
func TestServeEndsWithASignal(t *testing.T) {
	dir := tinyRun(t)
	model := initTiny(t, dir, "m", 1)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p, root := startServe(t, "-model", model)
		a, code := askCompletions(t, root, "")
		require.Equal(t, http.StatusOK, code)
		requireGenerates(t, model, a)
		p.signal(sig)
		code, errs := p.end()
		require.Equal(t, exitDone, code, errs)
		require.Contains(t, errs, "no new requests")
	}
}

// A signal ends a member of a fleet in order: the trainer sends no more, what
// runs is answered in full, what comes is refused, and the trainer forgets it.
func TestServeLeavesInOrder(t *testing.T) {
	t.Parallel()
	control, trainer := controlFor(t)
	r := &onPaper{}
	control.Serve(r)
	p, root := startServe(t, "-simulate", "lengths=fixed:20,tokens_per_second=8,slots=4,vocab=16", "-join", trainer)
	p.until("easyrl: joined ")
	type outcome struct {
		answered
		code int
	}
	runs := make(chan outcome, 1)
	go func() {
		a, code := askCompletions(t, root, "")
		runs <- outcome{a, code}
	}()
	untilMetrics(t, root, "vllm:num_requests_running", "3")
	p.signal(syscall.SIGTERM)
	p.until("easyrl: no new requests")
	code := 0
	for code != http.StatusServiceUnavailable { // the line comes a moment before
		var a answered
		code = ask(t, http.MethodPost, root+"/v1/completions", "", strings.NewReader(`{"prompt":[3],"max_tokens":1}`), &a)
		require.Contains(t, []int{http.StatusOK, http.StatusServiceUnavailable}, code, a.Error)
	}
	require.Equal(t, []string{"add easyrl " + root, "drain host/1"}, r.called(""), "it is a member while it answers")
	a := <-runs
	require.Equal(t, http.StatusOK, a.code, a.Error)
	for _, c := range a.Choices {
		require.Len(t, c.IDs, 20)
	}
	code, errs := p.end()
	require.Equal(t, exitDone, code, errs)
	require.Equal(t, []string{"drain host/1", "remove host/1"}, r.called("")[1:])
}

const slow = "lengths=uniform:2,10,tokens_per_second=20,slots=4,vocab=16,context=64"

// controlAddress is one that nobody listens on.
func controlAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// joinedRun are the arguments of a run that has instances which join.
func joinedRun(dir, run, control string, settings ...string) []string {
	args := []string{"train", filepath.Join(dir, "run.toml")}
	for _, s := range append(settings, fmt.Sprintf("run.dir=%q", run), "inference.kind=easyrl", fmt.Sprintf("control.listen=%q", control)) {
		args = append(args, "-set", s)
	}
	return args
}

// An instance that is ended in the middle of a run costs the run nothing: no
// request fails.
func TestServeLeavesARun(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run, control := filepath.Join(dir, "run"), controlAddress(t)
	var servers []*process
	for range 2 {
		p, _ := startServe(t, "-simulate", slow, "-join", "http://"+control)
		servers = append(servers, p)
	}
	trainer := startProcess(t, nil, joinedRun(dir, run, control, "run.steps=5", "inference.min_instances=1")...)
	for _, p := range servers {
		p.until("easyrl: joined ")
	}
	trainer.until("step 2/5")
	servers[0].signal(syscall.SIGTERM)
	code, errs := servers[0].end()
	require.Equal(t, exitDone, code, errs)
	code, errs = trainer.end()
	require.Zero(t, code, errs)
	require.NotRegexp(t, "SUSPECT|DEAD|STALE|RETIRED", errs)
	require.Contains(t, errs, " left")
	steps, err := report.ReadMetrics(filepath.Join(run, report.MetricsFile))
	require.NoError(t, err)
	require.Len(t, steps, 5)
	for _, values := range steps {
		require.Zero(t, values["fleet/retries"])
		require.Zero(t, values["groups/failed"])
	}
	require.Equal(t, 1.0, steps[4]["fleet/size"])
}

// A trainer that is killed and resumed has its instances again: they join by
// themselves, but for the one that was taken out.
func TestServeJoinsAResumedRun(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run, control := filepath.Join(dir, "run"), controlAddress(t)
	out, outRoot := startServe(t, "-simulate", slow, "-join", "http://"+control)
	_, stays := startServe(t, "-simulate", slow, "-join", "http://"+control)
	args := joinedRun(dir, run, control, "run.steps=6")
	trainer := startProcess(t, nil, args...)
	out.until("easyrl: joined ")
	trainer.until("step 2/6")
	code, _, errs := command(t, "fleet", "remove", outRoot, "-trainer", "http://"+control)
	require.Zero(t, code, errs)
	trainer.signal(syscall.SIGKILL) // before the instance can see that it was taken out
	_, errs = trainer.end()
	require.NotContains(t, errs, "step 6/6", "it was to be killed in the middle")
	trainer = startProcess(t, nil, append(args, "-resume")...)
	code, errs = trainer.end()
	require.Zero(t, code, errs)
	require.Contains(t, errs, "resuming after step ")
	require.Contains(t, errs, "instance "+stays+" (easyrl) joined")
	require.NotContains(t, errs, outRoot)
	out.until("easyrl: http://" + control + " took the instance out")
	requireSteps(t, run, 1, 6)
}

// A server that talks out of turn fails its calls and is not heard otherwise.
func TestServerThatTalksOutOfTurn(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		serving.Wait()
	})
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = conn.Write([]byte("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\nHTTP/1.1 400 Bad Request\r\n\r\n"))
				}
			})
		}
	})
	dir := tinyRun(t)
	p := startProcess(t, nil, "train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", filepath.Join(dir, "out")),
		"-set", "inference.kind=easyrl", "-set", "inference.endpoints=http://"+listener.Addr().String())
	code, errs := p.end()
	require.Equal(t, exitFailed, code, errs)
	require.Equal(t, 1, strings.Count(errs, "\n"), errs)
}

// A server that one run has is refused to another, in a line that names the first,
// which goes on; killed, it has the server again at once, and after its end another
// may have it.
func TestTwoTrainersOnOneServer(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	_, root := startServe(t, "-simulate", slow)
	run := func(name string, steps int) []string {
		return []string{"train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", filepath.Join(dir, name)), "-set", "run.name=" + name,
			"-set", fmt.Sprint("run.steps=", steps), "-set", "inference.kind=easyrl", "-set", "inference.endpoints=" + root}
	}
	first := startProcess(t, nil, run("first", 4)...)
	first.until("step 1/4")
	code, _, errs := command(t, run("second", 1)...)
	require.Equal(t, exitFailed, code)
	require.Regexp(t, `^easyrl: 0 instances are there, expected inference.min_instances = 1: instance `+root+
		`: POST /v1/trainer: status 409: it serves run first in \S+ on \S+, heard of \d+s ago, expected no other trainer: .*\n$`, errs)
	require.NoDirExists(t, filepath.Join(dir, "second"))
	first.signal(syscall.SIGKILL)
	_, errs = first.end()
	require.NotContains(t, errs, "STALE")
	code, _, errs = command(t, append(run("first", 4), "-resume")...)
	require.Zero(t, code, errs)
	require.NotContains(t, errs, "other trainer")
	code, _, errs = command(t, run("second", 1)...)
	require.Zero(t, code, errs)
}
