//go:build unix

package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// serverProcess is easyrl serve in a process of its own.
type serverProcess struct {
	*process
	t     *testing.T
	setup func(*exec.Cmd)
	args  []string
	root  string // http://host:port
}

// startServer serves a model folder on listen, with weights that no run has.
func startServer(t *testing.T, setup func(*exec.Cmd), model, listen string, more ...string) *serverProcess {
	t.Helper()
	s := &serverProcess{t: t, setup: setup,
		args: append([]string{"serve", "-model", model, "-threads", "1", "-max-running", "5"}, more...)}
	s.start(listen)
	return s
}

func (s *serverProcess) start(listen string) {
	s.t.Helper()
	s.process = startProcess(s.t, s.setup, append(s.args, "-listen", listen)...)
	s.until("serving ")
	s.root = regexp.MustCompile(`http://\S+`).FindString(s.log.String())
}

// kill kills the process and waits for its exit.
func (s *serverProcess) kill() {
	s.t.Helper()
	s.signal(syscall.SIGKILL)
	code, errs := s.end()
	require.Equal(s.t, -1, code, errs)
}

// restart starts a new process with its original weights behind the given proxy.
func (s *serverProcess) restart(p *proxy) {
	s.t.Helper()
	s.start("127.0.0.1:0") // another process may use the old port by now
	p.lead(s.root)
}

// startServers starts n servers of the tiny model, each behind a proxy.
func startServers(t *testing.T, dir string, n int) (servers []*serverProcess, proxies []*proxy) {
	t.Helper()
	model := initTiny(t, dir, "served", 9)
	for range n {
		s := startServer(t, nil, model, "127.0.0.1:0")
		servers, proxies = append(servers, s), append(proxies, newProxy(t, s.root))
	}
	return servers, proxies
}

// fleetSettings returns the settings of a run of the given number of steps with more
// prompts than its servers take at once.
func fleetSettings(steps int) []string {
	return []string{fmt.Sprintf("run.steps=%d", steps), "rollout.prompts_per_step=12"}
}
