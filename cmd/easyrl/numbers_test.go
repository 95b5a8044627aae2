package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/internal/reference"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/run"
)

// byHand is a run whose numbers the test computes again, from its rollouts, its trace, its
// checkpoints and its settings, with formulas written out here.
type byHand struct {
	t                *testing.T
	dir, start       string // of the run; the model that it started from
	advantage        func(rewards [][]float64) [][]float64
	beta             float64
	instances, cores int
}

// groups returns the trained groups of a step, in the order of their prompts.
func (h *byHand) groups(step int) (groups []rollout.Group) {
	data, err := os.ReadFile(filepath.Join(h.dir, "rollouts", fmt.Sprintf("step-%06d.jsonl", step)))
	require.NoError(h.t, err)
	for line := range bytes.Lines(data) {
		var g rollout.Group
		require.NoError(h.t, json.Unmarshal(line, &g))
		require.False(h.t, g.Replaced)
		groups = append(groups, g)
	}
	return groups
}

// advantages returns the advantages of a step's groups as they are trained. Those of a
// batch are of one of the two mini-batches.
func (h *byHand) advantages(groups []rollout.Group) (all [][]float32) {
	for _, half := range [][]rollout.Group{groups[:len(groups)/2], groups[len(groups)/2:]} {
		var rewards [][]float64
		for _, g := range half {
			var of []float64
			for _, r := range g.Responses {
				of = append(of, r.Reward)
			}
			rewards = append(rewards, of)
		}
		for _, of := range h.advantage(rewards) {
			var trained []float32
			for _, a := range of {
				trained = append(trained, float32(a))
			}
			all = append(all, trained)
		}
	}
	return all
}

// meanAndDeviation returns the mean of values and their unbiased standard deviation.
func meanAndDeviation(values []float64) (mean, deviation float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		deviation += (v - mean) * (v - mean) / float64(max(1, len(values)-1))
	}
	return mean, math.Sqrt(deviation)
}

// normalized returns (v - mean) / (std + 1e-4), 0 for equal values.
func normalized(values []float64) []float64 {
	mean, deviation := meanAndDeviation(values)
	out := make([]float64, len(values))
	for i, v := range values {
		if slices.Min(values) < slices.Max(values) {
			out[i] = (v - mean) / (deviation + 1e-4)
		}
	}
	return out
}

// ofGroup normalizes within each group.
func ofGroup(rewards [][]float64) (all [][]float64) {
	for _, of := range rewards {
		all = append(all, normalized(of))
	}
	return all
}

// ofBatch normalizes over all groups.
func ofBatch(rewards [][]float64) (all [][]float64) {
	flat := normalized(slices.Concat(rewards...))
	for _, of := range rewards {
		all, flat = append(all, flat[:len(of)]), flat[len(of):]
	}
	return all
}

// sampled returns the metrics that the rollouts determine.
func (h *byHand) sampled(step int) report.Values {
	groups := h.groups(step)
	v := report.Values{"step": float64(step), "version": float64(step), "groups/trained": float64(len(groups)),
		"groups/failed": 0,
		"staleness/max": 0, "fleet/size": float64(h.instances)}
	var rewards, lengths, prompts []float64
	advantages := h.advantages(groups)
	for i, g := range groups {
		prompt := float64(len(g.Prompt.IDs))
		prompts = append(prompts, prompt)
		of, rows := []float64{}, prompt
		for j, r := range g.Responses {
			of = append(of, r.Reward)
			lengths = append(lengths, float64(len(r.Spans[0].IDs)))
			v["tokens/prompt"] += prompt
			v["tokens/response"] += float64(len(r.Spans[0].IDs))
			if r.Finish == rollout.Length {
				v["response_length/clip_ratio"]++
			}
			v["staleness/max"] = max(v["staleness/max"], float64(int64(step)-r.Spans[0].Version))
			if h.beta > 0 || advantages[i][j] != 0 {
				rows += float64(len(r.Spans[0].IDs) - 1)
			}
		}
		rewards = append(rewards, of...)
		if slices.Min(of) == slices.Max(of) {
			v["reward/zero_std_frac"] += 1 / float64(len(groups))
		}
		silent := !slices.ContainsFunc(advantages[i], func(a float32) bool { return a != 0 })
		if silent {
			v["reward/no_signal_frac"] += 1 / float64(len(groups))
		}
		if !silent || h.beta > 0 {
			v["tokens/computed"] += rows
		}
	}
	v["response_length/clip_ratio"] /= float64(len(lengths))
	v["reward/mean"], v["reward/std"] = meanAndDeviation(rewards)
	v["response_length/mean"], _ = meanAndDeviation(lengths)
	v["response_length/max"] = slices.Max(lengths)
	v["prompt_length/mean"], _ = meanAndDeviation(prompts)
	for _, name := range []string{"reward/zero_std_frac", "reward/no_signal_frac", "tokens/computed"} {
		v[name] += 0 // also without such groups
	}
	return v
}

// check compares a step's metrics with those computed here.
func (h *byHand) check(step int, line report.Values) {
	want := h.sampled(step)
	tokens, wall := want["tokens/prompt"]+want["tokens/response"], line["timing_s/step"]
	want["perf/tokens_per_second"] = tokens / wall
	want["perf/tokens_per_second_per_device"] = tokens / wall / float64(1+h.instances)
	want["perf/cores"] = float64(h.cores)
	want["perf/tokens_per_second_per_core"] = tokens / wall / float64(h.cores)
	want["idle/trainer"] = line["timing_s/wait"] / wall
	for name, x := range want {
		got, ok := line[name]
		require.True(h.t, ok, "step %d lacks %s", step, name)
		require.InDelta(h.t, x, got, 1e-9*max(1, math.Abs(x)), "%s of step %d", name, step)
	}
	rows, trace := 0.0, traceOf(h.t, h.dir)
	for _, s := range trace.Named("micro-batch") {
		if s.Args["step"] == float64(step) {
			rows += s.Args["tokens"].(float64)
		}
	}
	require.Equal(h.t, want["tokens/computed"], rows, "rows in the trace of step %d", step)
}

// decoder returns a float64 decoder with the weights of a model folder.
func (h *byHand) decoder(path string) *reference.Decoder {
	f, err := folder.Open(path)
	require.NoError(h.t, err)
	dev, err := run.OpenCPU(1)
	require.NoError(h.t, err)
	defer func() { require.NoError(h.t, dev.Close()) }()
	w, err := f.Weights(dev)
	require.NoError(h.t, err)
	c := f.Shape
	d := &reference.Decoder{HiddenSize: c.HiddenSize, Layers: c.Layers, Heads: c.Heads, KVHeads: c.KVHeads,
		HeadDim: c.HeadDim,
		NormEps: float64(c.NormEps), RopeTheta: c.RopeTheta, QKNorm: c.QKNorm, Tied: c.Tied}
	for i := range w.Params {
		values := make([]float32, w.Params[i].Rows*max(w.Params[i].Cols, 1))
		w.Read(i, values)
		d.Set(w.Params[i].Name, values)
	}
	return d
}

// after returns the model folder after a step.
func (h *byHand) after(step int) string {
	if step <= 0 {
		return h.start
	}
	return filepath.Join(h.dir, "checkpoints", fmt.Sprintf("step-%06d", step))
}

// losses are sums over a mini-batch's tokens.
type losses struct{ loss, pg, kl, clipped, tokens float64 }

// loss computes GRPO with k2 and clips at 0.8 and 1.2, in float64.
func (h *byHand) loss(groups []rollout.Group, advantages [][]float32, policy, old,
	start *reference.Decoder) (l losses) {
	for i, g := range groups {
		for j, r := range g.Responses {
			var layout attention.Layout
			layout.AddResponse(layout.Add(-1, g.Prompt.IDs, false), r.Spans[0].IDs)
			now, _ := policy.Logprobs(&layout, 1)
			before, _ := old.Logprobs(&layout, 1)
			began, _ := start.Logprobs(&layout, 1)
			a := float64(advantages[i][j])
			for k := range now {
				ratio, d := math.Exp(now[k]-before[k]), began[k]-now[k]
				pg := -min(ratio*a, min(max(ratio, 0.8), 1.2)*a)
				if a > 0 && ratio > 1.2 || a < 0 && ratio < 0.8 {
					l.clipped++
				}
				l.pg += pg
				l.loss += pg + h.beta*d*d/2
				l.kl += math.Exp(d) - 1 - d
				l.tokens++
			}
		}
	}
	return l
}

// firstHalf returns the model between the two updates of a step: replay takes the first
// with the groups of the first mini-batch.
func (h *byHand) firstHalf(step int) string {
	data, err := os.ReadFile(filepath.Join(h.dir, "rollouts", fmt.Sprintf("step-%06d.jsonl", step)))
	require.NoError(h.t, err)
	lines := bytes.SplitAfter(data, []byte("\n"))
	dir := h.t.TempDir()
	half, out := filepath.Join(dir, "half.jsonl"), filepath.Join(dir, "stepped")
	require.NoError(h.t, os.WriteFile(half, bytes.Join(lines[:3], nil), 0o644))
	args := []string{"replay", "-model", h.after(step - 1), "-rollouts", half, "-out", out, "-reference", h.start,
		"-run", h.dir, "-set", "train.minibatches=1"}
	status, _, stderr := command(h.t, args...)
	require.Zero(h.t, status, stderr)
	return out
}

// The metrics of real runs equal those computed by hand: with two instances, two
// mini-batches and groups without advantage, embedded and served.
func TestNumbersByHand(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	cores := min(runtime.NumCPU(), runtime.GOMAXPROCS(0))
	common := []string{"run.steps=3", "train.minibatches=2", "train.micro_batch_tokens=4096", "checkpoint.keep=0"}
	grpo := append(common, "inference.instances=2", "loss.beta=0.2", "loss.kl=k2", "loss.old_policy=previous-step")
	run := func(name string, settings ...string) byHand {
		return byHand{t: t, dir: trainTiny(t, dir, name, settings...), start: filepath.Join(dir, "start"), instances: 2,
			advantage: ofGroup, cores: min(cores, 3)}
	}
	initTiny(t, dir, "start", 1)

	h := run("grpo", grpo...)
	h.beta = 0.2
	silent := 0.0
	for i, line := range metricsOf(t, h.dir) {
		step := i + 1
		h.check(step, line)
		silent += line["reward/no_signal_frac"] / 3
		groups := h.groups(step)
		advantages := h.advantages(groups)
		sampled, old, start := h.decoder(h.after(step-1)), h.decoder(h.after(step-2)), h.decoder(h.start)
		first := h.loss(groups[:3], advantages[:3], sampled, old, start)
		// The old policy is of the previous step.
		second := h.loss(groups[3:], advantages[3:], h.decoder(h.firstHalf(step)), old, start)
		tokens := first.tokens + second.tokens
		require.InDelta(t, (first.loss+second.loss)/tokens, line["actor/loss"], 1e-4, "step %d", step)
		require.InDelta(t, (first.pg+second.pg)/tokens, line["actor/pg_loss"], 1e-4, "step %d", step)
		require.InDelta(t, (first.kl+second.kl)/tokens, line["actor/kl"], 1e-4, "step %d", step)
		require.InDelta(t, (first.clipped+second.clipped)/tokens, line["actor/clip_frac"], 1e-9, "step %d", step)
		for _, g := range groups { // the recorded version is the one that sampled
			for _, r := range g.Responses {
				var layout attention.Layout
				layout.AddResponse(layout.Add(-1, g.Prompt.IDs, false), r.Spans[0].IDs)
				logprobs, _ := sampled.Logprobs(&layout, 1)
				for k, l := range logprobs {
					require.InDelta(t, l, r.Spans[0].Logprobs[k], 1e-4)
				}
			}
		}
	}
	require.Positive(t, silent, "the run has groups without advantage")
	require.Less(t, silent, 1.0, "and groups with one")

	h = run("plain", append(common, "inference.instances=2")...)
	for i, line := range metricsOf(t, h.dir) {
		h.check(i+1, line)
	}

	// One response per prompt has no spread, but a signal.
	h = run("reinforce++", append(common, "inference.instances=2", "loss.kind=reinforce", "loss.advantage=batch",
		"rollout.group_size=1", "rollout.dynamic_sampling=3")...)
	h.advantage = ofBatch
	for i, line := range metricsOf(t, h.dir) {
		h.check(i+1, line)
		require.Equal(t, 1.0, line["reward/zero_std_frac"])
		require.Zero(t, line["groups/refilled"])
	}

	// Servers have cores of their own.
	var roots []string
	for range 2 {
		root, _, _ := serveFolder(t, "-model", filepath.Join(dir, "start"), "-threads", "1")
		roots = append(roots, fmt.Sprintf("%q", root))
	}
	h = run("served", append(common, "inference.kind=easyrl", "inference.instances=0",
		"inference.endpoints=["+strings.Join(roots, ",")+"]")...)
	h.cores = 1 + 2*1
	for i, line := range metricsOf(t, h.dir) {
		h.check(i+1, line)
	}
}

// With rollout.top_p and rollout.top_k our engine draws from the cut distribution, embedded and
// served, but records log-probabilities of the whole one, as the trainer computes them: the
// mismatch is 0. The tokens and log-probabilities agree with a float64 decoder.
func TestCutDistributionByHand(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	initTiny(t, dir, "start", 1)
	root, _, _ := serveFolder(t, "-model", filepath.Join(dir, "start"), "-threads", "1")
	const most, mass = 6, 0.4
	cut := []string{"run.steps=2", "loss.beta=0.1", "loss.correction=truncate",
		fmt.Sprint("rollout.top_k=", most), fmt.Sprint("rollout.top_p=", mass)}
	served := append(slices.Clone(cut), "inference.kind=easyrl", "inference.instances=0",
		fmt.Sprintf("inference.endpoints=[%q]", root))
	for name, settings := range map[string][]string{"embedded": cut, "served": served} {
		h := byHand{t: t, dir: trainTiny(t, dir, name, settings...), start: filepath.Join(dir, "start")}
		for i, line := range metricsOf(t, h.dir) {
			require.Contains(t, line, "mismatch/kl", "%s, step %d", name, i+1)
			for _, metric := range []string{"mismatch/kl", "mismatch/logprob_abs_max", "mismatch/corrected_frac"} {
				require.Zero(t, line[metric], "%s, step %d: %s", name, i+1, metric)
			}
		}
		start, excluded := h.decoder(h.start), 0.0
		g := h.groups(1)[0]
		for _, r := range g.Responses {
			ids := r.Spans.IDs()
			for k := range ids {
				var all []float64 // log-probabilities of the vocabulary at k
				for id := range int32(16) {
					var layout attention.Layout
					layout.AddResponse(layout.Add(-1, g.Prompt.IDs, false), slices.Concat(ids[:k], []int32{id}))
					logprobs, _ := start.Logprobs(&layout, 1)
					all = append(all, logprobs[k])
				}
				drawn := all[ids[k]]
				require.InDelta(t, drawn, r.Spans[0].Logprobs[k], 1e-4, "%s: of the whole distribution", name)
				slices.SortFunc(all, func(a, b float64) int { return cmp.Compare(b, a) })
				kept, above, likelier := 0.0, 0.0, 0
				for rank, lp := range all {
					if rank < most {
						kept += math.Exp(lp)
					}
					if lp > drawn+1e-6 {
						above += math.Exp(lp)
						likelier++
					}
				}
				require.Less(t, likelier, most, "%s: among the likeliest", name)
				require.Less(t, above, mass*kept+1e-4, "%s: within their mass", name)
				excluded = max(excluded, 1-kept)
			}
		}
		require.Greater(t, excluded, 0.2, "the cut excludes tokens")
	}
}
