package findings

import (
	"fmt"
	"strings"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/bytesize"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/run/layout"
	"github.com/easyrl/easyrl/run/memory"
)

// Communication is what ranks send each other in a step, at most and with even shares of its rows
// for all replicas. Those of the policy and its targets are for each replica, as are those
// of other models' passes.
type Communication struct {
	Rows         int              `json:"rows"`
	Targets      int              `json:"targets"`
	OtherRows    int              `json:"other_rows"`
	OtherTargets int              `json:"other_targets"`
	Updates      int              `json:"updates"`
	Ranks        []layout.Traffic `json:"ranks"` // bytes sent
}

// meshOf returns the mesh of a run.
func meshOf(cfg *configs.Config) parallel.Mesh {
	return parallel.Mesh{DP: cfg.Parallel.DP, TP: cfg.Parallel.TP, PP: cfg.Parallel.PP}
}

// AddMesh adds what the ranks of easyrl's kernels hold, do and exchange. It does nothing for one
// rank.
func (f *Findings) AddMesh(cfg *configs.Config, shape *model.Config, tokens memory.Tokens) error {
	mesh, sft := meshOf(cfg), f.Task == string(configs.SFTTask)
	if mesh.Size() == 1 || cfg.Train.Backend == configs.PyTorch {
		return nil
	}
	ranks, err := layout.Ranks(mesh, shape, hosts(cfg, sft))
	if err != nil {
		return err
	}
	f.Ranks = ranks
	cut, pass := tokens.Cut(cfg, sft), passOf(cfg, tokens, sft)
	pass.Zero, pass.MicroBatches = cfg.Parallel.Zero, cut.MicroBatches*cut.Updates
	f.Communication = &Communication{Rows: pass.Rows, Targets: pass.Targets, OtherRows: pass.OtherRows, OtherTargets: pass.OtherTargets, Updates: cut.Updates}
	for i := range ranks {
		part, err := shape.Shard(mesh, mesh.Coord(i), cfg.Parallel.Sequence)
		if err != nil {
			return err
		}
		f.Communication.Ranks = append(f.Communication.Ranks, layout.Step(part, pass, cut.Updates, !sft))
	}
	waits := layout.WaitsOf(mesh, cut.MicroBatches, cut.Rows, cfg.Parallel.Reduce == parallel.Exact)
	f.Waits = &waits
	return nil
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

// passOf returns what a replica computes for a step, at most.
func passOf(cfg *configs.Config, tokens memory.Tokens, sft bool) layout.Pass {
	each := func(n int) int { return (n + cfg.Parallel.DP - 1) / cfg.Parallel.DP }
	p := layout.Pass{Rows: each(tokens.Step), Targets: each(tokens.Targets), Recompute: cfg.Train.Recompute, Reduce: cfg.Parallel.Reduce == parallel.Sum}
	if sft {
		return p
	}
	add := func(part, of int) {
		p.OtherRows += p.Rows * part / of
		p.OtherTargets += p.Targets * part / of
	}
	if cfg.Loss.Beta > 0 {
		add(1, 1)
	}
	if cfg.Loss.OldPolicy == loss.PreviousStep {
		add(1, 1)
	} else { // the first update's policy is the old one
		add(cfg.Train.Minibatches-1, cfg.Train.Minibatches)
	}
	return p
}

// mostRows is the number of ranks that the text describes.
const mostRows = 16

// writeRanks writes the first ranks, and the number of others.
func (f *Findings) writeRanks(line func(format string, args ...any)) {
	if len(f.Ranks) > 1 {
		line("ranks: %d, counted from 0 like all indices", len(f.Ranks))
	}
	for i := range f.Ranks[:min(mostRows, len(f.Ranks))] {
		r := &f.Ranks[i]
		text := fmt.Sprintf("rank %d: dp %d, tp %d, pp %d", r.Rank, r.DP, r.TP, r.PP)
		if p := r.Part; p != nil {
			text += fmt.Sprintf("; layers %s, query heads %s, key-value heads %s, feed-forward %s, vocabulary %s", span(p.Layers), span(p.Heads), span(p.KVHeads), span(p.FFN), span(p.Vocabulary))
			if len(p.Duties) > 0 {
				text += "; " + strings.Join(p.Duties, ", ")
			}
		}
		line("%s", text)
	}
	if n := len(f.Ranks) - mostRows; n > 0 {
		line("ranks: %d more, see -json", n)
	}
}

func span(r layout.Range) string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// write writes the most that a rank sends, by axis.
func (c *Communication) write(line func(format string, args ...any)) {
	var most layout.Traffic
	for _, t := range c.Ranks {
		most = layout.Traffic{Tensor: max(most.Tensor, t.Tensor), Pipeline: max(most.Pipeline, t.Pipeline), Data: max(most.Data, t.Data), Publish: max(most.Publish, t.Publish)}
	}
	var list []string
	for _, axis := range []struct {
		name  string
		bytes int64
	}{{"tp", most.Tensor}, {"pp", most.Pipeline}, {"dp", most.Data}, {"weights to rank 0", most.Publish}} {
		if axis.bytes > 0 {
			list = append(list, axis.name+" "+bytesize.Text(axis.bytes))
		}
	}
	line("communication (estimated): a rank sends up to %s in a step of %d rows for each replica", strings.Join(list, ", "), c.Rows+c.OtherRows)
}

// writeWaits writes the predicted waits.
func writeWaits(w *layout.Waits, line func(format string, args ...any)) {
	if w.Stages > 1 {
		line("pipeline (predicted): a stage waits %.0f%% of an update's passes: %d stages, %s for each replica, all there from the start",
			100*w.Pipeline, w.Stages, count(w.MicroBatches, "micro-batch", "micro-batches"))
	}
	if w.HandOn > 0 {
		line("tensor parallelism (predicted): a rank waits %.0f%% of a product whose sum is handed on: %d ranks, %s of %d rows",
			100*w.HandOn, w.Ranks, count(w.Chunks, "chunk", "chunks"), w.Rows)
	}
}

func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
