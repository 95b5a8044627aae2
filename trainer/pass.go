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

// batch is what one update needs besides the gradients, which the models accumulate.
type batch struct {
	first   int // place of its first group among those of the step
	metrics metrics
	// responses and tokens determine the loss's divisor. They also count responses without
	// a gradient, whose pass is skipped.
	responses, tokens int
	loss, pg          exactsum.Sum // unnormalised: the loss, and its part without the divergence
	rows              int          // passed through the models
	scale             float64      // of the gradients: 1 over the loss's divisor; 0 without responses
}

// sequence is a response with the inputs of its loss.
type sequence struct {
	ids       []int32
	behaviour []float32 // the sampler's log-probabilities; nil for a demonstration
	advantage float32
	response  *rollout.Response // recorded; nil for a demonstration
	weight    float32           // of each token in the loss
}

// leaf is the unit whose gradient is computed from zero and then added to the sums (see
// npu.Sums). It depends on its groups or demonstrations alone, not on the micro-batch.
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
	id        string         // of the prompt, for errors; may be empty
	group     *rollout.Group // nil for a demonstration
	flow      uint64         // the group's name in the trace; 0 if none
	prompt    []int32
	responses []sequence
}

// rows returns the number of rows of the part's layout: the prompt once, and all tokens of
// each response but the last, which predicts nothing.
func (p *part) rows() int {
	n := len(p.prompt)
	for i := range p.responses {
		n += len(p.responses[i].ids) - 1
	}
	return n
}

// micro is one micro-batch: a forest of prompts with their responses, and the loss's inputs
// for each response token, in the order of the layout's targets.
type micro struct {
	layout    attention.Layout
	advantage []float32
	weight    []float32
	behaviour []float32
	lengths   []int               // tokens of each response
	responses []*rollout.Response // those of rollouts
	groups    []*rollout.Group    // of responses
	flows     []uint64            // the groups' names in the trace
	first     string              // prompt ids, for errors
	last      string
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
	root := m.layout.Add(-1, p.prompt, false)
	for i := range p.responses {
		r := &p.responses[i]
		m.layout.AddResponse(root, r.ids)
		m.behaviour = append(m.behaviour, r.behaviour...)
		m.lengths = append(m.lengths, len(r.ids))
		if r.response != nil {
			m.responses = append(m.responses, r.response)
			m.groups = append(m.groups, p.group)
		}
		for range r.ids {
			m.advantage = append(m.advantage, r.advantage)
			m.weight = append(m.weight, r.weight)
		}
	}
	if n := len(m.flows); p.flow != 0 && (n == 0 || m.flows[n-1] != p.flow) {
		m.flows = append(m.flows, p.flow)
	}
	if m.first == "" {
		m.first = p.id
	}
	m.last = p.id
}

// wrap adds the IDs of the prompts to an error.
func (m *micro) wrap(err error) error {
	switch {
	case m.first == "":
		return err
	case m.first == m.last:
		return fmt.Errorf("prompts %s: %w", m.first, err)
	}
	return fmt.Errorf("prompts %s to %s: %w", m.first, m.last, err)
}

// pack packs leaves in order into micro-batches of at most this many rows and runs each one
// when it is full. A larger leaf becomes a separate micro-batch. The cuts change no bit of
// the gradients.
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

// rows returns the maximum size of a micro-batch of these leaves: train.micro_batch_tokens, or
// less to occupy all lanes of the models.
func (t *Trainer) rows(leaves []leaf) int {
	n := 0
	for _, l := range leaves {
		n += l.rows()
	}
	lanes := t.Models.Lanes()
	return min(t.microBatchRows(), (n+lanes-1)/lanes)
}

// microBatchRows returns train.micro_batch_tokens, or less if the models' memory holds less.
func (t *Trainer) microBatchRows() int {
	return min(t.cfg.MicroBatchTokens, cmp.Or(t.Models.MicroBatchRows(), t.cfg.MicroBatchTokens))
}

// pass runs a micro-batch through the models, which accumulate its gradients. derive may be
// called later.
func (t *Trainer) pass(ctx context.Context, s *step, b *batch, m *micro, derive backend.Derive) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	defer t.Track.Begin(s.number, "micro-batch").EndWith(trace.Note{Tokens: m.rows(), Flows: m.flows})
	b.rows += m.rows()
	b.metrics.Sum("tokens/computed", float64(m.rows()))
	s.flops += t.Models.FLOPs(&m.layout)
	return t.Models.Pass(ctx, &m.layout, func(lp backend.Logprobs) ([]float32, error) {
		gradient, err := derive(lp)
		if err != nil {
			return nil, m.wrap(err)
		}
		return gradient, nil
	})
}
