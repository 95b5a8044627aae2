// Package layout predicts how the ranks of a mesh share a run: what each one holds and does, how
// much they send each other, and how long they wait.
package layout

import (
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/decoder"
	"github.com/easyrl/easyrl/parallel"
)

// Range is a range of indices from 0. It includes both ends.
type Range struct {
	First int `json:"first"`
	Last  int `json:"last"`
}

// Rank is a process or a goroutine of the run and its place in the mesh.
type Rank struct {
	Rank int `json:"rank"`
	DP   int `json:"dp"`
	TP   int `json:"tp"`
	PP   int `json:"pp"`
	*Part
}

// Part is what a rank holds and does.
type Part struct {
	Layers     Range `json:"layers"` // as in the names of tensors
	Heads      Range `json:"query_heads"`
	KVHeads    Range `json:"key_value_heads"`
	FFN        Range `json:"feed_forward"`
	Vocabulary Range `json:"vocabulary"`
	// Duties are what the rank does beside its part of the layers; rank 0's hosts the trainer.
	Duties []string `json:"duties"`
}

// Duties of ranks. Embedding belongs to the first stage, LogProbs to the last one, and Publishing
// to the ranks of the first replica, which send rank 0 the weights to publish and save.
const (
	Embedding  = "embedding"
	LogProbs   = "log-probabilities"
	Publishing = "publishing"
)

// Places returns the ranks of a mesh without their parts.
func Places(mesh parallel.Mesh) (ranks []Rank) {
	for i := range mesh.Size() {
		c := mesh.Coord(i)
		ranks = append(ranks, Rank{Rank: i, DP: c.DP, TP: c.TP, PP: c.PP})
	}
	return ranks
}

// Ranks returns the ranks of a mesh that divides a model. hosts lists what rank 0's process does
// for the whole run.
func Ranks(mesh parallel.Mesh, shape *model.Config, hosts []string) ([]Rank, error) {
	ranks := Places(mesh)
	for i := range ranks {
		c, err := shape.Shard(mesh, mesh.Coord(i), false)
		if err != nil {
			return nil, err
		}
		p := c.Part()
		span := func(r decoder.Range) Range { return Range{r.From, r.To - 1} }
		ranks[i].Part = &Part{Layers: span(p.Layers), Heads: span(p.Heads), KVHeads: span(p.KVHeads), FFN: span(p.FFN), Vocabulary: span(p.Vocab), Duties: []string{}}
		add := func(names ...string) { ranks[i].Duties = append(ranks[i].Duties, names...) }
		if i == 0 {
			add(hosts...)
		}
		if p.First() {
			add(Embedding)
		}
		if p.Last() {
			add(LogProbs)
		}
		if p.At.DP == 0 {
			add(Publishing)
		}
	}
	return ranks, nil
}
