//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
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
	p.until("serving ")
	return p, regexp.MustCompile(`http://\S+`).FindString(p.log.String())
}

// A signal stops a server cleanly.
func TestServeStopsOnSignal(t *testing.T) {
	t.Parallel()
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
		require.Contains(t, errs, "draining: waiting up to ")
	}
}

// A signal stops a fleet member cleanly: the trainer sends no more requests, running ones
// finish, new ones are rejected, and the trainer forgets the member.
func TestServeDrainsOnSignal(t *testing.T) {
	t.Parallel()
	control, trainer := controlFor(t)
	r := &onPaper{}
	control.Serve(r, nil)
	const tokens = 120_000
	p, root := startServe(t, "-simulate", fmt.Sprintf(
		"lengths=fixed:%d,tokens_per_second=1e9,slots=4,vocab=16,context=1048576", tokens), "-join", trainer)
	p.until("joined ")
	// A running stream that nobody reads, larger than the sockets' buffers.
	stream, err := http.Post(root+"/v1/completions", "application/json",
		strings.NewReader(fmt.Sprintf( //nolint:noctx // only a test
			`{"prompt":[3],"n":3,"max_tokens":%d,"logprobs":0,"return_token_ids":true,"stream":true}`, tokens)))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, stream.StatusCode)
	p.signal(syscall.SIGTERM)
	p.until("draining: waiting up to ")
	code := 0
	for code != http.StatusServiceUnavailable { // the line precedes the change by a moment
		var a answered
		code = ask(t, http.MethodPost, root+"/v1/completions", "",
			strings.NewReader(`{"prompt":[3],"max_tokens":1}`), &a)
		require.Contains(t, []int{http.StatusOK, http.StatusServiceUnavailable}, code, a.Error)
	}
	require.Equal(t, []string{"add easyrl " + root, "drain host/1"}, r.called(""), "it stays a member while it answers")
	text, err := io.ReadAll(stream.Body)
	require.NoError(t, errors.Join(err, stream.Body.Close()))
	require.Greater(t, len(text), 8<<20)
	require.Equal(t, 3*tokens, streamed(t, text))
	code, errs := p.end()
	require.Equal(t, exitDone, code, errs)
	require.Equal(t, []string{"drain host/1", "remove host/1"}, r.called("")[1:])
}

// streamed returns the number of tokens in a complete stream.
func streamed(t *testing.T, text []byte) (tokens int) {
	t.Helper()
	body, whole := bytes.CutSuffix(text, []byte("data: [DONE]\n\n"))
	require.True(t, whole)
	for event := range bytes.SplitSeq(body, []byte("\n\n")) {
		if len(event) == 0 {
			continue
		}
		var a answered
		require.NoError(t, json.Unmarshal(bytes.TrimPrefix(event, []byte("data: ")), &a))
		for _, c := range a.Choices {
			tokens += len(c.IDs)
		}
	}
	return tokens
}

const slow = "lengths=uniform:2,10,tokens_per_second=20,slots=12,vocab=16,context=64"

// controlOf returns the control address that a run prints.
func controlOf(trainer *process) string {
	trainer.t.Helper()
	trainer.until("live page: ")
	return regexp.MustCompile(`live page: (http://\S+)/`).FindStringSubmatch(trainer.log.String())[1]
}

// joinedRun returns the arguments of a run that instances can join.
func joinedRun(dir, run string, settings ...string) []string {
	args := []string{"train", filepath.Join(dir, "run.toml")}
	for _, s := range append(settings, fmt.Sprintf("run.dir=%q", run), "inference.kind=easyrl",
		"control.listen=127.0.0.1:0") {
		args = append(args, "-set", s)
	}
	return args
}

// Stopping an instance in the middle of a run costs nothing: no request fails.
func TestServeLeavesRun(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := filepath.Join(dir, "run")
	_, stays := startServe(t, "-simulate", slow)
	trainer := startProcess(t, nil, joinedRun(dir, run, "run.steps=1000",
		fmt.Sprintf("inference.endpoints=%q", stays))...)
	leaves, _ := startServe(t, "-simulate", slow, "-join", controlOf(trainer))
	leaves.until("joined ")
	trainer.until("step 2/1000")
	leaves.signal(syscall.SIGTERM)
	code, errs := leaves.end()
	require.Equal(t, exitDone, code, errs)
	steps, err := report.ReadMetrics(filepath.Join(run, report.MetricsFile))
	require.NoError(t, err)
	// The next step may have begun while the instance was leaving, the one after it has not.
	trainer.until(fmt.Sprintf("step %d/1000", len(steps)+2))
	trainer.signal(syscall.SIGINT)
	code, errs = trainer.end()
	require.Equal(t, exitStopped, code, errs)
	require.NotRegexp(t, "SUSPECT|DEAD|STALE|RETIRED", errs)
	require.Contains(t, errs, " left")
	steps, err = report.ReadMetrics(filepath.Join(run, report.MetricsFile))
	require.NoError(t, err)
	for _, values := range steps {
		require.Zero(t, values["fleet/retries"])
		require.Zero(t, values["groups/failed"])
	}
	require.Equal(t, 1.0, steps[len(steps)-1]["fleet/size"])
}

// After a trainer is killed and resumed, its instances rejoin without help, except the
// one that was removed.
func TestServeRejoinsResumedRun(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := filepath.Join(dir, "run")
	// nothing reads it, so the run blocks when it writes there
	held := filepath.Join(run, "rollouts", "step-000006.jsonl")
	require.NoError(t, os.MkdirAll(filepath.Dir(held), 0o755))
	require.NoError(t, syscall.Mkfifo(held, 0o644))
	control := newProxy(t, "")
	args := joinedRun(dir, run, "run.steps=6")
	trainer := startProcess(t, nil, args...)
	control.lead(controlOf(trainer))
	out, outRoot := startServe(t, "-simulate", slow, "-join", control.URL)
	stays, staysRoot := startServe(t, "-simulate", slow, "-join", control.URL)
	out.until("joined ")
	trainer.until("step 2/6")
	code, _, errs := command(t, "fleet", "remove", outRoot, "-trainer", control.URL)
	require.Zero(t, code, errs)
	trainer.signal(syscall.SIGKILL) // before the instance notices that it was removed
	_, errs = trainer.end()
	require.NotContains(t, errs, "step 6/6", "killed in the middle of the run")
	require.NoError(t, os.Remove(held))
	stays.signal(syscall.SIGSTOP) // without it the run waits
	trainer = startProcess(t, nil, append(args, "-resume")...)
	control.lead(controlOf(trainer))
	out.until("warning: " + control.URL + " removed the instance")
	stays.signal(syscall.SIGCONT)
	code, errs = trainer.end()
	require.Zero(t, code, errs)
	require.Contains(t, errs, "resuming after step ")
	require.Contains(t, errs, "instance "+staysRoot+" (easyrl) joined")
	require.NotContains(t, errs, outRoot)
	requireSteps(t, run, 1, 6)
}

// A server that sends unsolicited responses only fails its calls. The extra responses are
// not logged.
func TestUnsolicitedResponse(t *testing.T) {
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
					_, _ = conn.Write(
						[]byte("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\nHTTP/1.1 400 Bad Request\r\n\r\n"))
				}
			})
		}
	})
	dir := tinyRun(t)
	p := startProcess(t, nil, "train", filepath.Join(dir, "run.toml"), "-set",
		fmt.Sprintf("run.dir=%q", filepath.Join(dir, "out")),
		"-set", "inference.kind=easyrl", "-set", "inference.endpoints=http://"+listener.Addr().String())
	code, errs := p.end()
	require.Equal(t, exitFailed, code, errs)
	require.Equal(t, 1, strings.Count(errs, "\n"), errs)
}

// A run that uses a server blocks other runs from it. The second run's error names the
// first, which continues. If killed, the first run gets the server back at once; once it
// ends, another run may have it.
func TestTwoTrainersOnOneServer(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	_, root := startServe(t, "-simulate", slow)
	server, third := newProxy(t, root), newGate(3)
	server.on(func(x *exchange) {
		third.hold(x)
		x.pass()
	})
	run := func(name string, steps int) []string {
		return []string{"train", filepath.Join(dir, "run.toml"), "-set",
			fmt.Sprintf("run.dir=%q", filepath.Join(dir, name)), "-set", "run.name=" + name,
			"-set", fmt.Sprint("run.steps=", steps), "-set", "inference.kind=easyrl", "-set", endpoints(server)}
	}
	first := startProcess(t, nil, run("first", 4)...)
	first.until("step 2/4")
	code, _, errs := command(t, run("second", 1)...)
	require.Equal(t, exitFailed, code)
	require.Regexp(t, `^error: 0 instances are available, expected at least 1 \(inference.min_instances\): instance `+
		server.URL+
		`: POST /v1/trainer: status 409: instance is held by trainer "run first in \S+ on \S+", last heard from `+
		`\d+s ago\. Remove the instance from that run .*\n$`, errs)
	require.NoDirExists(t, filepath.Join(dir, "second"))
	close(third.open)
	first.until("step 3/4")
	first.signal(syscall.SIGKILL)
	_, errs = first.end()
	require.NotContains(t, errs, "STALE")
	code, _, errs = command(t, append(run("first", 4), "-resume")...)
	require.Zero(t, code, errs)
	require.NotContains(t, errs, "other trainer")
	code, _, errs = command(t, run("second", 1)...)
	require.Zero(t, code, errs)
}
