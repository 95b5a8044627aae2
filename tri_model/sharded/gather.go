package sharded

import (
	"errors"
	"fmt"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/source"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/parallel"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// Ranks may have the same values of a parameter: all replicas, all tensor ranks for a parameter that they do
// not divide, and the first and the last stage for a tied embedding. The first of these ranks owns the
// values: the trainer reads them from it. With ZeRO, replicas have different moments, and each owns its own.

// owns reports whether a rank of shape s owns its values of a parameter. perReplica means that replicas
// have different values.
func owns(s *model.Config, p *tensor.Param, perReplica bool) bool {
	at := s.Part().At
	firstReplica := at.DP == 0 || perReplica
	firstTensorRank := at.TP == 0 || p.Whole.Share == tensor.Divided
	firstStage := s.First() || !s.TiedStages(p)
	return firstReplica && firstTensorRank && firstStage
}

// differsByReplica reports whether replicas have different values of tensors of a kind at ZeRO stage zero.
func differsByReplica(kind trimodel.Kind, zero int) bool { return zero > 0 && kind != trimodel.Weights }

// part is a rank's part of a tensor.
type part struct {
	*tensor.Param
	rank  int
	index int // index among the rank's tensors of that name (rank.tensors)
}

// tensors returns the rank's tensors of a kind: the pieces for moments, otherwise params.
func (r *rank) tensors(kind trimodel.Kind) tensor.Params {
	if kind == trimodel.Weights {
		return r.params
	}
	return r.pieces
}

// allParts returns all ranks' parts of tensors of a kind, by the name of the tensor of the complete
// decoder. Several parts may have the same values.
func (w *world) allParts(kind trimodel.Kind) map[string][]part {
	return w.partsIf(kind, func(*rank, *tensor.Param) bool { return true })
}

// ownedParts returns the owners' parts of tensors of a kind, by the name of the tensor of the complete
// decoder. They cover each value once.
func (w *world) ownedParts(kind trimodel.Kind) map[string][]part {
	perReplica := differsByReplica(kind, w.cfg.Zero)
	return w.partsIf(kind, func(r *rank, p *tensor.Param) bool { return owns(r.shape, p, perReplica) })
}

// partsIf returns the parts for which keep returns true.
func (w *world) partsIf(kind trimodel.Kind, keep func(*rank, *tensor.Param) bool) map[string][]part {
	parts := map[string][]part{}
	for i, r := range w.ranks {
		tensors := r.tensors(kind)
		for k := range tensors {
			if p := &tensors[k]; keep(r, p) {
				parts[p.Name] = append(parts[p.Name], part{p, i, k})
			}
		}
	}
	return parts
}

// scatter returns a function that sets one tensor of each of names on all ranks. The function gets the values of
// the complete tensor, row-major. All names must be of one kind. The caller calls barrier when all tensors are
// set.
func (w *world) scatter(names ...trimodel.Tensors) source.Use {
	parts := w.allParts(names[0].Kind)
	return func(_ int, p *tensor.Param, values []float32) error {
		for _, part := range parts[p.Name] {
			for _, name := range names {
				extracted := make([]float32, part.Shape().Values()) // fresh, because the command owns it
				part.Extract(extracted, values)
				c := command{Action: fill, Tensors: name, Param: part.index, Values: extracted}
				if err := w.send(w.ranks[part.rank:part.rank+1], c); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// gathered reads weights of the complete decoder from the owners' snapshots. It needs memory for one
// rank's part of a tensor. Any goroutine may use it while the ranks train.
type gathered struct {
	world func() *world     // returns the world to read; only its constant fields and inbox may be used
	shape *model.Config     // shape of the complete decoder
	query query             // for all parameters; read sets param
	parts map[string][]part // owners' parts by the name of the tensor, in every world
}

// gatherVersion returns the published version with a number. Each read calls from for the world.
func (w *world) gatherVersion(number int64, from func() *world) *gathered {
	return &gathered{from, w.shape, query{which: published, number: number}, w.ownedParts(trimodel.Weights)}
}

// gatherCopies returns the copies of the tensors Config.Models.Stored()[which] for the checkpoint with a number.
func (w *world) gatherCopies(which int, number int64) *gathered {
	kind := w.cfg.Models.Stored()[which].Kind
	same := func() *world { return w }
	return &gathered{same, w.shape, query{which: which, number: number}, w.ownedParts(kind)}
}

// read fills values with a tensor of the complete decoder, row-major.
func (g *gathered) read(p *tensor.Param, values []float32) error {
	q := g.query
	w := g.world()
	for _, part := range g.parts[p.Name] {
		q.param = part.index
		err := w.ranks[part.rank].snapshots.read(w.life, q, func(read []float32) { part.Insert(values, read) })
		if errors.As(err, new(*parallel.RankError)) {
			w.inbox.fail(err) // has no effect after an earlier failure
		}
		if failure := w.failure(); failure != nil {
			return failure // err only follows from it
		}
		if err != nil {
			return fmt.Errorf("read tensor %s: %w", p.Name, err)
		}
	}
	return nil
}

// each calls use with each tensor of the complete decoder in order. use must not keep the values, which
// are overwritten after it returns.
func (g *gathered) each(use source.Use) error {
	var values []float32
	params := g.shape.Params()
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

// sources returns the tensors of the complete decoder, for a checkpoint. Writing a tensor reads it from
// the ranks, whose values are of the given type.
func (g *gathered) sources(dtype npu.DType) (all []checkpoint.Source) {
	params := g.shape.Params()
	for i := range params {
		p := &params[i]
		write := func(dst []float32) error { return g.read(p, dst) }
		all = append(all, checkpoint.Source{Name: p.Name, DType: model.StoredType(dtype),
			Shape: p.Shape().RowShape(), Write: write})
	}
	return all
}
