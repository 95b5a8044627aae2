//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// passing is a reverse proxy that shows a test every request that it passes on.
type passing struct {
	URL    string
	before atomic.Pointer[func()]                 // called before a request is passed on; may be nil
	after  atomic.Pointer[func(call string) bool] // called when the server has answered; false drops the answer
}

// newPassing returns a proxy for the server at root.
func newPassing(t *testing.T, root string) *passing {
	t.Helper()
	backend, err := url.Parse(root)
	require.NoError(t, err)
	p := &passing{}
	pass := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(backend) },
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ModifyResponse: func(r *http.Response) error {
			if after := p.after.Load(); after != nil && !(*after)(r.Request.Header.Get("X-Test-Call")) {
				return http.ErrAbortHandler
			}
			return nil
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before := p.before.Load(); before != nil {
			(*before)()
		}
		call := r.Method + " " + r.URL.Path
		if r.URL.Path == "/v1/trainer" && r.Method == http.MethodPost {
			text, _ := io.ReadAll(r.Body) // what is missing, the server misses
			if bytes.Contains(text, []byte(`"try"`)) {
				call += " try"
			}
			r.Body = io.NopCloser(bytes.NewReader(text))
		}
		r.Header.Set("X-Test-Call", call)
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	p.URL = server.URL
	return p
}

// servedRun returns the folder of a tiny run and the arguments with which it trains into the
// folder name with the servers behind n proxies.
func servedRun(t *testing.T, n, steps int) (
	dir string, servers []*passing, args func(name string, more ...string) []string,
) {
	t.Helper()
	dir = tinyRun(t)
	model := initTiny(t, dir, "served", 9)
	var urls []string
	for range n {
		root, _, _ := serveFolder(t, "-model", model, "-threads", "1", "-max-running", "5")
		servers = append(servers, newPassing(t, root))
		urls = append(urls, fmt.Sprintf("%q", servers[len(servers)-1].URL))
	}
	return dir, servers, func(name string, more ...string) []string {
		return append([]string{"train", filepath.Join(dir, "run.toml"),
			"-set", fmt.Sprintf("run.dir=%q", filepath.Join(dir, name)),
			"-set", fmt.Sprint("run.steps=", steps), "-set", "inference.kind=easyrl",
			"-set", "inference.endpoints=[" + strings.Join(urls, ",") + "]"}, more...)
	}
}

// A trainer that is killed as soon as a server has granted its claim gets the server back at
// once. A copy of its folder and a run in another folder do not get it.
func TestKilledBetweenClaimAndAnswer(t *testing.T) {
	t.Parallel()
	dir, servers, args := servedRun(t, 1, 2)
	want := weightsHash(t, trainTiny(t, dir, "embedded", "run.steps=2"), 2)
	claimed, killed := make(chan struct{}), make(chan struct{})
	hold := func(call string) bool {
		if call != "POST /v1/trainer" {
			return true
		}
		close(claimed)
		<-killed
		return false
	}
	servers[0].after.Store(&hold)
	p := startProcess(t, nil, args("killed")...)
	go func() { // the process's lines, which it must not wait for
		for range p.lines {
			continue
		}
	}()
	<-claimed
	p.signal(syscall.SIGKILL)
	require.Error(t, p.cmd.Wait())
	servers[0].after.Store(nil)
	close(killed)
	copyDir(t, filepath.Join(dir, "killed"), dir, "copied")
	for _, name := range []string{"copied", "other"} {
		code, _, errs := command(t, args(name, "-resume")...)
		require.Equal(t, exitFailed, code, errs)
		require.Contains(t, errs, `instance is held by trainer "run run in `+filepath.Join(dir, "killed"))
	}
	code, _, errs := command(t, args("killed", "-resume")...)
	require.Zero(t, code, errs)
	require.Equal(t, want, weightsHash(t, filepath.Join(dir, "killed"), 2))
}

// The first -resume of a trainer that was killed at a random moment, also while it connects to
// servers and claims them, has its servers and ends in the bits of an undisturbed run.
func TestRandomTrainerKills(t *testing.T) {
	t.Parallel()
	const steps = 3
	t.Logf("-kill-seed %d", *killSeed)
	rng := rand.New(rand.NewPCG(*killSeed, 1))
	dir, servers, args := servedRun(t, 2, steps)
	want := weightsHash(t, trainTiny(t, dir, "embedded", fmt.Sprint("run.steps=", steps)), steps)
	var count atomic.Int64
	at := func(n int64, do func()) { // calls do at the n-th request from now on
		count.Store(0)
		before := func() {
			if count.Add(1) == n {
				do()
			}
		}
		for _, s := range servers {
			s.before.Store(&before)
		}
	}
	at(-1, nil)
	code, _, errs := command(t, args("measured")...)
	require.Zero(t, code, errs)
	require.Equal(t, want, weightsHash(t, filepath.Join(dir, "measured"), steps))
	all := count.Load()
	resumed := 0
	for i := range max(4, *kills) {
		name := fmt.Sprint("killed-", i)
		n := 1 + rng.Int64N(all)
		if i%2 == 0 {
			n = 1 + rng.Int64N(12) // while it starts
		}
		after := time.Duration(rng.Int64N(int64(20 * time.Millisecond)))
		moment := make(chan struct{})
		at(n, func() { close(moment) })
		p := startProcess(t, nil, args(name)...)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for range p.lines {
				continue
			}
		}()
		select {
		case <-moment:
			<-time.After(after)
		case <-ended:
		}
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()
		at(-1, nil)
		code, _, errs := command(t, args(name, "-resume")...)
		require.Zero(t, code, "killed %v after request %d of %d: %s", after, n, all, errs)
		require.Equal(t, want, weightsHash(t, filepath.Join(dir, name), steps),
			"killed %v after request %d of %d", after, n, all)
		resumed++
	}
	t.Logf("%d of %d killed trainers resumed at the first try", resumed, max(4, *kills))
}
