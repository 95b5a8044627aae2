package findings

import (
	"fmt"
	"strings"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/arch"
	"github.com/easyrl/easyrl/parallel"
)

// Range is a range of indices from 0. It includes both ends.
type Range struct {
	First int `json:"first"`
	Last  int `json:"last"`
}

// Rank is a rank of the run and its place in the mesh. Part is nil for PyTorch ranks and for a single rank.
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
	// Duties are what the rank does besides computing its layers. Those of rank 0 include what its process does
	// for the whole run, such as the trainer.
	Duties []string `json:"duties"`
}

// Duties of ranks. embedding belongs to the first stage, logProbs to the last one, and publishing
// to the ranks of the first replica, which send rank 0 the weights to publish and save.
const (
	embedding  = "embedding"
	logProbs   = "log-probabilities"
	publishing = "publishing"
)

// places returns the ranks of a mesh without their parts.
func places(mesh parallel.Mesh) (ranks []Rank) {
	for i := range mesh.Size() {
		c := mesh.Coord(i)
		ranks = append(ranks, Rank{Rank: i, DP: c.DP, TP: c.TP, PP: c.PP})
	}
	return ranks
}

// divided returns the ranks of a mesh that divides a model, with their parts. hosts lists what rank 0's process
// does for the whole run.
func divided(mesh parallel.Mesh, shape *model.Config, hosts []string) ([]Rank, error) {
	ranks := places(mesh)
	for i := range ranks {
		c, err := shape.Shard(mesh, mesh.Coord(i), false)
		if err != nil {
			return nil, err
		}
		p := c.Part()
		inclusive := func(r arch.Range) Range { return Range{r.From, r.To - 1} }
		ranks[i].Part = &Part{Layers: inclusive(p.Layers), Heads: inclusive(p.Heads), KVHeads: inclusive(p.KVHeads),
			FFN: inclusive(p.FFN), Vocabulary: inclusive(p.Vocab), Duties: []string{}}
		add := func(names ...string) { ranks[i].Duties = append(ranks[i].Duties, names...) }
		if i == 0 {
			add(hosts...)
		}
		if p.First() {
			add(embedding)
		}
		if p.Last() {
			add(logProbs)
		}
		if p.At.DP == 0 {
			add(publishing)
		}
	}
	return ranks, nil
}

// AddRanks adds what the ranks of easyrl's kernels hold and do. It does nothing for one rank.
func (f *Findings) AddRanks(cfg *configs.Config, shape *model.Config) error {
	mesh := cfg.Parallel.Mesh()
	if mesh.Size() == 1 || cfg.Train.Backend == configs.PyTorch {
		return nil
	}
	ranks, err := divided(mesh, shape, hosts(cfg, f.Task == string(configs.SFTTask)))
	if err == nil {
		f.Ranks = ranks
	}
	return err
}

// hosts lists what rank 0's process does for the whole run.
func hosts(cfg *configs.Config, sft bool) []string {
	all := []string{"trainer"}
	if !sft {
		if cfg.Inference.Instances > 0 {
			all = append(all, "instances")
		}
		all = append(all, "queue", "rewards", "rollouts")
	}
	return append(all, "metrics", "checkpoints", "pages")
}

// maxLines is the maximum number of ranks, or of groups of equal ranks, that the text describes.
const maxLines = 16

// writeRanks writes the first ranks, and the number of others.
func (f *Findings) writeRanks(line func(format string, args ...any)) {
	if len(f.Ranks) > 1 {
		line("ranks: %d, counted from 0 like all indices", len(f.Ranks))
	}
	for i := range f.Ranks[:min(maxLines, len(f.Ranks))] {
		r := &f.Ranks[i]
		text := fmt.Sprintf("rank %d: dp %d, tp %d, pp %d", r.Rank, r.DP, r.TP, r.PP)
		if p := r.Part; p != nil {
			text += fmt.Sprintf("; layers %s, query heads %s, key-value heads %s, feed-forward %s, vocabulary %s",
				p.Layers, p.Heads, p.KVHeads, p.FFN, p.Vocabulary)
			if len(p.Duties) > 0 {
				text += "; " + strings.Join(p.Duties, ", ")
			}
		}
		line("%s", text)
	}
	if n := len(f.Ranks) - maxLines; n > 0 {
		line("ranks: %d more, see -json", n)
	}
}

// String returns the range as text, such as "0-3" or "2".
func (r Range) String() string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// count returns a number with its noun in the singular or plural.
func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
