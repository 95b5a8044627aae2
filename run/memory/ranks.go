package memory

import (
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/parallel"
)

// Rank is the memory of one rank's part of the models, in bytes.
type Rank struct {
	Rank      int   `json:"rank"`
	Weights   int64 `json:"weights"`
	Gradients int64 `json:"gradients"`
	Moments   int64 `json:"optimizer"`
	// Saved is the copy of weights and moments that the rank holds while a checkpoint is written.
	Saved int64 `json:"checkpoint"`
	// InFlight is the maximum number of micro-batches whose activations the rank holds at once, Activations the
	// maximum size of all of these, and Pass of those of one micro-batch.
	InFlight    int   `json:"in_flight"`
	Activations int64 `json:"activations"`
	Pass        int64 `json:"pass_activations"`
}

// train adds the memory of the run's ranks. Process p hosts all of them, or only rank 0 if there are
// several processes. A checkpoint holds the moments and savedVersions versions of the weights.
func (n *Need) train(cfg *configs.Config, shape *model.Config, p parallel.Process, savedVersions int) {
	mesh := cfg.Parallel.Mesh()
	for i := range mesh.Size() {
		part := shape
		if mesh.Size() > 1 {
			var err error
			if part, err = shape.Shard(mesh, mesh.Coord(i), cfg.Parallel.Sequence); err != nil {
				return // ranks.CheckMesh refuses the run
			}
		}
		n.Ranks = append(n.Ranks, n.rank(part, i, cfg, savedVersions))
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
	n.Saved += largestTensor(shape)
	n.Whole = int64(n.WholeCopies) * weightBytes(cfg) * shape.NumParams()
}

// rank returns the memory of a rank that holds a part of the models.
func (n *Need) rank(part *model.Config, rank int, cfg *configs.Config, savedVersions int) Rank {
	mesh := cfg.Parallel.Mesh()
	coord := mesh.Coord(rank)
	weights := weightBytes(cfg) * part.NumParams() // of one copy
	r := Rank{Rank: rank, Weights: int64(n.Copies) * weights, InFlight: mesh.PP - coord.PP}
	r.Gradients, r.Moments = updated(part, coord.DP, mesh.DP, cfg)
	if coord.DP == 0 { // only the first replica saves weights, which are the same on all
		r.Saved = int64(savedVersions) * float32Bytes * part.NumParams()
	}
	if coord.DP == 0 || cfg.Parallel.Zero > 0 { // with ZeRO, each replica saves the moments of its pieces
		r.Saved += r.Moments
	}
	r.Pass = model.ActivationBytes(part, cfg.Numerics(), n.Rows, n.leaf, n.Rows, cfg.Train.Recompute)
	r.Activations = int64(r.InFlight) * r.Pass
	return r
}

// weightBytes returns the size of a weight.
func weightBytes(cfg *configs.Config) int64 { return int64(cfg.Numerics().Type().Size()) }

// largestTensor returns the size of a decoder's largest tensor in float32.
func largestTensor(shape *model.Config) (largest int64) {
	params := shape.Params()
	for i := range params {
		largest = max(largest, 4*int64(params[i].Shape().Values()))
	}
	return largest
}

// updated returns the memory of the gradients and moments of a replica's part: 8 bytes per parameter each, for
// 64-bit sums and for two moments in float32. Masters, if there are any, count as moments. With ZeRO stage 1, a replica
// keeps only the moments of its pieces. With stage 2, it also keeps only the gradient sums of its pieces of the layers,
// and complete sums of the two layers that a backward pass works on.
func updated(part *model.Config, replica, replicas int, cfg *configs.Config) (gradients, moments int64) {
	zero, each := cfg.Parallel.Zero, int64(8) // each is the moments' bytes of a parameter
	if cfg.Numerics() == npu.BF16 {
		each += 4
	}
	if zero == 0 || replicas == 1 {
		return model.GradientBytes(part), each * part.NumParams()
	}
	params := part.Params()
	inLayers := int64(0)
	for _, p := range params.Pieces(replica, replicas) {
		values := int64(p.Shape().Values())
		moments += each * values
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

// others returns the number of the run's other processes on this machine and the maximum host memory of all of
// them. It assumes that launchers start consecutive ranks on a machine.
func (n *Need) others() (count int, bytes int64) {
	if n.Here > 1 {
		return 0, 0
	}
	for i := 1; i < min(n.localSize, len(n.Ranks)); i++ {
		r := &n.Ranks[i]
		count++
		bytes += r.Saved
		if !n.onDevice {
			bytes += r.Weights + r.Gradients + r.Moments + r.Activations
		} else if n.Swap != nil {
			reference := r.Weights / int64(n.Copies) * int64(n.Copies-3) // the fourth copy, if there is one
			bytes += r.Moments + reference
		}
	}
	return count, bytes
}
