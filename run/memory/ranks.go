package memory

import (
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/parallel"
)

// Rank is the memory of one rank's part of the models, in bytes.
type Rank struct {
	Rank      int   `json:"rank"`
	Weights   int64 `json:"weights"`
	Gradients int64 `json:"gradients"`
	Moments   int64 `json:"optimizer"`
	// Saved is what the rank copies while a checkpoint is written.
	Saved int64 `json:"checkpoint"`
	// InFlight is the most micro-batches whose activations the rank holds, Activations their
	// size at most, and Pass that of one.
	InFlight    int   `json:"in_flight"`
	Activations int64 `json:"activations"`
	Pass        int64 `json:"pass_activations"`
}

// train adds the memory of the run's ranks. Process p hosts all of them, or only rank 0 if there are
// several processes. A checkpoint has the moments and saved versions of the weights.
func (n *Need) train(cfg *configs.Config, shape *model.Config, p parallel.Process, saved int) {
	mesh := cfg.Parallel.Mesh()
	for i := range mesh.Size() {
		part := shape
		if mesh.Size() > 1 {
			var err error
			if part, err = shape.Shard(mesh, mesh.Coord(i), cfg.Parallel.Sequence); err != nil {
				return // the run is refused
			}
		}
		n.Ranks = append(n.Ranks, n.rank(part, i, mesh, &cfg.Parallel, cfg.Train.Recompute, saved))
	}
	if p.Size == 1 {
		n.Here = mesh.Size()
	}
	for _, r := range n.Ranks[:n.Here] {
		n.Weights += r.Weights
		n.Gradients += r.Gradients
		n.Moments += r.Moments
		n.Activations += r.Activations
		n.Saved += r.Saved
	}
	if mesh.Size() == 1 {
		n.Ranks, n.WholeCopies = nil, 0
		return
	}
	n.Saved += largest(shape)
	n.Whole = int64(n.WholeCopies) * 4 * shape.NumParams()
}

// rank returns the memory of a rank that holds a part of the models.
func (n *Need) rank(part *model.Config, rank int, mesh parallel.Mesh, set *parallel.Settings, recompute bool,
	saved int) Rank {
	at := mesh.Coord(rank)
	r := Rank{Rank: rank, Weights: int64(n.Copies) * 4 * part.NumParams(), InFlight: mesh.PP - at.PP}
	r.Gradients, r.Moments = updated(part, at.DP, mesh.DP, set.Zero)
	if at.DP == 0 { // the first replica lends weights, and moments if all have the same
		r.Saved = int64(saved) * 4 * part.NumParams()
	}
	if at.DP == 0 || set.Zero > 0 {
		r.Saved += r.Moments
	}
	r.Pass = model.ActivationBytes(part, n.Rows, n.leaf, n.Rows, recompute)
	r.Activations = int64(r.InFlight) * r.Pass
	return r
}

// largest returns the memory of a decoder's largest tensor.
func largest(shape *model.Config) (most int64) {
	params := shape.Params()
	for i := range params {
		most = max(most, 4*int64(params[i].Shape().Values()))
	}
	return most
}

// updated returns the memory of the gradients and moments of a replica's part. With ZeRO stage 1, a
// replica keeps only the moments of its pieces. With stage 2, it also keeps only the gradient sums of
// its pieces of the layers, and whole sums of the two layers that a backward pass works on.
func updated(part *model.Config, replica, replicas, zero int) (gradients, moments int64) {
	if zero == 0 || replicas == 1 {
		return model.GradientBytes(part), 8 * part.NumParams()
	}
	params := part.Params()
	inLayers := int64(0)
	for _, p := range params.Pieces(replica, replicas) {
		values := int64(p.Shape().Values())
		moments += 8 * values
		if p.Layer >= 0 {
			inLayers += 8 * values
		}
	}
	if zero == 1 {
		return model.GradientBytes(part), moments
	}
	for i := range params {
		if params[i].Layer < 2 {
			gradients += 8 * int64(params[i].Shape().Values())
		}
	}
	return gradients + inLayers, moments
}

// others returns the number of the run's other processes on this machine and the most memory that
// they need. Launchers give neighbouring ranks to a machine.
func (n *Need) others() (count int, most int64) {
	if n.Here > 1 {
		return 0, 0
	}
	for i := 1; i < min(n.beside, len(n.Ranks)); i++ {
		r := &n.Ranks[i]
		count++
		most += r.Saved
		if !n.elsewhere {
			most += r.Weights + r.Gradients + r.Moments + r.Activations
		} else if n.Swap != nil {
			most += r.Moments + r.Weights/int64(n.Copies)*int64(n.Copies-3) // the reference
		}
	}
	return count, most
}
