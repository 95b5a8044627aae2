package sharded

import (
	"context"
	"fmt"
	"slices"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/source"
	"github.com/easyrl/easyrl/model/tensor"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// Several ranks may have the same values of a parameter: replicas, tensor ranks for what they do not
// divide, and first and last stage for a tied embedding. The first of them is the parameter's owner,
// from which values are read. With ZeRO, replicas have different moments, and each owns its own.

// owns reports whether a rank of shape s owns its values of a parameter. divided says that replicas
// have different values.
func owns(s *model.Config, p *tensor.Param, divided bool) bool {
	at := s.Part().At
	return (at.DP == 0 || divided) && (at.TP == 0 || p.Whole.Share == tensor.Divided) && (s.First() || !s.TiedStages(p))
}

// divided reports whether replicas have different values of some weights.
func divided(name which, zero int) bool { return zero > 0 && (name == first || name == second) }

// saved returns which weights a checkpoint has.
func saved(cfg *trimodel.Config) []which {
	if cfg.OldPolicy == loss.PreviousStep {
		return []which{policy, first, second, old}
	}
	return []which{policy, first, second}
}

// part is a rank's part of a tensor.
type part struct {
	*tensor.Param
	rank  *rank
	index int // among the rank's parameters or pieces
}

// has returns the tensors, or pieces of tensors, that a rank has of some weights.
func (r *rank) has(name which) tensor.Params {
	if name == first || name == second {
		return r.pieces
	}
	return r.params
}

// parts returns the ranks' parts of the whole decoder's tensors, by name: those of owners, which cover
// each value once, or those of all ranks.
func (m *Models) parts(name which, ofOwners bool) map[string][]part {
	all := map[string][]part{}
	for _, r := range m.ranks {
		has := r.has(name)
		for i := range has {
			if p := &has[i]; !ofOwners || owns(r.shape, p, divided(name, m.cfg.Zero)) {
				all[p.Name] = append(all[p.Name], part{p, r, i})
			}
		}
	}
	return all
}

// scatter returns a function that sets some weights of all ranks, tensor by tensor. Its values are
// those of the whole tensor, row-major. The weights have the same parts on each rank. Call barrier
// when all tensors are set.
func (m *Models) scatter(ctx context.Context, names ...which) source.Use {
	parts := m.parts(names[0], false)
	return func(_ int, p *tensor.Param, values []float32) error {
		for _, part := range parts[p.Name] {
			for _, name := range names {
				vals := make([]float32, part.Shape().Values()) // the command takes them
				part.Extract(vals, values)
				c := command{Action: fill, Which: name, Param: part.index, Values: vals}
				if err := m.send(ctx, []*rank{part.rank}, c); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// gathered reads weights of the whole decoder from the owners' snapshots. It needs memory for one
// rank's part of a tensor. Any goroutine may use it while the ranks train.
type gathered struct {
	m     *Models // only what does not change after New
	query query   // but for the parameter
	parts map[string][]part
}

// gather returns a published version, if name is held, or the copies for the checkpoint of a number.
func (m *Models) gather(name which, number int64) *gathered {
	kind := published
	if name != held {
		kind = slices.Index([]which{policy, first, second, old}, name)
	}
	return &gathered{m, query{kind: kind, number: number}, m.parts(name, true)}
}

// read fills values with a tensor of the whole decoder, row-major.
func (g *gathered) read(p *tensor.Param, values []float32) error {
	q := g.query
	for _, part := range g.parts[p.Name] {
		q.param = part.index
		err := part.rank.snapshots.read(g.m.life, q, func(vals []float32) { part.Insert(values, vals) })
		if failure := g.m.inbox.err(); failure != nil {
			return failure
		}
		if err != nil {
			return fmt.Errorf("read tensor %s: %w", p.Name, err)
		}
	}
	return nil
}

// each calls use with each tensor of the whole decoder in order. Its values are overwritten after it
// returns.
func (g *gathered) each(use source.Use) error {
	var values []float32
	params := g.m.shape.Params()
	for i := range params {
		p := &params[i]
		values = resize(values, p.Shape().Values())
		if err := g.read(p, values); err != nil {
			return err
		}
		if err := use(i, p, values); err != nil {
			return err
		}
	}
	return nil
}

// sources returns the tensors of the whole decoder, for a checkpoint. They are read when they are
// written.
func (g *gathered) sources() (all []checkpoint.Source) {
	params := g.m.shape.Params()
	for i := range params {
		p := &params[i]
		write := func(dst []float32) error { return g.read(p, dst) }
		all = append(all, checkpoint.Source{Name: p.Name, Shape: p.Shape().RowShape(), Write: write})
	}
	return all
}
