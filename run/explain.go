package run

import (
	"fmt"
	"io"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/run/instances"
)

// Explain prints the resolved configuration, ranks, threads and memory by purpose.
func Explain(w io.Writer, resolved *configs.Resolved) error {
	if err := resolved.Explain(w); err != nil {
		return err
	}
	explainMachine(printer{w}, &resolved.Config)
	return oneRank(&resolved.Config)
}

// printer writes lines and ignores write errors.
type printer struct{ w io.Writer }

func (p printer) line(format string, args ...any) { _, _ = fmt.Fprintf(p.w, format+"\n", args...) }

// explainMachine prints the ranks, threads and servers of a run and an estimate of its memory.
func explainMachine(p printer, cfg *configs.Config) {
	p.line("")
	mesh := parallel.Mesh{DP: cfg.Parallel.DP, TP: cfg.Parallel.TP, PP: cfg.Parallel.PP}
	for rank := range mesh.Size() {
		c := mesh.Coord(rank)
		p.line("# rank %d: dp %d, tp %d, pp %d", rank, c.DP, c.TP, c.PP)
	}

	p.line("# threads: %s", threadsText(cfg))
	for _, text := range cfg.Inference.Endpoints {
		if e, err := remote.ParseEndpoint(text, cfg.Inference.Kind); err == nil {
			p.line("# server: %s (%s)", e.URL, e.Kind)
		}
	}
	f, err := openFolder(cfg)
	if err != nil {
		p.line("# memory: unknown until the model opens: %v", err)
		return
	}
	sft := len(cfg.Data.Train) == 0 && len(cfg.SFT.Data) > 0
	weights, copies := 4*f.Shape.NumParams(), int64(3) // the policy and two published versions
	if sft {
		copies = 1
	}
	if cfg.Loss.Beta > 0 {
		copies++
	}
	gradients := weights
	if f.Shape.Tied { // the embedding and the output projection have separate gradients
		gradients += 4 * int64(f.Shape.VocabSize) * int64(f.Shape.HiddenSize)
	}
	rows := cfg.Train.MicroBatchTokens
	activations := model.ActivationBytes(f.Shape, rows, rows, cfg.Train.Recompute)
	all := (copies+2)*weights + gradients + activations
	p.line("# model: %s parameters", countText(f.Shape.NumParams()))
	p.line("# memory (estimated): weights %s, gradients %s, optimizer %s, activations up to %s (%d rows)", bytesText(copies*weights),
		bytesText(gradients), bytesText(2*weights), bytesText(activations), rows)
	if !sft && cfg.Inference.Instances > 0 {
		each := instances.EngineConfig(cfg, "", f.Shape)
		pages, rows := each.Pages(f.Shape.MaxPositions), each.Rows(f.Shape.MaxPositions)
		kv, activations := model.CacheBytes(f.Shape, pages), model.RunnerBytes(f.Shape, rows, each.MaxRunning)
		all += int64(cfg.Inference.Instances) * (kv + activations)
		p.line("# memory of each of %d instances (estimated): kv %s (%d pages), activations up to %s (%d rows)", cfg.Inference.Instances,
			bytesText(kv), pages, bytesText(activations), rows)
	}
	p.line("# memory in total (estimated): %s, plus %s while a checkpoint is written", bytesText(all), bytesText(3*weights))
}

// threadsText describes how a run divides its cores.
func threadsText(cfg *configs.Config) string {
	training, sampling, lends := shareThreads(cfg)
	n := cfg.Inference.Instances
	text := fmt.Sprintf("%d for training", training)
	if lends {
		text += fmt.Sprintf(" (%d while sampling is idle)", training+n*sampling)
	}
	switch {
	case n == 1:
		text += fmt.Sprintf(", %d for sampling", sampling)
	case n > 1:
		text += fmt.Sprintf(", %d for each of %d instances", sampling, n)
	}
	return text
}

// countText formats a number of parameters.
func countText(n int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1e9, " B"}, {1e6, " M"}, {1e3, " K"}} {
		if n >= unit.size {
			return fmt.Sprintf("%.3g%s", float64(n)/float64(unit.size), unit.name)
		}
	}
	return fmt.Sprint(n)
}

func bytesText(n int64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
