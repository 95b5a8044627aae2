// Package ranks makes PyTorch ranks the models of a run.
package ranks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference/canary"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report/control/client"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/run/cores"
	"github.com/easyrl/easyrl/run/instances"
	"github.com/easyrl/easyrl/torch"
	"github.com/easyrl/easyrl/torch/models"
	"github.com/easyrl/easyrl/torch/wire"
)

// Deps are what ranks need besides the run's configuration.
type Deps struct {
	Dir         string         // folder that this process and the ranks share
	Folder      *folder.Folder // of the starting weights
	KeepStart   bool           // the starting weights are the reference
	Reference   string         // folder of another reference; may be empty
	State       string         // checkpoint to continue from; empty for none
	Updates     int            // made before the checkpoint
	Temperature float64
	Prompt      []int32 // first tokens of the run's prompts, to verify servers with; may be few
	Spans       *trace.Spans
	Say, Warn   func(format string, args ...any)
}

// Ranks are the models of a run.
type Ranks struct {
	*models.Models
	canary *models.Canary // of a foreign decoder; nil for others
}

// Verification returns what verifies servers, or nil for the usual comparison with this
// process's decoder. r may be nil.
func (r *Ranks) Verification() instances.Verification {
	if r == nil || r.canary == nil {
		return nil
	}
	return r.canary
}

// Check returns a usage error for settings that train.backend = "torch" cannot follow, and for
// instances that do not know a foreign decoder.
func Check(cfg *configs.Config, f *folder.Folder) error {
	if cfg.Train.Backend != configs.PyTorch {
		return nil
	}
	in := &cfg.Inference
	switch {
	case cfg.Parallel.PP != 1:
		return usage.Errorf("parallel.pp is %d, expected 1 with train.backend = %q", cfg.Parallel.PP, configs.PyTorch)
	case cfg.Loss.OldPolicy == loss.PreviousStep:
		return usage.Errorf("loss.old_policy is %q, expected %q with train.backend = %q", loss.PreviousStep, loss.Behaviour, configs.PyTorch)
	case f.Foreign && (in.Instances > 0 || in.Kind == remote.EasyRL):
		return usage.Errorf("inference.kind is %q, but easyrl's engine does not know the model_type %q of %s: sample with vllm or sglang", in.Kind, f.Shape.Type, f.Source)
	}
	return nil
}

// Start starts the ranks of this machine, or waits for those that others start, until they have
// loaded their models. It takes ownership of w, the starting weights on dev, which are nil if the
// decoder is foreign.
func Start(ctx context.Context, cfg *configs.Config, deps *Deps, w *model.Weights, dev npu.Device) (*Ranks, error) {
	tc, err := session(cfg, deps)
	if err == nil {
		tc.Model, err = start(deps, w)
	}
	if err != nil {
		return nil, err
	}
	if deps.KeepStart && tc.Reference == "" {
		tc.Reference = tc.Model
	}
	s, err := torch.Open(ctx, tc)
	if err != nil {
		return nil, err
	}
	if w != nil {
		return &Ranks{Models: models.New(s, deps.Dir, dev, w)}, nil
	}
	r := &Ranks{Models: models.New(s, deps.Dir, nil, nil)}
	prompt := canary.Prompt(deps.Folder.Shape, deps.Prompt, publish.CanaryTokens)
	if r.canary, err = r.NewCanary(ctx, tc.Model, deps.Folder.Shape, prompt); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// session returns the configuration of the session, without the starting weights.
func session(cfg *configs.Config, deps *Deps) (torch.Config, error) {
	t := &cfg.Torch
	training, _, _ := cores.Share(cfg)
	tc := torch.Config{Listen: t.Listen, DP: cfg.Parallel.DP, TP: cfg.Parallel.TP, Python: t.Python,
		Threads: max(1, training/(cfg.Parallel.DP*cfg.Parallel.TP)), Dir: deps.Dir, Reference: deps.Reference, State: deps.State, Updates: deps.Updates,
		Mode: t.Mode, DType: t.DType, Recompute: cfg.Train.Recompute, Temperature: deps.Temperature,
		Optimizer: wire.Optimizer{Beta1: optim.Beta1, Beta2: cfg.Train.Beta2, Eps: optim.Eps, WeightDecay: cfg.Train.WeightDecay},
		LoRA:      wire.LoRA{Rank: t.LoRARank, Alpha: t.LoRAAlpha}, Say: deps.Say, Warn: deps.Warn,
		Rows: func(rank int) trace.Track { return deps.Spans.Track(fmt.Sprintf("rank %d", rank)) }}
	if t.Listen == "" {
		return tc, nil
	}
	tc.Python = ""
	var err error
	if tc.Token, err = client.ReadToken(t.TokenFile); err != nil {
		return tc, usage.Errorf("torch.token_file: %w", err)
	}
	return tc, nil
}

// start returns the folder of the starting weights. It writes random ones.
func start(deps *Deps, w *model.Weights) (string, error) {
	if deps.Folder.Dir != "" {
		return filepath.Abs(deps.Folder.Dir)
	}
	dir := filepath.Join(deps.Dir, "start")
	return dir, errors.Join(os.RemoveAll(dir), deps.Folder.Write(dir, w))
}
