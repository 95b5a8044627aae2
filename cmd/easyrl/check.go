package main

import (
	"context"
	"fmt"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference/roster"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/parallel"
)

func checkVerb(std streams) verb {
	v := verb{
		name:     "check",
		synopsis: "RUN.toml [OVERLAY.toml …] [-set section.key=value …]",
		summary:  "Print the resolved run: every value and which file set it, memory by purpose, ranks.",
		example: `easyrl check configs/quickstart.toml
			easyrl check run.toml more-steps.toml -set rollout.group_size=16`,
		flags: newFlags(),
	}
	set := addSettings(v.flags)
	v.run = func(_ context.Context, args []string) error {
		resolved, err := loadRun(configs.AnyTask, args, *set)
		if err != nil {
			return err
		}
		if err := resolved.Explain(std.out); err != nil {
			return err
		}
		explainMachine(printer{std.out}, &resolved.Config)
		return oneRank(&resolved.Config)
	}
	return v
}

// explainMachine prints who computes what and the memory it takes.
func explainMachine(p printer, cfg *configs.Config) {
	p.line("")
	mesh := parallel.Mesh{DP: cfg.Parallel.DP, TP: cfg.Parallel.TP, PP: cfg.Parallel.PP}
	for rank := range mesh.Size() {
		c := mesh.Coord(rank)
		p.line("# rank %d: dp %d, tp %d, pp %d", rank, c.DP, c.TP, c.PP)
	}
	training, sampling, lends := threads(cfg)
	p.line("# threads: trainer %d%s, each of %d instances %d", training, map[bool]string{true: " and those of resting instances"}[lends],
		cfg.Inference.Instances, sampling)
	for _, text := range cfg.Inference.Endpoints {
		if e, err := configs.ParseEndpoint(text, cfg.Inference.Kind); err == nil {
			p.line("# server: %s (%s)", e.URL, e.Kind)
		}
	}
	f, err := policyFolder(cfg)
	if err != nil {
		p.line("# memory: not known before the model is there: %v", err)
		return
	}
	sft := len(cfg.Data.Train) == 0 && len(cfg.SFT.Data) > 0
	weights, copies := 4*f.shape.NumParams(), int64(3) // the policy and two published versions
	if sft {
		copies = 1
	}
	if cfg.Loss.Beta > 0 {
		copies++
	}
	gradients := weights
	if f.shape.Tied { // of the embedding and of the output projection apart
		gradients += 4 * int64(f.shape.VocabSize) * int64(f.shape.HiddenSize)
	}
	rows := cfg.Train.MicroBatchTokens
	activations := model.ActivationBytes(f.shape, rows, rows, cfg.Train.Recompute)
	all := (copies+2)*weights + gradients + activations
	p.line("# model: %.4g M parameters", float64(f.shape.NumParams())/1e6)
	p.line("# memory, about: weights %s, gradients %s, optimizer %s, activations %s at most (%d rows)", bytesText(copies*weights),
		bytesText(gradients), bytesText(2*weights), bytesText(activations), rows)
	if !sft && cfg.Inference.Instances > 0 {
		each := roster.Engine(cfg, "", f.shape)
		pages, rows := each.Pages(f.shape.MaxPositions), each.Rows(f.shape.MaxPositions)
		kv, activations := model.CacheBytes(f.shape, pages), model.RunnerBytes(f.shape, rows, each.MaxRunning)
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
