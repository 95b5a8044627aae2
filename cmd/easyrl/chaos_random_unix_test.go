//go:build unix

package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	randomSchedules = 10
	randomSteps     = 5
	randomActions   = 8
	randomServers   = 4 // the first has no faults; the last joins later
)

// action is something that happens to an instance at a given number of requests for
// responses.
type action struct {
	at       int64
	what     string
	instance int
}

// randomPlan returns a random but consistent schedule: it starts only dead instances and
// removes only members.
func randomPlan(rng *rand.Rand) (plan []action) {
	const up, stopped, dead = "up", "stopped", "dead"
	const in, drained, out = "in", "drained", "out"
	process := []string{up, up, up, up}
	place := []string{in, in, in, out}
	at := int64(0)
	for len(plan) < randomActions {
		i := 1 + rng.IntN(randomServers-1)
		var may []string
		switch process[i] {
		case up:
			may = append(may, "kill", "stop")
		case stopped:
			may = append(may, "continue", "kill")
		case dead:
			may = append(may, "start")
		}
		if place[i] == in {
			may = append(may, "drain")
		}
		if place[i] != out {
			may = append(may, "remove")
		}
		if place[i] != in && process[i] == up {
			may = append(may, "add", "add")
		}
		what := may[rng.IntN(len(may))]
		switch what {
		case "kill":
			process[i] = dead
		case "stop":
			process[i] = stopped
		case "continue", "start":
			process[i] = up
		case "drain":
			place[i] = drained
		case "remove":
			place[i] = out
		case "add":
			place[i] = in
		}
		at += 1 + rng.Int64N(6)
		plan = append(plan, action{at, what, i})
	}
	return plan
}

// stage holds the processes on which plans act. Several runs share it.
type stage struct {
	servers []*serverProcess
	proxies []*proxy
	stopped []bool
	dead    []bool
}

// do carries out an action. Calls to the run's control address run in the background, all
// other actions synchronously.
func (s *stage) do(t *testing.T, a action, control string, verbs *sync.WaitGroup) {
	server, i := s.servers[a.instance], a.instance
	switch a.what {
	case "kill":
		server.kill()
		s.dead[i], s.stopped[i] = true, false
	case "start":
		server.restart(s.proxies[i])
		s.dead[i] = false
	case "stop":
		server.signal(syscall.SIGSTOP)
		s.stopped[i] = true
	case "continue":
		server.signal(syscall.SIGCONT)
		s.stopped[i] = false
	default:
		verbs.Go(func() {
			said := &console{more: make(chan struct{}, 1)}
			code := runWith(io.Discard, said, "", "fleet", a.what, s.proxies[i].URL, "-trainer", control)
			t.Logf("fleet %s instance %d: %d %s", a.what, i, code, said) // adding a dead instance fails
		})
	}
}

// restore makes all processes run again.
func (s *stage) restore() {
	for i, server := range s.servers {
		if s.stopped[i] {
			server.signal(syscall.SIGCONT)
		}
		if s.dead[i] {
			server.restart(s.proxies[i])
		}
		s.stopped[i], s.dead[i] = false, false
	}
}

// moments pauses a run at the requests at which a plan has actions.
type moments struct {
	plan  []action
	count atomic.Int64
	came  chan chan struct{} // the test closes the received channel to resume the run
}

func (m *moments) meet(x *exchange) {
	if !x.update {
		n := m.count.Add(1)
		for _, a := range m.plan {
			if a.at != n {
				continue
			}
			goOn := make(chan struct{})
			select {
			case m.came <- goOn:
				x.wait(goOn)
			case <-x.r.Context().Done():
			}
		}
	}
	x.pass()
}

// Killing, stopping, draining, removing and adding processes at random moments does not
// change the run. A subtest's name is its seed; EASYRL_TEST_SEED sets the first one to
// repeat.
func TestRandomChaos(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	want := trainTiny(t, dir, "embedded", fleetSettings(randomSteps)...)
	servers, proxies := startServers(t, dir, randomServers)
	s := &stage{servers, proxies, make([]bool, randomServers), make([]bool, randomServers)}
	first := rand.Uint64N(1e9)
	if text := os.Getenv("EASYRL_TEST_SEED"); text != "" {
		var err error
		first, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	fc := impatient()
	fc.CallTimeout, fc.PublishTimeout = time.Second, time.Second
	for seed := first; seed < first+randomSchedules; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := &moments{plan: randomPlan(rand.New(rand.NewPCG(seed, 0))), came: make(chan chan struct{})}
			for _, p := range proxies {
				p.on(m.meet)
			}
			tr := startTraining(t, dir, fmt.Sprint("random-", seed), fc, append(fleetSettings(randomSteps),
				"inference.kind=easyrl", "control.listen=127.0.0.1:0", endpoints(proxies[:randomServers-1]...))...)
			control := tr.control(t)
			var verbs sync.WaitGroup
			defer verbs.Wait()
			done := 0
			for going := true; going && done < len(m.plan); {
				select {
				case goOn := <-m.came:
					t.Logf("%+v", m.plan[done])
					s.do(t, m.plan[done], control, &verbs)
					done++
					close(goOn)
				case <-tr.done:
					going = false
				}
			}
			tr.end(t)
			verbs.Wait()
			s.restore()
			require.Positive(t, done)
			requireSameRun(t, want, tr.out, randomSteps)
		})
	}
}
