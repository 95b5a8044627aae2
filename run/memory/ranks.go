package memory

import (
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/parallel/launch"
)

// Rank is the memory of one rank's part of the models, in bytes.
type Rank struct {
	Rank      int   `json:"rank"`
	Weights   int64 `json:"weights"`
	Gradients int64 `json:"gradients"`
	Moments   int64 `json:"optimizer"`
	// InFlight is the most micro-batches whose activations the rank holds, Activations their
	// size at most, and Pass that of one.
	InFlight    int   `json:"in_flight"`
	Activations int64 `json:"activations"`
	Pass        int64 `json:"pass_activations"`
}

// train adds the memory of the ranks of a run, of which p hosts all, or rank 0 if it is one of
// several processes.
func (n *Need) train(cfg *configs.Config, shape *model.Config, p launch.Process) {
	mesh := parallel.Mesh{DP: cfg.Parallel.DP, TP: cfg.Parallel.TP, PP: cfg.Parallel.PP}
	for i := range mesh.Size() {
		part := shape
		if mesh.Size() > 1 {
			var err error
			if part, err = shape.Shard(mesh, mesh.Coord(i)); err != nil {
				return // the run is refused
			}
		}
		n.Ranks = append(n.Ranks, n.rank(part, i, mesh.PP-mesh.Coord(i).PP, cfg.Train.Recompute))
	}
	if p.Size == 1 {
		n.Here = mesh.Size()
	}
	for _, r := range n.Ranks[:n.Here] {
		n.Weights += r.Weights
		n.Gradients += r.Gradients
		n.Moments += r.Moments
		n.Activations += r.Activations
	}
	if mesh.Size() == 1 {
		n.Ranks = nil
		return
	}
	n.WholeCopies = min(2, n.Copies) // one if nothing is published
	n.Whole = int64(n.WholeCopies) * 4 * shape.NumParams()
}

// rank returns the memory of a rank that holds a part of the models.
func (n *Need) rank(part *model.Config, rank, inFlight int, recompute bool) Rank {
	one := 4 * part.NumParams()
	r := Rank{Rank: rank, Weights: int64(n.Copies) * one, Gradients: model.GradientBytes(part), Moments: 2 * one, InFlight: inFlight}
	r.Pass = model.ActivationBytes(part, n.Rows, n.Rows, recompute)
	r.Activations = int64(inFlight) * r.Pass
	return r
}

// others returns the number of the run's other processes on this machine and the most memory that
// they need. Launchers give neighbouring ranks to a machine.
func (n *Need) others() (count int, most int64) {
	if n.elsewhere || n.Here > 1 {
		return 0, 0
	}
	for i := 1; i < min(n.beside, len(n.Ranks)); i++ {
		r := &n.Ranks[i]
		count++
		most += r.Weights + r.Gradients + r.Moments + r.Activations
	}
	return count, most
}
