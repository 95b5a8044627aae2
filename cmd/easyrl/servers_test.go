package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/trace"
)

// A run ends in the same weights, bit for bit, wherever it samples: in its own process, on
// one server, on three servers of which one dies, or on servers and embedded engines.
func TestServersEndInSameWeights(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	want := weightsHash(t, trainTiny(t, dir, "embedded"), 5)
	model := initTiny(t, dir, "served", 9)
	for _, c := range []struct {
		name     string
		servers  int
		dies     int64
		settings []string
		size     float64 // of the fleet at the end
	}{
		{"one", 1, 0, nil, 1},
		{"three", 3, 3, []string{"inference.min_instances=2"}, 2},
		{"mixed", 2, 0, []string{"inference.instances=1"}, 3},
	} {
		var servers []*proxy
		for range c.servers {
			root, _, _ := serveFolder(t, "-model", model, "-threads", "1", "-max-running", "5")
			servers = append(servers, newProxy(t, root))
		}
		if c.dies > 0 {
			servers[0].on(diesAfter(c.dies))
		}
		out := filepath.Join(dir, c.name)
		args := []string{"train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", out),
			"-set", "inference.kind=easyrl", "-set", endpoints(servers...)}
		for _, set := range c.settings {
			args = append(args, "-set", set)
		}
		code, _, errs := command(t, args...)
		require.Zero(t, code, errs)
		require.Equal(t, want, weightsHash(t, out, 5), c.name)
		require.Equal(t, c.servers, strings.Count(errs, "(easyrl) joined"), errs)
		if c.dies > 0 {
			require.Regexp(t, `instance http://\S+: (SUSPECT|DEAD|STALE), was HEALTHY: `, errs)
		}
		steps, err := report.ReadMetrics(filepath.Join(out, report.MetricsFile))
		require.NoError(t, err)
		require.Equal(t, c.size, steps[4]["fleet/size"], errs)
		for _, values := range steps {
			require.GreaterOrEqual(t, values["idle/instances"], 0.0)
			require.Less(t, values["idle/instances"], 1.0, "the servers' work is counted")
		}
		trace, err := os.ReadFile(filepath.Join(out, trace.File))
		require.NoError(t, err)
		for _, s := range servers {
			require.Contains(t, string(trace), strconv.Quote(s.URL), "every instance has a row")
		}
		require.NoDirExists(t, filepath.Join(out, "weights"), "the servers' weight files are removed at the end")
	}
}

// A server that stops answering costs a run a few seconds, once, and changes nothing.
func TestStalledServerIsBypassed(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	want := trainTiny(t, dir, "embedded", "run.steps=4")
	var proxies []*proxy
	model := initTiny(t, dir, "served", 9)
	for range 2 {
		root, _, _ := serveFolder(t, "-model", model, "-threads", "1", "-max-running", "5")
		proxies = append(proxies, newProxy(t, root))
	}
	never := make(chan struct{})
	proxies[0].on(func(x *exchange) {
		if !x.update && x.version > 1 {
			x.wait(never)
		}
		x.pass()
	})
	tr := startTraining(t, dir, "stalled", fleet.DefaultConfig(), "run.steps=4", "inference.kind=easyrl",
		endpoints(proxies...))
	tr.end(t)
	requireSameRun(t, want, tr.out, 4)
	for step := 2; step <= 4; step++ {
		_, by := trainedOn(t, tr.out, step)
		require.Equal(t, map[string]int{proxies[1].URL: 6}, by)
	}
	require.Regexp(t, "instance "+proxies[0].URL+`: DEAD, was HEALTHY: no answer for [\d.]+m?s and no sign of work `+
		`for [\d.]+m?s; sending \d+ requests? to other instances`, tr.said.String())
	values := metricsOf(t, tr.out)
	require.Positive(t, values[1]["fleet/retries"])
	for _, v := range values[2:] {
		require.EqualValues(t, 1, v["fleet/size"])
		require.Zero(t, v["fleet/retries"], "no request reaches the stalled server again")
	}
}

// A run with one server goes on when the server has left requests unanswered and recovered, within
// inference.wait_seconds instead of the half hour that a call may take.
func TestOnlyServerRecovers(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	want := trainTiny(t, dir, "embedded", "run.steps=3")
	root, _, _ := serveFolder(t, "-model", initTiny(t, dir, "served", 9), "-threads", "1", "-max-running", "5")
	p := newProxy(t, root)
	never := make(chan struct{})
	var recovered atomic.Bool
	p.on(func(x *exchange) {
		if !x.update && x.version == 2 && !recovered.Load() {
			x.wait(never)
		}
		x.pass()
	})
	fc := fleet.DefaultConfig()
	fc.ProbeEvery = 50 * time.Millisecond
	tr := startTraining(t, dir, "recovers", fc, "run.steps=3",
		"inference.kind=easyrl", "inference.wait_seconds=100", endpoints(p))
	require.NotEmpty(t, tr.said.until(t, `(DEAD, was HEALTHY: .*, but it responds; sending)|ended`), tr.said)
	recovered.Store(true)
	tr.end(t)
	requireSameRun(t, want, tr.out, 3)
	require.Contains(t, tr.said.String(), "instance "+p.URL+": HEALTHY again")
}

// diesAfter returns a handler that answers the given number of requests for completions
// and then fails every call.
func diesAfter(answers int64) func(x *exchange) {
	var n atomic.Int64
	return func(x *exchange) {
		if !x.update && n.Add(1) > answers {
			x.p.gone.Store(true)
			panic(http.ErrAbortHandler)
		}
		x.pass()
	}
}

// A run that cannot get the instances it needs ends before it changes anything.
func TestUnreachableServers(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	const gone = "http://127.0.0.1:1" // a port that nothing listens on and that no test gets
	out := filepath.Join(dir, "out")
	code, _, errs := command(t, "train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", out),
		"-set", "inference.kind=easyrl", "-set", "inference.endpoints="+gone)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "error: 0 instances are available, expected at least 1 (inference.min_instances): ")
	require.Contains(t, errs, gone)
	require.Contains(t, errs, "connection refused")
	require.NoDirExists(t, out)
	code, _, errs = command(t, "train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", out),
		"-set", "inference.kind=easyrl", "-set", "inference.endpoints=http://a", "-set",
		"inference.token_file="+filepath.Join(dir, "none"))
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "error: inference.token_file: open ")
}
