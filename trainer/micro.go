package trainer

import (
	"fmt"
	"iter"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/rollout"
)

// part is some or all of a group's responses, which share its prompt in one
// micro-batch.
type part struct {
	group      *rollout.Group
	responses  []int
	advantages []float64 // of the group's responses
}

// rows of the layout that the part becomes: the prompt once, and of each
// response all tokens but the last, which predicts nothing.
func (p *part) rows() int {
	n := len(p.group.Prompt.IDs)
	for _, i := range p.responses {
		n += len(p.group.Responses[i].IDs) - 1
	}
	return n
}

// parts cuts the kept responses of a group so that each part fits a
// micro-batch, in a way that depends on the group alone. Responses without a
// gradient are left out: where beta is 0, those whose advantage is 0.
func (t *Trainer) parts(g *rollout.Group, advantages []float64, kept []int) iter.Seq[part] {
	return func(yield func(part) bool) {
		now := part{group: g, advantages: advantages}
		rows := len(g.Prompt.IDs)
		for _, i := range kept {
			if advantages[i] == 0 && t.cfg.Loss.Beta == 0 {
				continue
			}
			n := len(g.Responses[i].IDs) - 1
			if len(now.responses) > 0 && rows+n > t.cfg.MicroBatchTokens {
				if !yield(now) {
					return
				}
				now.responses, rows = nil, len(g.Prompt.IDs)
			}
			now.responses = append(now.responses, i)
			rows += n
		}
		if len(now.responses) > 0 {
			yield(now)
		}
	}
}

// micro is one micro-batch: a forest of prompts with their responses, and what
// the loss needs for each response token, in the order of the layout's targets.
type micro struct {
	layout    attention.Layout
	advantage []float32
	weight    []float32
	behaviour []float32 // the instance's log-probabilities
	lengths   []int     // tokens of each response
	flows     []uint64  // the groups' names in the trace
	first     string    // prompt ids, for errors
	last      string
}

func (m *micro) rows() int { return m.layout.Rows() }

func (m *micro) add(p part, aggregation loss.Aggregation) {
	root := m.layout.Add(-1, p.group.Prompt.IDs, false)
	for _, i := range p.responses {
		r := &p.group.Responses[i]
		m.layout.AddLeaf(root, r.IDs)
		m.behaviour = append(m.behaviour, r.Logprobs...)
		m.lengths = append(m.lengths, len(r.IDs))
		for range r.IDs {
			m.advantage = append(m.advantage, float32(p.advantages[i]))
			m.weight = append(m.weight, aggregation.Weight(len(r.IDs)))
		}
	}
	if n := len(m.flows); n == 0 || m.flows[n-1] != p.group.Seed {
		m.flows = append(m.flows, p.group.Seed)
	}
	if m.first == "" {
		m.first = p.group.Prompt.ID
	}
	m.last = p.group.Prompt.ID
}

func (m *micro) names() string {
	if m.first == m.last {
		return m.first
	}
	return fmt.Sprintf("%s to %s", m.first, m.last)
}
