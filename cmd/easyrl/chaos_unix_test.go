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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// chaosSteps is the length of a run with a fault. The fault occurs in step 2, its effects
// show in step 3, and the instance is well again in step 4.
const chaosSteps = 4

// fault is a fault of one of three instances. do may answer x instead of the server, and
// calls x.fault when the fault occurs.
type fault struct {
	name  string
	times int64 // how often it occurs
	do    func(x *exchange)
}

// faultsOfServers returns the ways in which a server, or the network, can spoil an answer.
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
		{"gives all responses twice", 2,
			edits(func(choices []json.RawMessage) []json.RawMessage { return append(choices, choices...) })},
		{"repeats its body", 2, changes(func(answer []byte) []byte { return append(answer, answer...) })},
		{"answers twice", 4, answersTwice},
		{"is cut off", 2, cut(true)},
		{"is cut off in a chunk", 2, cut(false)},
		{"fails", 4, refuses(http.StatusInternalServerError)},
		{"is full", 1, refuses(http.StatusTooManyRequests)},
		{"not found", 2, refuses(http.StatusNotFound)},
		{"rejects a prompt", 2, refuses(http.StatusBadRequest)},
	}
	first := regexp.MustCompile(`("token_logprobs":\[)[^,\]]+`)
	for _, value := range []string{"NaN", "null", "Infinity", "-1e39", "0.5", `"-1"`} {
		all = append(all, fault{"gives " + value, 2,
			changes(func(answer []byte) []byte { return first.ReplaceAll(answer, []byte("${1}"+value)) })})
	}
	return all
}

// inSecondStep reports whether x asks for responses in step 2, in which most faults occur.
func (x *exchange) inSecondStep() bool { return !x.update && x.version == 2 }

// changes returns a fault that edits the server's answer.
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

// edits returns a fault that edits the responses in the server's answer, which has a line
// for each and a last one.
func edits(edit func(choices []json.RawMessage) []json.RawMessage) func(x *exchange) {
	return changes(func(answer []byte) []byte {
		lines := bytes.SplitAfter(bytes.TrimSuffix(answer, []byte("\n")), []byte("\n"))
		last := len(lines) - 1
		var fields map[string]json.RawMessage
		var choices []json.RawMessage
		for _, line := range lines[:last] {
			var one []json.RawMessage
			if json.Unmarshal(line, &fields) != nil || json.Unmarshal(fields["choices"], &one) != nil {
				return answer
			}
			choices = append(choices, one...)
		}
		if len(choices) == 0 {
			return answer
		}
		var edited []byte
		for _, choice := range edit(choices) {
			fields["choices"] = slices.Concat([]byte("["), choice, []byte("]"))
			line, _ := json.Marshal(fields) // it was parsed from JSON
			edited = append(append(edited, line...), '\n')
		}
		return append(edited, lines[last]...)
	})
}

// refuses returns a fault that answers with the given status and asks to retry after a second.
func refuses(status int) func(x *exchange) {
	return func(x *exchange) {
		if x.inSecondStep() {
			x.fault()
			x.w.Header().Set("Retry-After", "1")
			x.give(status, []byte(`{"error":{"message":"out of memory"}}`))
		}
	}
}

// keepsWeights accepts new weights but reports the old ones.
func keepsWeights(x *exchange) {
	if x.update && x.version == 2 {
		x.fault()
		x.give(http.StatusOK, []byte(`{"version":1,"checksum":"0123456789abcdef"}`))
	}
}

// deniesOldWeights keeps the old weights but reports the new ones, whose checksum is in
// the name of the folder to read them from.
func deniesOldWeights(x *exchange) {
	if x.update && x.version == 2 {
		x.fault()
		_, sum, _ := strings.Cut(filepath.Base(filepath.Dir(x.r.URL.Query().Get("path"))), "-")
		x.give(http.StatusOK, fmt.Appendf(nil, `{"version":2,"checksum":%q}`, sum))
	}
}

// answersLate returns a fault that answers a request of step 3 with responses of step 2.
// The answer omits the prompt, so only the version identifies it as late.
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

// drips answers a byte per second for as long as the client listens.
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

// cut returns a fault that breaks off the connection in the middle of an answer, with or
// without a Content-Length.
func cut(announced bool) func(x *exchange) {
	return func(x *exchange) {
		if !x.inSecondStep() {
			return
		}
		x.fault()
		status, answer := x.ask()
		length := -1
		if announced {
			length = len(answer)
		}
		x.begin(status, length)
		x.send(answer[:len(answer)/2])
		panic(http.ErrAbortHandler)
	}
}

// answersTwice sends a second, unsolicited answer on the connection, which the next
// request may read.
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
	whole := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		status, http.StatusText(status), len(answer), answer)
	_, _ = conn.Write(append(whole, whole...))
	_ = conn.Close()
}

// shares gives the instance behind the first proxy a share of the steps that matter,
// however slow it is, by making the other instances wait for it.
type shares struct {
	came     [chaosSteps]chan struct{} // by version: closed when the first proxy gets a request
	once     [chaosSteps]sync.Once
	answered atomic.Int64  // requests of the last step
	well     chan struct{} // closed after enough answers for at least one to be in time
}

// share holds the other proxies in steps 2 to held until the first proxy gets a request,
// and in the last step until its instance is well again.
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

// meet records a request to the first proxy.
func (r *shares) meet(x *exchange) {
	if !x.update && x.version < chaosSteps {
		r.once[x.version].Do(func() { close(r.came[x.version]) })
	}
}

// pass forwards an exchange of the first proxy.
func (r *shares) pass(x *exchange) {
	if x.pass() == http.StatusOK && !x.update && x.version == chaosSteps && r.answered.Add(1) == 3 {
		close(r.well)
	}
}

func chaosSettings(proxies []*proxy) []string {
	return append(fleetSettings(chaosSteps), "inference.kind=easyrl", endpoints(proxies...))
}

// Whatever an instance answers, the run trains each prompt once, on the same responses as
// a run without faults. The instance serves again once it is well.
func TestChaosOfAnswers(t *testing.T) {
	t.Parallel()
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
			require.Positive(t, met.Load(), "the fault occurred")
			requireSameRun(t, want, tr.out, chaosSteps)
			_, by := trainedOn(t, tr.out, chaosSteps)
			require.Positive(t, by[proxies[0].URL], "the instance serves again")
		})
	}
}

// The same holds for faults of processes: one is killed for good, one is stopped for
// longer than any timeout, and one is killed and restarted under its name with weights
// that are not the run's.
func TestChaosOfProcesses(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	want := trainTiny(t, dir, "embedded", fleetSettings(chaosSteps)...)
	servers, proxies := startServers(t, dir, 3)
	victim := servers[0]
	// run strikes when the victim gets a request of step 2, and mends when another instance
	// gets one of step 3.
	run := func(t *testing.T, name string, strike func(), mend func(tr *training), comesBack bool) {
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
		fc := impatient()
		fc.PublishTimeout = 500 * time.Millisecond // less than a step waits for one of several instances
		tr := startTraining(t, dir, name, fc, chaosSettings(proxies)...)
		tr.until(t, second.came)
		strike()
		close(second.open)
		tr.until(t, third.came)
		mend(tr)
		close(third.open)
		tr.end(t)
		requireSameRun(t, want, tr.out, chaosSteps)
		_, by := trainedOn(t, tr.out, chaosSteps)
		require.Equal(t, comesBack, by[proxies[0].URL] > 0, by)
		if !comesBack {
			require.Equal(t, 2.0, metricsOf(t, tr.out)[chaosSteps-1]["fleet/size"])
		}
	}
	nothing := func(*training) {}
	t.Run("stopped", func(t *testing.T) {
		warning := `(?m)^warning: instance ` + proxies[0].URL +
			`: .*\b(STALE|DEAD)\b.*(timed out after|no answer for) |^ended`
		run(t, "stopped", func() { victim.signal(syscall.SIGSTOP) }, func(tr *training) {
			require.NotEmpty(t, tr.said.until(t, warning), tr.said)
			victim.signal(syscall.SIGCONT)
		}, true)
	})
	t.Run("restarted", func(t *testing.T) {
		run(t, "restarted", func() {
			victim.kill()
			victim.restart(proxies[0])
		}, nothing, true)
	})
	t.Run("restarted from another folder", func(t *testing.T) {
		elsewhere := filepath.Join(t.TempDir(), "other-name")
		require.NoError(t, os.CopyFS(elsewhere, os.DirFS(filepath.Join(dir, "served"))))
		run(t, "elsewhere", func() {
			victim.kill()
			victim.args[2] = elsewhere
			victim.restart(proxies[0])
		}, nothing, true)
	})
	t.Run("killed", func(t *testing.T) {
		run(t, "killed", victim.kill, nothing, false)
	})
}
