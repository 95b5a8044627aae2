package trainer

import (
	"cmp"
	"context"
	"fmt"
	"iter"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/internal/exactsum"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/rollout"
)

// miniBatch is what one update needs besides the gradients, which the models accumulate.
type miniBatch struct {
	first   int // index of the mini-batch's first group in sampling.groups
	metrics metrics
	// responses and tokens determine the loss's divisor. They also count responses without
	// a gradient, whose pass is skipped.
	responses, tokens int
	loss, pg          exactsum.Sum // sums over tokens: the loss, and the loss without its divergence
	rows              int          // rows that have passed through the models
	leaves            []Leaf       // of the micro-batches, in the order of their passes; nil without Rollouts.Leaves
	scale             float64      // factor for the gradient sums: 1 / the loss's divisor; 0 if nothing is trained
}

// sequence is a response or demonstration with the inputs of its loss, which have a value for each trained
// token of spans. They are nil for a demonstration.
type sequence struct {
	spans     rollout.Trajectory
	advantage []float32
	weight    []float32
	response  *rollout.Response // nil for a demonstration
	index     int               // of response in its group
}

// leaf is the unit whose gradient is computed from zero and then added to the sums (see
// npu.Sums). It depends only on its group or demonstrations, not on the micro-batch.
type leaf []part

// rows returns the number of rows of the leaf's layout.
func (l leaf) rows() int {
	n := 0
	for i := range l {
		n += l[i].rows()
	}
	return n
}

// part is a prompt and those of its responses that share it in one leaf.
type part struct {
	id        string         // the prompt's ID, for errors; may be empty
	group     *rollout.Group // nil for a demonstration
	flow      uint64         // identifies the group in the trace; 0 for a demonstration
	sampler   int64          // version that sampled the responses; 0 for a demonstration
	prompt    []int32
	responses []sequence
}

// rows returns the number of rows of the part's layout: the prompt once, and those of each response.
func (p *part) rows() int {
	n := len(p.prompt)
	for i := range p.responses {
		n += trainedRows(p.responses[i].spans)
	}
	return n
}

// trainedRows returns the number of rows that spans need for their trained tokens.
func trainedRows(spans rollout.Trajectory) int {
	return attention.TrajectoryRows(spans, rollout.IsTrained)
}

// micro is one micro-batch: a forest of prompts with their responses, and the loss's inputs
// for each trained token, in the order of the layout's targets.
type micro struct {
	layout    attention.Layout
	advantage []float32
	weight    []float32
	behaviour []float32
	lengths   []int               // number of trained tokens of each response
	sampler   int64               // version that sampled all responses, because a step trains one batch
	responses []*rollout.Response // recorded responses; empty for demonstrations
	groups    []*rollout.Group    // groups[i] is the group of responses[i]
	indices   []int               // indices[i] is the index of responses[i] in its group
	flows     []uint64            // identify the groups in the trace
	firstID   string              // ID of the first prompt, for errors
	lastID    string
}

func (m *micro) rows() int { return m.layout.Rows() }

// add appends a leaf.
func (m *micro) add(l leaf) {
	for i := range l {
		m.addPart(&l[i])
	}
	m.layout.EndLeaf()
}

func (m *micro) addPart(p *part) {
	root := m.layout.Add(-1, p.prompt, false) // a new tree; prompts have no targets
	for i := range p.responses {
		r := &p.responses[i]
		m.layout.AddTrajectory(root, r.spans, rollout.IsTrained)
		m.behaviour = append(m.behaviour, r.spans.Logprobs(rollout.IsTrained)...)
		m.lengths = append(m.lengths, r.spans.Count(rollout.IsTrained))
		m.advantage = append(m.advantage, r.advantage...)
		m.weight = append(m.weight, r.weight...)
		if r.response != nil {
			m.responses = append(m.responses, r.response)
			m.groups = append(m.groups, p.group)
			m.indices = append(m.indices, r.index)
		}
	}
	if n := len(m.flows); p.flow != 0 && (n == 0 || m.flows[n-1] != p.flow) {
		m.flows = append(m.flows, p.flow)
	}
	if m.firstID == "" {
		m.firstID = p.id
	}
	m.lastID = p.id
	m.sampler = p.sampler
}

// wrap adds the IDs of the micro-batch's first and last prompts to an error.
func (m *micro) wrap(err error) error {
	switch {
	case m.firstID == "":
		return err
	case m.firstID == m.lastID:
		return fmt.Errorf("prompts %s: %w", m.firstID, err)
	}
	return fmt.Errorf("prompts %s to %s: %w", m.firstID, m.lastID, err)
}

// pack packs leaves in order into micro-batches of at most the given number of rows and runs each one when it
// is full. A larger leaf is a micro-batch by itself. Where pack cuts has no influence on the gradients' bits,
// because they are summed leaf by leaf.
func pack(leaves iter.Seq[leaf], rows int, run func(m *micro) error) error {
	m := &micro{}
	for l := range leaves {
		if m.rows() > 0 && m.rows()+l.rows() > rows {
			if err := run(m); err != nil {
				return err
			}
			m = &micro{}
		}
		m.add(l)
	}
	if m.rows() == 0 {
		return nil
	}
	return run(m)
}

// rowsFor returns the maximum rows of a micro-batch of these leaves: microBatchRows, or fewer to occupy all
// lanes of the models.
func (t *Trainer) rowsFor(leaves []leaf) int {
	n := 0
	for _, l := range leaves {
		n += l.rows()
	}
	lanes := t.Models.Lanes()
	return min(t.microBatchRows(), (n+lanes-1)/lanes)
}

// microBatchRows returns the maximum rows of a micro-batch: train.micro_batch_tokens, or fewer if the models'
// memory holds fewer.
func (t *Trainer) microBatchRows() int {
	return min(t.cfg.MicroBatchTokens, cmp.Or(t.Models.MicroBatchRows(), t.cfg.MicroBatchTokens))
}

// pass runs a micro-batch through the models, which accumulate its gradients. They may call derive only in a
// later Pass, Poll or Flush (see backend.Models), so m must not change until Flush.
func (t *Trainer) pass(ctx context.Context, s *step, b *miniBatch, m *micro, derive backend.Derive) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	defer t.Track.Begin(s.number, "micro-batch").EndWith(trace.Note{Tokens: m.rows(), Flows: m.flows})
	b.rows += m.rows()
	b.metrics.Sum("tokens/computed", float64(m.rows()))
	s.flops += t.Models.FLOPs(&m.layout)
	return t.Models.Pass(ctx, &m.layout, m.sampler, func(out backend.Outputs) (backend.Values, error) {
		gradients, err := derive(out)
		if err != nil {
			return nil, m.wrap(err)
		}
		return gradients, nil
	})
}
