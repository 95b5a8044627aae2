package trainer

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
)

// Demonstration is a prompt, as token ids, and what follows it. The policy learns to imitate the trained
// spans.
type Demonstration struct {
	Prompt []int32
	Spans  rollout.Trajectory
}

// HeldOut is a set of examples that is never trained on.
type HeldOut struct {
	Name     string // in metrics: eval/<name>/loss
	Examples []Demonstration
}

// Demonstrations is the data of supervised fine-tuning. The loss is the mean cross-entropy
// of the response tokens of a step. The loss of a held-out set is the mean over all its
// response tokens.
type Demonstrations struct {
	// Example returns example i of the endless training order.
	Example func(i int) Demonstration
	HeldOut []HeldOut
}

// demonstrations is the source of supervised fine-tuning.
type demonstrations struct {
	Demonstrations
	t *Trainer
}

// DemonstrationRows is the maximum number of rows of a leaf of demonstrations. A single demonstration may have
// more.
const DemonstrationRows = 512

// NewSFT prepares supervised fine-tuning. state is zero for a new run and comes from Resume
// for a resumed one. The first gradient that is not finite ends the run.
func NewSFT(cfg Config, state State, deps Deps, d Demonstrations) (*Trainer, error) {
	cfg.MaxNonFinite = 1
	if len(d.HeldOut) == 0 {
		cfg.EvalEvery = 0
	}
	t := newTrainer(cfg, state, deps)
	t.source = &demonstrations{Demonstrations: d, t: t}
	return t, nil
}

func (d *demonstrations) start(context.Context, *step) error { return nil }

func (d *demonstrations) accumulate(ctx context.Context, s *step, first, end int) (*miniBatch, error) {
	b := &miniBatch{responses: end - first}
	first += d.t.state.Position
	example := func(i int) Demonstration { return d.Example(first + i) }
	leaves := slices.Collect(d.leaves(b.responses, example))
	err := pack(slices.Values(leaves), d.t.rowsFor(leaves), func(m *micro) error {
		return d.t.pass(ctx, s, b, m, b.crossEntropy)
	})
	if err == nil {
		err = d.t.Models.Flush(ctx)
	}
	if err != nil {
		return nil, err
	}
	if b.tokens > 0 {
		b.scale = 1 / float64(b.tokens)
	}
	return b, nil
}

// crossEntropy measures the responses' negative log-likelihood and returns its derivative.
func (b *miniBatch) crossEntropy(out backend.Outputs) (backend.Values, error) {
	logprobs := out.Values[backend.Policy]
	grad := make([]float32, len(logprobs))
	for i, v := range logprobs {
		grad[i] = -1
		b.metrics.Mean("actor/loss", -float64(v), 1)
	}
	b.tokens += len(grad)
	b.metrics.Sum("tokens/response", float64(len(grad)))
	return backend.Values{backend.Policy: grad}, nil
}

// leaves packs examples 0 to n-1, in order, into leaves of up to DemonstrationRows rows. For models that do not
// sum by leaves, each example is a leaf.
func (d *demonstrations) leaves(n int, example func(i int) Demonstration) iter.Seq[leaf] {
	limit := DemonstrationRows
	if d.t.Models.LeafRows(0) == 0 {
		limit = 0
	}
	return func(yield func(leaf) bool) {
		var current leaf
		for i := range n {
			e := example(i)
			p := part{prompt: e.Prompt, responses: []sequence{{spans: e.Spans}}}
			if len(current) > 0 && current.rows()+p.rows() > limit {
				if !yield(current) {
					return
				}
				current = nil
			}
			current = append(current, p)
		}
		if len(current) > 0 {
			yield(current)
		}
	}
}

func (d *demonstrations) abandon() {}

func (d *demonstrations) updated(*step, *miniBatch) {}

func (d *demonstrations) remedy() string { return "a lower train.lr" }

func (d *demonstrations) end() error { return nil }

func (d *demonstrations) unusable(context.Context) bool { return false }

func (d *demonstrations) record(s *step, line report.Values) error {
	computed, _ := s.metrics.totals("tokens/computed")
	line["perf/tokens_per_second"] = computed / s.clock.all.Seconds()
	return nil
}

// checksum implements source: supervised training publishes no version, and records no checksum.
func (d *demonstrations) checksum(context.Context) (string, error) { return "", nil }

// evaluate adds the losses of the held-out sets to line. They do not rank checkpoints, so score is NaN.
func (d *demonstrations) evaluate(ctx context.Context, line report.Values) (score float64, err error) {
	if len(d.HeldOut) == 0 {
		return math.NaN(), nil
	}
	began := time.Now()
	var losses metrics
	for _, set := range d.HeldOut {
		leaves := d.leaves(len(set.Examples), func(i int) Demonstration { return set.Examples[i] })
		err := pack(leaves, d.t.microBatchRows(), func(m *micro) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			lp, err := d.t.Models.Score(ctx, &m.layout)
			for _, v := range lp {
				losses.Mean("eval/"+set.Name+"/loss", -float64(v), 1)
			}
			return err
		})
		if err != nil {
			return math.NaN(), fmt.Errorf("evaluate %s after step %d: %w", set.Name, d.t.state.Step, err)
		}
	}
	losses.into(line)
	line["timing_s/eval"] = time.Since(began).Seconds()
	return math.NaN(), nil
}
