package sharded

import (
	"context"
	"fmt"
	"slices"

	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/source"
	"github.com/easyrl/easyrl/model/tensor"
	trimodel "github.com/easyrl/easyrl/tri_model"
	"github.com/easyrl/easyrl/tri_model/sharded/lend"
)

// sends reports whether a rank lends its values of a parameter. Of several ranks with the same
// values, the first one does. divided means that replicas have different values.
func sends(s *model.Config, p *tensor.Param, divided bool) bool {
	at := s.Part().At
	return (at.DP == 0 || divided) && (at.TP == 0 || p.Whole.Share == tensor.Divided) && (s.First() || !s.TiedStages(p))
}

// divided reports whether replicas have different values of some weights.
func divided(name which, zero int) bool { return zero > 0 && (name == first || name == second) }

// saves returns which weights a checkpoint has.
func saves(cfg *trimodel.Config) []which {
	if cfg.OldPolicy == loss.PreviousStep {
		return []which{policy, first, second, old}
	}
	return []which{policy, first, second}
}

// kindOf returns the kind under which a shelf lends some weights: held weights as a published version,
// others as copies for a checkpoint.
func kindOf(name which) int {
	if name == held {
		return lend.Published
	}
	return slices.Index([]which{policy, first, second, old}, name)
}

// part is a rank's part of a tensor.
type part struct {
	*tensor.Param
	rank  *rank
	index int // among the rank's parameters
}

// partsOf returns the ranks' parts of the whole decoder's tensors, by name. If lent is set, they cover
// each value once; otherwise they include every rank's copy.
func (c *crew) partsOf(name which, lent bool) map[string][]part {
	all := map[string][]part{}
	for _, r := range c.ranks {
		has := r.has(name)
		for i := range has {
			if own := &has[i]; !lent || sends(r.shape, own, divided(name, c.cfg.Zero)) {
				all[own.Name] = append(all[own.Name], part{own, r, i})
			}
		}
	}
	return all
}

// give returns a function that sets some weights of all ranks, tensor by tensor. Its values are those
// of the whole tensor, row-major.
func (c *crew) give(ctx context.Context, names ...which) source.Use {
	parts := c.partsOf(names[0], false)
	return func(_ int, p *tensor.Param, values []float32) error {
		for _, own := range parts[p.Name] {
			for _, name := range names {
				vals := make([]float32, own.Shape().Values())
				own.Extract(vals, values)
				if err := c.tell(ctx, []*rank{own.rank}, command{Action: fill, Which: name, Param: own.index, Values: vals}); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// loan reads what ranks lend of some weights. It needs memory for one rank's part of a tensor. Any
// goroutine may use it.
type loan struct {
	crew  *crew
	query lend.Query // but for the parameter
	parts map[string][]part
}

// borrow returns a loan of a version of held weights, or of the copies for the checkpoint of a number.
func (c *crew) borrow(name which, version int64) *loan {
	return &loan{c, lend.Query{Kind: kindOf(name), Version: version}, c.partsOf(name, true)}
}

// read fills values with a tensor of the whole decoder, row-major.
func (l *loan) read(p *tensor.Param, values []float32) error {
	q := l.query
	for _, own := range l.parts[p.Name] {
		q.Param = own.index
		err := own.rank.shelf.Lend(l.crew.life, q, func(vals []float32) { own.Insert(values, vals) })
		if first := l.crew.err(); first != nil {
			return first
		}
		if err != nil {
			return fmt.Errorf("read tensor %s: %w", p.Name, err)
		}
	}
	return nil
}

// each calls use with each tensor of the whole decoder in order.
func (l *loan) each(use source.Use) error {
	var values []float32
	params := l.crew.shape.Params()
	for i := range params {
		p := &params[i]
		n := p.Shape().Values()
		values = slices.Grow(values[:0], n)[:n]
		if err := l.read(p, values); err != nil {
			return err
		}
		if err := use(i, p, values); err != nil {
			return err
		}
	}
	return nil
}
