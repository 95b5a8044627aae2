package trainer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/internal/reference"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

func tinyShape() *model.Config {
	return &model.Config{Type: "qwen3", HiddenSize: 18, FFNSize: 35, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 6,
		VocabSize:    37,
		MaxPositions: 128, NormEps: 1e-6, RopeTheta: 1e4, InitStd: 0.3, QKNorm: true, Tied: true, BOS: -1}
}

func tinyModels(t testing.TB, threads int, cfg trimodel.Config) *trimodel.Models {
	t.Helper()
	dev, err := cpu.Open(npu.FP32, threads)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	w, err := model.NewWeights(dev, tinyShape(), npu.Weights)
	require.NoError(t, err)
	require.NoError(t, w.Init(3))
	cfg.Optim, cfg.Format = optim.Default(), format()
	m, err := trimodel.New(dev, w, cfg)
	require.NoError(t, err)
	return m
}

// own returns models of package tri_model as such.
func own(m backend.Models) *trimodel.Models { return m.(*trimodel.Models) }

// nudge moves all weights a little, like an optimizer step.
func nudge(w *model.Weights, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range w.Params {
		vals := w.Params[i].Buffer.Float32s()
		for j, v := range vals {
			if v != 0 { // padding stays 0
				vals[j] = v * (1 + 0.03*float32(rng.NormFloat64()))
			}
		}
	}
}

func decoder(w *model.Weights) *reference.Decoder {
	c := w.Config
	r := &reference.Decoder{HiddenSize: c.HiddenSize, Layers: c.Layers, Heads: c.Heads, KVHeads: c.KVHeads,
		HeadDim: c.HeadDim,
		NormEps: float64(c.NormEps), RopeTheta: c.RopeTheta, QKNorm: c.QKNorm, Tied: c.Tied}
	for i := range w.Params {
		vals := make([]float32, w.Params[i].Rows*max(w.Params[i].Cols, 1))
		w.Read(i, vals)
		r.Set(w.Params[i].Name, vals)
	}
	return r
}

// tinyGroups returns groups of step 1 whose rewards differ, except in one group.
func tinyGroups(n, size int) []rollout.Group {
	rng := rand.New(rand.NewPCG(21, 22))
	ids := func(n int) []int32 {
		out := make([]int32, n)
		for i := range out {
			out[i] = int32(rng.IntN(tinyShape().VocabSize))
		}
		return out
	}
	groups := make([]rollout.Group, n)
	for i := range groups {
		g := rollout.Group{Step: 1, Batch: 1, Index: i, Version: 1,
			Prompt: rollout.Prompt{ID: fmt.Sprint("p", i), IDs: ids(2 + 3*i)}}
		for j := range size {
			r := rollout.Response{Spans: rollout.Sampled(ids(1+rng.IntN(9)), nil, 1), Reward: float64(rng.IntN(4)),
				Finish: rollout.Stop}
			if i == 1 {
				r.Reward = 2
			} else if j == 0 {
				r.Reward = -1
			}
			r.Spans[0].Logprobs = make([]float32, len(r.Spans[0].IDs))
			g.Responses = append(g.Responses, r)
		}
		groups[i] = g
	}
	return groups
}

// remembered returns a function that computes a model's log-probabilities of a group's
// response once and caches them. The model must not change.
func remembered(d *reference.Decoder, temperature float64) func(group, response int, l *attention.Layout) []float64 {
	known := map[[2]int][]float64{}
	return func(group, response int, l *attention.Layout) []float64 {
		at := [2]int{group, response}
		if _, ok := known[at]; !ok {
			known[at], _ = d.Logprobs(l, temperature)
		}
		return known[at]
	}
}

// objective returns the GRPO loss of groups in float64, written from eq. 4 to 9 of the
// Periodic Asynchrony paper, with each response as a separate sequence.
func objective(c loss.Config, maxTokens int, groups []rollout.Group, policy *reference.Decoder,
	old, ref func(group, response int, l *attention.Layout) []float64, temperature float64) float64 {
	total, tokens, responses := 0.0, 0, 0
	for _, g := range groups {
		mean, sd := 0.0, 0.0
		for _, r := range g.Responses {
			mean += r.Reward / float64(len(g.Responses))
		}
		for _, r := range g.Responses {
			sd += (r.Reward - mean) * (r.Reward - mean) / float64(len(g.Responses)-1)
		}
		for j, r := range g.Responses {
			adv := (r.Reward - mean) / (math.Sqrt(sd) + 1e-4)
			var l attention.Layout
			l.AddResponse(l.Add(-1, g.Prompt.IDs, false), r.Spans.IDs())
			lp, _ := policy.Logprobs(&l, temperature)
			lo, lr := old(g.Index, j, &l), ref(g.Index, j, &l)
			sum := 0.0
			trained := trainedTokens(&r)
			for _, i := range trained {
				ratio := math.Exp(lp[i] - lo[i])
				pg := math.Min(ratio*adv, math.Max(1-c.EpsilonLow, math.Min(1+c.EpsilonHigh, ratio))*adv)
				d := lr[i] - lp[i]
				sum += pg - c.Beta*map[string]float64{loss.K2: d * d / 2, loss.K3: math.Exp(d) - d - 1}[c.KL]
			}
			tokens, responses = tokens+len(trained), responses+1
			if c.Aggregation == loss.SequenceMean {
				sum /= float64(len(trained))
			}
			total -= sum
		}
	}
	switch c.Aggregation {
	case loss.TokenMean:
		return total / float64(tokens)
	case loss.SequenceMean:
		return total / float64(responses)
	default:
		return total / float64(responses) / float64(maxTokens)
	}
}

// trainedTokens returns the indices of the trained tokens of a response.
func trainedTokens(r *rollout.Response) (indices []int) {
	i := 0
	for _, s := range r.Spans {
		for range s.IDs {
			if s.Trained {
				indices = append(indices, i)
			}
			i++
		}
	}
	return indices
}

// inTurns cuts the responses of groups into spans of up to three tokens: trained ones, those of an environment
// and ones that the policy wrote but does not train, in turn. A response of one token stays as it is.
func inTurns(groups []rollout.Group) []rollout.Group {
	for i := range groups {
		for j := range groups[i].Responses {
			r := &groups[i].Responses[j]
			whole := r.Spans[0]
			r.Spans = nil
			for from := 0; from < len(whole.IDs); from += 3 {
				to := min(from+3, len(whole.IDs))
				s := whole
				s.IDs, s.Logprobs = whole.IDs[from:to], whole.Logprobs[from:to]
				switch len(r.Spans) % 3 {
				case 1:
					s = rollout.Span{From: rollout.Environment, IDs: s.IDs}
				case 2:
					s.Trained = false
				}
				r.Spans = append(r.Spans, s)
			}
		}
	}
	return groups
}

// Compares a whole GRPO step (shared prompts, three models, micro-batches, deferred
// normalisation) with an independent float64 objective and its central differences, for
// each aggregation and each estimator of the KL, and for responses of one and of several spans.
func TestGRPOStepMatchesFloat64(t *testing.T) {
	for _, aggregation := range []loss.Aggregation{loss.SequenceMean, loss.TokenMean, loss.Constant} {
		for _, kl := range []string{loss.K2, loss.K3, "turns"} {
			t.Run(fmt.Sprintf("%s/%s", aggregation, kl), func(t *testing.T) {
				turns := kl == "turns"
				if turns {
					kl = loss.K3
				}
				t.Parallel()
				cfg := Rollouts{MaxTokens: 11, Loss: loss.Default()}
				cfg.Loss.Aggregation, cfg.Loss.KL, cfg.Loss.Beta, cfg.Loss.OldPolicy = aggregation, kl, 0.3,
					loss.PreviousStep
				cfg.Loss.EpsilonLow, cfg.Loss.EpsilonHigh = 0.1, 0.25
				m := tinyModels(t, 2, trimodel.Config{OldPolicy: loss.PreviousStep, Reference: true, Temperature: 0.8})
				nudge(m.Policy.Weights, 5)
				first, err := m.Publish(t.Context(), 1)
				require.NoError(t, err)
				nudge(m.Policy.Weights, 6)
				_, err = m.Publish(t.Context(), 2)
				require.NoError(t, err)
				previous := decoder(first.(*model.Snapshot).Weights())
				r := tinySource(t, m, 40, cfg)
				b := &miniBatch{}
				groups := tinyGroups(3, 4)
				if turns {
					groups = inTurns(groups)
				}
				require.NoError(t, r.train(t.Context(), &step{number: 1}, b, groups))
				r.setScale(b)

				const temperature = float64(float32(0.8))
				policy, old, ref := decoder(m.Policy.Weights), remembered(previous, temperature),
					remembered(decoder(m.Reference), temperature)
				want := func() float64 {
					return objective(cfg.Loss, cfg.MaxTokens, groups, policy, old, ref, temperature)
				}
				require.InDelta(t, want(), b.loss.Float64()*b.scale, 1e-5)
				require.Greater(t, sumOf(&b.metrics, "actor/clip_frac"), 0.0, "the case clips")
				checkDifferences(t, m, policy, b.scale, want)
			})
		}
	}
}

// sumOf returns the sum of a metric's samples.
func sumOf(m *metrics, name string) float64 {
	sum, _ := m.totals(name)
	return sum
}

// tinySource returns the source of a trainer of m before its first step.
func tinySource(t *testing.T, m *trimodel.Models, budget int, r Rollouts) *rollouts {
	t.Helper()
	tr, err := New(Config{MicroBatchTokens: budget, MiniBatches: 1, Optim: optim.Default()}, State{},
		Deps{Models: m, Warn: t.Logf}, r)
	require.NoError(t, err)
	if m.Version(1) == nil { // it samples the groups
		_, err = m.Publish(t.Context(), 1)
		require.NoError(t, err)
	}
	return sampled(tr)
}

// format is that of the tests' sums of gradients.
func format() npu.FixedPoint { return optim.FixedPoint(16*1000, 100) }

// gradient returns the gradient of the policy's parameter i, row-major.
func gradient(m *trimodel.Models, i int) []float64 {
	p := &m.Policy.Weights.Params[i]
	out := make([]float64, p.Rows*max(p.Cols, 1))
	for j := range out {
		at := j
		if p.Cols > 0 {
			row, col := j/p.Cols, j%p.Cols
			at = (row/npu.MatrixBlock*p.Cols+col)*npu.MatrixBlock + row%npu.MatrixBlock
		}
		out[j] = float64(m.Policy.Gradients.Params[i].Int64s()[at]) / float64(format().Scale)
	}
	return out
}

// checkDifferences compares the accumulated gradients with central differences of f in the
// policy's tensors.
func checkDifferences(t *testing.T, m *trimodel.Models, policy *reference.Decoder, scale float64, f func() float64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(31, 32))
	for i := range m.Policy.Weights.Params {
		name := m.Policy.Weights.Params[i].Name
		vals := policy.Tensor[name]
		grad := gradient(m, i)
		for range 2 {
			j := rng.IntN(len(vals))
			const h = 1e-6
			old := vals[j]
			vals[j] = old + h
			up := f()
			vals[j] = old - h
			down := f()
			vals[j] = old
			require.InDelta(t, (up-down)/(2*h), float64(grad[j])*scale, 2e-5+1e-3*math.Abs(float64(grad[j])*scale),
				"%s[%d]", name, j)
		}
	}
}

// stream is a step that has already been sampled.
type stream struct {
	groups chan rollout.Group
	stats  rollout.Stats
	err    error
}

func (s *stream) Groups() <-chan rollout.Group { return s.groups }
func (s *stream) Wait() (rollout.Stats, error) { return s.stats, s.err }

// samplingOf returns the sampling of the first batch.
func samplingOf(s *stream) sampling {
	return sampling{batch: rollout.Batch{Number: 1, Version: 1}, stream: s}
}

func streamOf(groups ...rollout.Group) *stream {
	s := &stream{groups: make(chan rollout.Group, len(groups))}
	for _, g := range groups {
		s.groups <- g
	}
	close(s.groups)
	return s
}

// Every group is checked for the step's version, including each response. Off-policy data
// is refused at consumption.
func TestRefusesOffPolicyGroups(t *testing.T) {
	for name, spoil := range map[string]func(g *rollout.Group){
		"version 0, expected batch 1 and version 1": func(g *rollout.Group) { g.Version = 0 },
		"batch 2 and version 1, expected":           func(g *rollout.Group) { g.Batch = 2 },
		"response 1: version is 7, expected 1":      func(g *rollout.Group) { g.Responses[1].Spans[0].Version = 7 },
		"ids and 0 logprobs":                        func(g *rollout.Group) { g.Responses[0].Spans[0].Logprobs = nil },
		"response 2: reward is NaN":                 func(g *rollout.Group) { g.Responses[2].Reward = math.NaN() },
		"response 0: 0 ids and 0 logprobs": func(
			g *rollout.Group) {
			g.Responses[0].Spans[0].IDs, g.Responses[0].Spans[0].Logprobs = nil, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := tinyModels(t, 1, trimodel.Config{OldPolicy: loss.Behaviour, Temperature: 1})
			r := tinySource(t, m, 100, Rollouts{Loss: loss.Default()})
			groups := tinyGroups(1, 3)
			spoil(&groups[0])
			r.sampling = samplingOf(streamOf(groups...))
			_, err := r.accumulate(t.Context(), &step{number: 1}, 0, 1)
			require.ErrorContains(t, err, name)
		})
	}
}

// A stream that ends early is an error, unless the missing groups failed in the producer.
// Then they are counted.
func TestMissingGroups(t *testing.T) {
	m := tinyModels(t, 1, trimodel.Config{OldPolicy: loss.Behaviour, Temperature: 1})
	r := tinySource(t, m, 100, Rollouts{Loss: loss.Default()})
	groups := tinyGroups(3, 3)
	r.sampling = samplingOf(streamOf(groups...))
	_, err := r.accumulate(t.Context(), &step{number: 1}, 0, 4)
	require.ErrorContains(t, err, "1 groups are missing, but the producer reported only 0 failures")
	s := streamOf(groups...)
	s.stats.Failed = 1
	r.sampling = samplingOf(s)
	b, err := r.accumulate(t.Context(), &step{number: 1}, 0, 4)
	require.NoError(t, err)
	require.Equal(t, 1, r.sampling.failed)
	require.Equal(t, 3.0, sumOf(&b.metrics, "groups/trained"))
}

// If beta is 0, a group whose rewards are all equal costs no pass, but its tokens still
// count in the denominators.
func TestEqualRewardsCostNoPass(t *testing.T) {
	m := tinyModels(t, 1, trimodel.Config{OldPolicy: loss.Behaviour, Temperature: 1})
	r := tinySource(t, m, 1000, Rollouts{Loss: loss.Default()})
	groups := tinyGroups(2, 4)
	s, b := &step{number: 1}, &miniBatch{}
	require.NoError(t, r.train(t.Context(), s, b, groups[1:]))
	require.Zero(t, b.rows)
	require.Equal(t, 1.0, sumOf(&b.metrics, "reward/zero_std_frac"))
	require.Positive(t, sumOf(&b.metrics, "tokens/response"))
	require.Positive(t, b.tokens)
	require.NoError(t, r.train(t.Context(), s, b, groups[:1]))
	require.Positive(t, b.rows)
	require.Equal(t, 1.0, sumOf(&b.metrics, "reward/zero_std_frac"))
}

// A group has no signal if the advantages of its trained responses are 0, whatever the
// spread of its rewards.
func TestNoSignalIsOfTheAdvantages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, advantage string
		keep            int
		rewards         [][]float64
		want, equal     float64 // groups
	}{
		{"by group", loss.GroupAdvantage, 0, [][]float64{{1, 1}, {0, 0}, {0, 1}}, 2, 2},
		{"one response a prompt", loss.BatchAdvantage, 0, [][]float64{{1}, {0}, {1}}, 0, 3},
		{"some at the batch's mean", loss.BatchAdvantage, 0, [][]float64{{1, 1}, {0, 0}, {.5, .5}}, 1, 3},
		{"rewards", loss.RewardAdvantage, 0, [][]float64{{1, 1}, {0, 0}}, 1, 2},
		{"not kept", loss.RewardAdvantage, 1, [][]float64{{-1, 0}, {-1, 2}}, 1, 0},
		{"lost in float32", loss.GroupMeanAdvantage, 0, [][]float64{{0, 1e-50}, {0, 1}}, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := tinyModels(t, 1, trimodel.Config{OldPolicy: loss.Behaviour, Temperature: 1})
			cfg := loss.Default()
			cfg.Advantage, cfg.Keep = c.advantage, c.keep
			r := tinySource(t, m, 1000, Rollouts{Loss: cfg})
			groups := tinyGroups(len(c.rewards), len(c.rewards[0]))
			for i := range groups {
				for j := range groups[i].Responses {
					groups[i].Responses[j].Reward = c.rewards[i][j]
				}
			}
			b := &miniBatch{}
			require.NoError(t, r.train(t.Context(), &step{number: 1}, b, groups))
			require.Equal(t, c.want, sumOf(&b.metrics, "reward/no_signal_frac"))
			require.Equal(t, c.equal, sumOf(&b.metrics, "reward/zero_std_frac"))
			rows := 0 // of the groups with a signal, but one group keeps one response only
			for l := range r.leaves(&miniBatch{}, groups, c.rewards, loss.BatchAdvantages(c.advantage, c.rewards)) {
				rows += l.rows()
			}
			require.Equal(t, rows, b.rows)
			require.Equal(t, c.want == float64(len(groups)), rows == 0)
		})
	}
}

// Staleness is that of the oldest response, though no step trains a stale one.
func TestStalenessIsMeasured(t *testing.T) {
	t.Parallel()
	groups := tinyGroups(2, 3)
	groups[0].Step, groups[1].Step, groups[1].Responses[2].Spans[0].Version = 5, 5, 3
	for i := range groups[0].Responses {
		groups[0].Responses[i].Spans[0].Version = 5
	}
	for i := range 2 {
		groups[1].Responses[i].Spans[0].Version = 4
	}
	r := &rollouts{}
	for want, measured := range map[float64][]rollout.Group{0: groups[:1], 2: groups} {
		var m metrics
		for i := range measured {
			r.measureGroup(&m, &measured[i], rewardsOf(&measured[i]))
		}
		line := report.Values{}
		m.into(line)
		require.Equal(t, want, line["staleness/max"])
	}
}

// Each instance is a device beside the trainer's; cores are counted by Rollouts.Cores.
func TestRateIsDividedByDevicesAndCores(t *testing.T) {
	t.Parallel()
	for _, cores := range []int{6, 0} {
		r := tinySource(t, tinyModels(t, 1, trimodel.Config{OldPolicy: loss.Behaviour, Temperature: 1}), 1000,
			Rollouts{Loss: loss.Default(), Cores: func() int { return cores }})
		s, v := &step{number: 1, clock: clock{all: 2 * time.Second}}, report.Values{}
		s.metrics.Sum("tokens/prompt", 30)
		s.metrics.Sum("tokens/response", 50)
		r.sampling.stats.Instances = 3
		require.NoError(t, r.record(s, v))
		require.InDelta(t, 80.0/2, v["perf/tokens_per_second"], 0)
		require.InDelta(t, 80.0/2/(1+3), v["perf/tokens_per_second_per_device"], 0)
		rate, known := v["perf/tokens_per_second_per_core"]
		require.Equal(t, cores > 0, known)
		if known {
			require.InDelta(t, 80.0/2/6, rate, 1e-12)
			require.InDelta(t, 6, v["perf/cores"], 0)
		}
	}
}

// A step's line omits what was not measured: an entropy of 0 would be a measurement. The tokens
// of responses without a pass are not clipped, and their gradient is 0.
func TestStepWithoutGradientOmitsMetrics(t *testing.T) {
	t.Parallel()
	m := tinyModels(t, 1, trimodel.Config{OldPolicy: loss.Behaviour, Temperature: 1})
	r := tinySource(t, m, 1000, Rollouts{Loss: loss.Default()})
	snapshot, err := m.Publish(t.Context(), 1)
	require.NoError(t, err)
	require.NotNil(t, snapshot)
	measured := []string{"actor/entropy", "actor/kl", "mismatch/logprob_abs_max", "mismatch/kl"}
	sampled := []string{"reward/mean", "reward/std", "reward/zero_std_frac", "reward/no_signal_frac", "staleness/max",
		"response_length/mean", "response_length/max",
		"response_length/clip_ratio", "prompt_length/mean", "actor/clip_frac", "actor/loss", "actor/pg_loss",
		"actor/grad_norm"}
	line := func(groups []rollout.Group) report.Values {
		s := &step{number: 1}
		for i := range groups {
			groups[i].Index = i
		}
		r.sampling = samplingOf(streamOf(groups...))
		b, err := r.accumulate(t.Context(), s, 0, len(groups))
		require.NoError(t, err)
		require.NoError(t, r.t.update(t.Context(), s, b))
		v := report.Values{}
		require.NoError(t, r.record(s, v))
		s.metrics.into(v)
		return v
	}
	groups := tinyGroups(2, 4)
	for _, c := range []struct {
		groups                  []rollout.Group
		hasMeasured, hasSampled bool
	}{{groups, true, true}, {groups[1:], false, true}, {nil, false, false}} {
		v := line(c.groups)
		for _, name := range measured {
			_, ok := v[name]
			require.Equal(t, c.hasMeasured, ok, "%s of %d groups", name, len(c.groups))
		}
		for _, name := range sampled {
			_, ok := v[name]
			require.Equal(t, c.hasSampled, ok, "%s of %d groups", name, len(c.groups))
		}
		if c.hasMeasured {
			require.Positive(t, v["actor/entropy"])
			require.Positive(t, v["mismatch/logprob_abs_max"])
		}
	}
}
