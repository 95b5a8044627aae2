//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The steps of a run with a fault: it comes in the second, what it leaves behind
// is seen in the third, and in the last all is well again.
const chaosSteps = 4

// fault is what one of three instances does wrong. It may answer x instead of
// the server, and says with x.fault that it came.
type fault struct {
	name  string
	times int64 // that it comes
	do    func(x *exchange)
}

// faultsOfServers are what a server, or what is between, can do to an answer.
func faultsOfServers() []fault {
	all := []fault{
		{"keeps its weights", 1, keepsWeights},
		{"keeps its weights and denies it", 3, deniesOldWeights},
		{"answers from a retired version", 1, answersLate()},
		{"drips", 1, drips},
		{"gives a response twice", 2, edits(func(choices []json.RawMessage) []json.RawMessage {
			choices[len(choices)-1] = choices[0]
			return choices
		})},
		{"gives all responses twice", 2, edits(func(choices []json.RawMessage) []json.RawMessage { return append(choices, choices...) })},
		{"says all twice", 2, changes(func(answer []byte) []byte { return append(answer, answer...) })},
		{"answers twice", 4, answersTwice},
		{"is cut off", 2, cut(true)},
		{"is cut off in a chunk", 2, cut(false)},
		{"fails", 4, refuses(http.StatusInternalServerError)},
		{"is full", 1, refuses(http.StatusTooManyRequests)},
		{"is not there", 2, refuses(http.StatusNotFound)},
		{"takes a prompt for invalid", 2, refuses(http.StatusBadRequest)},
	}
	first := regexp.MustCompile(`("token_logprobs":\[)[^,\]]+`)
	for _, value := range []string{"NaN", "null", "Infinity", "-1e39", "0.5", `"-1"`} {
		all = append(all, fault{"gives " + value, 2, changes(func(answer []byte) []byte { return first.ReplaceAll(answer, []byte("${1}"+value)) })})
	}
	return all
}

// inSecondStep says whether x asks for responses in the step in which most faults
// come.
func (x *exchange) inSecondStep() bool { return !x.update && x.version == 2 }

// changes changes the server's answer.
func changes(edit func(answer []byte) []byte) func(x *exchange) {
	return func(x *exchange) {
		if !x.inSecondStep() {
			return
		}
		status, answer := x.ask()
		edited := edit(bytes.Clone(answer))
		if !bytes.Equal(edited, answer) {
			x.fault()
		}
		x.give(status, edited)
	}
}

// edits changes the responses of the server's answer.
func edits(edit func(choices []json.RawMessage) []json.RawMessage) func(x *exchange) {
	return changes(func(answer []byte) []byte {
		var fields map[string]json.RawMessage
		var choices []json.RawMessage
		if json.Unmarshal(answer, &fields) != nil || json.Unmarshal(fields["choices"], &choices) != nil {
			return answer
		}
		fields["choices"], _ = json.Marshal(edit(choices)) // what was read can be written
		answer, _ = json.Marshal(fields)
		return answer
	})
}

// refuses answers with a status, and to come back in a second.
func refuses(status int) func(x *exchange) {
	return func(x *exchange) {
		if x.inSecondStep() {
			x.fault()
			x.w.Header().Set("Retry-After", "1")
			x.give(status, []byte(`{"error":{"message":"out of memory"}}`))
		}
	}
}

// keepsWeights says yes to new weights and has the old ones.
func keepsWeights(x *exchange) {
	if x.update && x.version == 2 {
		x.fault()
		x.give(http.StatusOK, []byte(`{"version":1,"checksum":"0123456789abcdef"}`))
	}
}

// deniesOldWeights also says that it has the new ones: their checksum is in the
// name of the folder that they are to be read from.
func deniesOldWeights(x *exchange) {
	if x.update && x.version == 2 {
		x.fault()
		_, sum, _ := strings.Cut(filepath.Base(filepath.Dir(x.r.URL.Query().Get("path"))), "-")
		x.give(http.StatusOK, fmt.Appendf(nil, `{"version":2,"checksum":%q}`, sum))
	}
}

// answersLate gives what was sampled in the second step in the third. It does not
// say for which prompt: only the version tells.
func answersLate() func(x *exchange) {
	var kept atomic.Pointer[[]byte]
	prompt := regexp.MustCompile(`"prompt_token_ids":\[[^\]]*\]`)
	return func(x *exchange) {
		late := kept.Load()
		switch {
		case x.inSecondStep() && late == nil:
			status, answer := x.ask()
			if status == http.StatusOK {
				kept.Store(&answer)
			}
			x.give(status, answer)
		case !x.update && x.version == 3 && late != nil:
			x.fault()
			x.give(http.StatusOK, prompt.ReplaceAll(*late, []byte(`"prompt_token_ids":null`)))
		}
	}
}

// drips answers with a byte a second for as long as somebody listens.
func drips(x *exchange) {
	if !x.inSecondStep() {
		return
	}
	x.fault()
	status, answer := x.ask()
	x.begin(status, len(answer))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for i := range answer {
		x.send(answer[i : i+1])
		select {
		case <-tick.C:
		case <-x.r.Context().Done():
			return
		}
	}
}

// cut breaks the connection off in the middle of an answer, which says how long
// it is or does not.
func cut(told bool) func(x *exchange) {
	return func(x *exchange) {
		if !x.inSecondStep() {
			return
		}
		x.fault()
		status, answer := x.ask()
		length := -1
		if told {
			length = len(answer)
		}
		x.begin(status, length)
		x.send(answer[:len(answer)/2])
		panic(http.ErrAbortHandler)
	}
}

// answersTwice sends a second answer that nobody asked for down the connection,
// where the next request may find it.
func answersTwice(x *exchange) {
	if !x.inSecondStep() {
		return
	}
	status, answer := x.ask()
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		return
	}
	x.fault()
	x.answered = true
	whole := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), len(answer), answer)
	_, _ = conn.Write(append(whole, whole...))
	_ = conn.Close()
}

// shares lets the instance behind the first proxy have its share of the steps that
// matter, however slow it is: those behind the others wait for it.
type shares struct {
	came     [chaosSteps]chan struct{} // by version: closed when the first has a request of it
	once     [chaosSteps]sync.Once
	answered atomic.Int64  // requests of the last step
	well     chan struct{} // closed when these are enough for one at least to be in time
}

// share holds the others in the steps 2 to held until the first proxy has been
// asked, and in the last until the instance behind it is well again.
func share(proxies []*proxy, held int64) *shares {
	r := &shares{well: make(chan struct{})}
	for i := range r.came {
		r.came[i] = make(chan struct{})
	}
	for _, p := range proxies[1:] {
		p.on(func(x *exchange) {
			switch {
			case x.update:
			case x.version == chaosSteps:
				x.wait(r.well)
			case x.version > 1 && x.version <= held:
				x.wait(r.came[x.version])
			}
			x.pass()
		})
	}
	return r
}

// meet notes what comes to the first proxy.
func (r *shares) meet(x *exchange) {
	if !x.update && x.version < chaosSteps {
		r.once[x.version].Do(func() { close(r.came[x.version]) })
	}
}

// pass lets an exchange of the first proxy through.
func (r *shares) pass(x *exchange) {
	if x.pass() == http.StatusOK && !x.update && x.version == chaosSteps && r.answered.Add(1) == 3 {
		close(r.well)
	}
}

func chaosSettings(proxies []*proxy) []string {
	return append(fleetSettings(chaosSteps), "inference.kind=easyrl", endpoints(proxies...))
}

// Whatever an instance answers, each prompt of the run is trained once, on the
// responses that a run without faults has, and the instance serves again when it
// is well.
func TestChaosOfAnswers(t *testing.T) {
	dir := tinyRun(t)
	want := trainTiny(t, dir, "embedded", fleetSettings(chaosSteps)...)
	_, proxies := startServers(t, dir, 3)
	for i, f := range faultsOfServers() {
		t.Run(f.name, func(t *testing.T) {
			var met atomic.Int64
			all := share(proxies, 3)
			proxies[0].on(func(x *exchange) {
				all.meet(x)
				x.fault = func() { met.Add(1) }
				if met.Load() < f.times {
					f.do(x)
				}
				if !x.answered {
					all.pass(x)
				}
			})
			tr := startTraining(t, dir, fmt.Sprint("fault-", i), impatient(), chaosSettings(proxies)...)
			tr.end(t)
			require.Positive(t, met.Load(), "the fault came")
			requireSameRun(t, want, tr.out, chaosSteps)
			_, by := trainedOn(t, tr.out, chaosSteps)
			require.Positive(t, by[proxies[0].URL], "it serves again")
		})
	}
}

// The same for what happens to processes: one is killed for good, one stopped for
// longer than any call may take, and one killed and started anew under its
// name, with weights that are not the run's.
func TestChaosOfProcesses(t *testing.T) {
	dir := tinyRun(t)
	want := trainTiny(t, dir, "embedded", fleetSettings(chaosSteps)...)
	servers, proxies := startServers(t, dir, 3)
	victim := servers[0]
	// strike does its worst when the victim has a request of the second step,
	// mend what it can when another instance has one of the third.
	run := func(t *testing.T, name string, strike, mend func(), comesBack bool) *training {
		second, third, all := newGate(2), newGate(3), share(proxies, 2)
		if !comesBack {
			all.answered.Store(3)
			close(all.well)
		}
		proxies[0].on(func(x *exchange) {
			all.meet(x)
			second.hold(x)
			all.pass(x)
		})
		others := proxies[1].handler()
		proxies[1].on(func(x *exchange) {
			third.hold(x)
			others(x)
		})
		tr := startTraining(t, dir, name, impatient(), chaosSettings(proxies)...)
		tr.until(t, second.came)
		strike()
		close(second.open)
		tr.until(t, third.came)
		mend()
		close(third.open)
		tr.end(t)
		requireSameRun(t, want, tr.out, chaosSteps)
		_, by := trainedOn(t, tr.out, chaosSteps)
		require.Equal(t, comesBack, by[proxies[0].URL] > 0, by)
		return tr
	}
	nothing := func() {}
	t.Run("stopped", func(t *testing.T) {
		tr := run(t, "stopped", func() { victim.signal(syscall.SIGSTOP) }, func() { victim.signal(syscall.SIGCONT) }, true)
		require.Regexp(t, `(?m)^easyrl: instance `+proxies[0].URL+`: \w+, was \w+: .*no answer in 2s`, tr.said.String())
	})
	t.Run("started anew", func(t *testing.T) {
		run(t, "anew", func() {
			victim.kill()
			victim.restart(proxies[0])
		}, nothing, true)
	})
	t.Run("started anew from elsewhere", func(t *testing.T) {
		elsewhere := filepath.Join(t.TempDir(), "other-name")
		require.NoError(t, os.CopyFS(elsewhere, os.DirFS(filepath.Join(dir, "served"))))
		run(t, "elsewhere", func() {
			victim.kill()
			victim.args[2] = elsewhere
			victim.restart(proxies[0])
		}, nothing, true)
	})
	t.Run("killed", func(t *testing.T) {
		tr := run(t, "killed", victim.kill, nothing, false)
		require.Equal(t, 2.0, metricsOf(t, tr.out)[chaosSteps-1]["fleet/size"])
	})
}
