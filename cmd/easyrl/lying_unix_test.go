//go:build unix

package main

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference/fleet"
)

// lie returns an answer to x that the published weights do not give, under their name.
type lie func(x *exchange) (status int, answer []byte)

// otherWeights lets a server with other weights answer.
func otherWeights(t *testing.T, root string) lie {
	other := newProxy(t, root)
	asked := regexp.MustCompile(`"weight_version":\d+,?`)
	named := regexp.MustCompile(`"weight_version":\d+,"weight_checksum":"\w+"`)
	return func(x *exchange) (int, []byte) {
		_, honest := x.ask()
		status, answer := (&exchange{p: other, w: x.w, r: x.r, body: asked.ReplaceAll(x.body, nil)}).ask()
		return status, named.ReplaceAll(answer, named.Find(honest))
	}
}

// changed replaces the first match of a pattern's last group in the answer.
func changed(pattern string, change func(was string) string) lie {
	expr := regexp.MustCompile(pattern)
	return func(x *exchange) (int, []byte) {
		status, answer := x.ask()
		if at := expr.FindSubmatchIndex(answer); at != nil {
			from, to := at[len(at)-2], at[len(at)-1]
			answer = bytes.Join([][]byte{answer[:from], []byte(change(string(answer[from:to]))), answer[to:]}, nil)
		}
		return status, answer
	}
}

// oneBit changes a log-probability by its last bit.
func oneBit(was string) string {
	v, _ := strconv.ParseFloat(was, 32)
	return strconv.FormatFloat(float64(math.Nextafter32(float32(v), -math.MaxFloat32)), 'g', -1, 32)
}

// otherToken returns another token of the tiny run's vocabulary.
func otherToken(was string) string {
	if was == "7" {
		return "8"
	}
	return "7"
}

const (
	firstLogprob = `"token_logprobs":\[([^,\]]+)`
	lastLogprob  = `(?s).*` + firstLogprob // of the last response's first token
	firstToken   = `"token_ids":\[(\d+)`
)

// tells lets p tell lies from its third answer of step 2 on, and the others wait in step 2
// for the first.
func tells(p *proxy, l lie, others ...*proxy) (told *atomic.Int64) {
	told = &atomic.Int64{}
	var asked atomic.Int64
	first := newGate(2)
	p.on(func(x *exchange) {
		if x.update || x.version < 2 || asked.Add(1) <= 2 {
			x.pass()
			return
		}
		if told.Add(1) == 1 {
			close(first.open)
		}
		x.give(l(x))
	})
	for _, other := range others {
		other.on(func(x *exchange) {
			first.hold(x)
			x.pass()
		})
	}
	return told
}

// A server that reports the run's weights but does not sample with them is found by its
// log-probabilities. The run trains on none of its answers and ends in the same weights as
// without it.
func TestLyingServers(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	_, proxies := startServers(t, dir, 2)
	other := startServer(t, nil, initTiny(t, dir, "other", 5), "127.0.0.1:0")
	lies := map[string]lie{
		"weights": otherWeights(t, other.root), "bit": changed(firstLogprob, oneBit),
		"token":    changed(firstToken, otherToken),
		"late bit": changed(lastLogprob, oneBit),
	}
	const steps = 3
	for _, c := range []struct {
		name     string
		lies     []string
		settings []string
	}{
		{"plain", []string{"weights", "bit", "token"}, nil},
		{"minibatches", []string{"weights", "bit"}, []string{"train.minibatches=3"}},
		{"large groups", []string{"weights", "token", "late bit"}, []string{"train.micro_batch_tokens=10"}},
		{"previous policy", []string{"bit"}, []string{"loss.old_policy=previous-step", "train.minibatches=2"}},
		{"whole batch", []string{"weights", "late bit"},
			[]string{"loss.kind=reinforce", "loss.advantage=batch", "run.mode=sync"}},
		{"sync", []string{"token"}, []string{"run.mode=sync", "train.minibatches=3"}},
		{"colocated", []string{"weights"}, []string{"run.mode=colocated"}},
		{"filtered", []string{"bit", "token"}, []string{"loss.keep=2"}},
		{"replaced", []string{"weights", "token"},
			[]string{"rollout.dynamic_sampling=2", "reward.kind=exact", "rollout.group_size=2"}},
	} {
		settings := append(fleetSettings(steps), c.settings...)
		want := trainTiny(t, dir, c.name, settings...)
		for _, name := range c.lies {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				told := tells(proxies[0], lies[name], proxies[1])
				fc := fleet.DefaultConfig()
				fc.MaxRestarts = 2
				tr := startTraining(t, dir, c.name+"-"+name, fc,
					append(settings, "inference.kind=easyrl", endpoints(proxies...))...)
				tr.end(t)
				require.Positive(t, told.Load())
				require.Equal(t, weightsHash(t, want, steps), weightsHash(t, tr.out, steps))
				resampled := 0.0
				for i, values := range metricsOf(t, tr.out) {
					require.EqualValues(t, 12, values["groups/trained"])
					require.Zero(t, values["mismatch/logprob_abs_max"])
					require.Equal(t, metricsOf(t, want)[i]["groups/refilled"], values["groups/refilled"])
					resampled += values["groups/resampled"]
				}
				require.Positive(t, resampled)
				require.Regexp(t, `instance `+proxies[0].URL+`: STALE, was HEALTHY: .*prompt \S+: token \d+ of a `+
					`response has log-probability \S+, expected \S+: the instance`, tr.said.String())
			})
		}
	}
}

// If every server lies, the run ends with an error that says so, and with a checkpoint.
func TestOnlyLyingServers(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	_, proxies := startServers(t, dir, 2)
	for _, p := range proxies {
		tells(p, changed(firstLogprob, oneBit))
	}
	fc := fleet.DefaultConfig()
	fc.MaxRestarts = 2
	tr := startTraining(t, dir, "run", fc,
		append(fleetSettings(3), "inference.kind=easyrl", "inference.wait_seconds=1", endpoints(proxies...))...)
	<-tr.done
	require.ErrorContains(t, tr.err, "step 2: ")
	require.ErrorContains(t, tr.err, "the instance does not sample with the weights that it reports")
	require.ErrorContains(t, tr.err, "too few instances serve: 0 for 1s, expected at least 1")
	require.ErrorContains(t, tr.err, "saved a checkpoint after step 1")
	for _, p := range proxies {
		require.Regexp(t, fmt.Sprintf(`instance %s: RETIRED, .*failed 3 times, expected at most 2`, p.URL),
			tr.said.String())
	}
	require.DirExists(t, filepath.Join(tr.out, "checkpoints", "step-000001"))
}

// An answer that does not identify its weights is refused.
func TestAnswersWithoutChecksum(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	_, proxies := startServers(t, dir, 2)
	nameless := regexp.MustCompile(`,"weight_checksum":"\w+"`)
	told := tells(proxies[0], func(x *exchange) (int, []byte) {
		status, answer := x.ask()
		return status, nameless.ReplaceAll(answer, nil)
	}, proxies[1])
	tr := startTraining(t, dir, "run", impatient(),
		append(fleetSettings(2), "inference.kind=easyrl", endpoints(proxies...))...)
	tr.end(t)
	require.Positive(t, told.Load())
	require.Regexp(t, `instance `+proxies[0].URL+`: SUSPECT, was HEALTHY: .*no weight_checksum`, tr.said.String())
	_, by := trainedOn(t, tr.out, 2)
	require.LessOrEqual(t, by[proxies[0].URL], 2)
}
