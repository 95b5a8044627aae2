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
	training, sampling, lends := shareThreads(cfg)
	p.line("# threads: trainer %d%s, each of %d instances %d", training, map[bool]string{true: " and those of resting instances"}[lends],
		cfg.Inference.Instances, sampling)
	for _, text := range cfg.Inference.Endpoints {
		if e, err := remote.ParseEndpoint(text, cfg.Inference.Kind); err == nil {
			p.line("# server: %s (%s)", e.URL, e.Kind)
		}
	}
	f, err := openFolder(cfg)
	if err != nil {
		p.line("# memory: not known before the model is there: %v", err)
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
	p.line("# model: %.4g M parameters", float64(f.Shape.NumParams())/1e6)
	p.line("# memory, about: weights %s, gradients %s, optimizer %s, activations %s at most (%d rows)", bytesText(copies*weights),
		bytesText(gradients), bytesText(2*weights), bytesText(activations), rows)
	if !sft && cfg.Inference.Instances > 0 {
		each := instances.EngineConfig(cfg, "", f.Shape)
		pages, rows := each.Pages(f.Shape.MaxPositions), each.Rows(f.Shape.MaxPositions)
		kv, activations := model.CacheBytes(f.Shape, pages), model.RunnerBytes(f.Shape, rows, each.MaxRunning)
		all += int64(cfg.Inference.Instances) * (kv + activations)
		p.line("# memory of each of %d instances, about: kv %s (%d pages), activations %s at most (%d rows)", cfg.Inference.Instances,
			bytesText(kv), pages, bytesText(activations), rows)
	}
	p.line("# memory in all, about: %s, and %s more while a checkpoint is written", bytesText(all), bytesText(3*weights))
}

func bytesText(n int64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
