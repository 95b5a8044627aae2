package ranks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

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

// TorchDeps holds what StartTorch needs besides the run's configuration.
type TorchDeps struct {
	Dir         string         // folder that this process and the ranks share
	Folder      *folder.Folder // of the starting weights
	KeepStart   bool           // the starting weights are the reference, unless Reference is set
	Reference   string         // folder of another reference; may be empty
	State       string         // folder of the checkpoint to resume from; empty for none
	Updates     int            // updates completed in State
	Versions    int            // published versions to keep
	Temperature float64
	Prompt      []int32 // first tokens of the run's prompts, used to verify servers; may be short
	Spans       *trace.Spans
	Say, Warn   func(format string, args ...any)
}

// Torch holds the models of a run on PyTorch ranks.
type Torch struct {
	*models.Models
	canary *canary.Recorded // nil unless the decoder is foreign or the run publishes adapters
}

// Verification returns how servers are verified. nil means the usual comparison with this
// process's decoder.
func (r *Torch) Verification() instances.Verification {
	if r.canary == nil {
		return nil
	}
	return r.canary
}

// End records that the run is complete, for Close. r may be nil.
func (r *Torch) End() {
	if r != nil {
		r.Models.End()
	}
}

// CheckTorch returns a usage error for settings that train.backend = "torch" does not support, and
// for instances that cannot sample from a foreign decoder, which is one that package model does not know.
func CheckTorch(cfg *configs.Config, f *folder.Folder) error {
	if cfg.Train.Backend != configs.PyTorch {
		return nil
	}
	in := &cfg.Inference
	switch {
	case cfg.Parallel.PP != 1:
		return usage.Errorf("parallel.pp is %d, expected 1 with train.backend = %q", cfg.Parallel.PP, configs.PyTorch)
	case cfg.Loss.OldPolicy == loss.PreviousStep:
		return usage.Errorf("loss.old_policy is %q, expected %q with train.backend = %q", loss.PreviousStep,
			loss.Behaviour, configs.PyTorch)
	case f.Foreign && (in.Instances > 0 || in.Kind == remote.EasyRL):
		return usage.Errorf("inference.kind is %q, but easyrl's engine does not know the model_type %q of %s: "+
			"sample with vllm or sglang", in.Kind, f.Shape.Type, f.Source)
	}
	return nil
}

// Adapters reports whether a run publishes only LoRA adapters, not complete weights.
func Adapters(cfg *configs.Config) bool {
	return cfg.Train.Backend == configs.PyTorch && cfg.Torch.Publish == torch.Adapter
}

// CheckAdapters returns a usage error if a run that publishes only adapters has instances that cannot load them.
func CheckAdapters(cfg *configs.Config) error {
	if !Adapters(cfg) {
		return nil
	}
	in := &cfg.Inference
	if in.Kind != remote.VLLM {
		return usage.Errorf("inference.kind is %q, expected %q with torch.publish = %q", in.Kind, remote.VLLM,
			torch.Adapter)
	}
	if in.Instances > 0 {
		return usage.Errorf("inference.instances is %d, expected 0 with torch.publish = %q: only vLLM takes adapters",
			in.Instances, torch.Adapter)
	}
	for _, text := range in.Endpoints {
		if e, err := remote.ParseEndpoint(text, in.Kind); err == nil && e.Kind != remote.VLLM {
			return usage.Errorf("inference.endpoints has %q, expected only %s servers with torch.publish = %q", text,
				remote.VLLM, torch.Adapter)
		}
	}
	return nil
}

// TorchTypeWarning returns a warning if PyTorch ranks compute in bfloat16 and train on samples of
// easyrl's engine, which computes in float32, and otherwise "". dtype is the type that the ranks use
// for torch.dtype.
func TorchTypeWarning(cfg *configs.Config, dtype string) string {
	if cfg.Train.Backend != configs.PyTorch || dtype != wire.BFloat16 {
		return ""
	}
	in := &cfg.Inference
	sampler := ""
	if in.Instances > 0 {
		sampler = "embedded instances"
	} else if in.Kind == remote.EasyRL || slices.ContainsFunc(in.Endpoints, func(text string) bool {
		e, err := remote.ParseEndpoint(text, in.Kind)
		return err == nil && e.Kind == remote.EasyRL
	}) {
		sampler = "easyrl servers"
	}
	if sampler == "" {
		return ""
	}
	return fmt.Sprintf("PyTorch ranks compute in %s (torch.dtype = %q), but %s sample in float32: "+
		"in the quickstart on an H100, log-probabilities differed by up to 0.5 (mismatch/logprob_abs_max), with "+
		"ranks in float32 by 0.00004. "+
		`Set torch.dtype = "float32", or sample with vllm or sglang in bfloat16`, dtype, cfg.Torch.DType, sampler)
}

// StartTorch starts PyTorch ranks on this machine, or waits for ranks that are started elsewhere, and
// returns when they have loaded their models. It takes ownership of w, the starting weights on
// dev. w is nil if the decoder is foreign.
func StartTorch(
	ctx context.Context, cfg *configs.Config, deps *TorchDeps, w *model.Weights, dev npu.Device,
) (*Torch, error) {
	tc, err := sessionConfig(cfg, deps)
	if err == nil {
		tc.Model, err = startFolder(deps, w)
	}
	if err != nil {
		return nil, err
	}
	if deps.KeepStart && tc.Reference == "" {
		tc.Reference = tc.Model
	}
	if w != nil && Adapters(cfg) {
		w.Free() // nothing in this process reads them
	}
	for _, dir := range []*string{&tc.Model, &tc.Reference, &tc.State} { // ranks may have another working directory
		if *dir == "" {
			continue
		}
		if *dir, err = filepath.Abs(*dir); err != nil {
			return nil, err
		}
	}
	s, err := torch.Open(ctx, tc)
	if err != nil {
		return nil, err
	}
	if w != nil && !Adapters(cfg) {
		return &Torch{Models: models.New(s, deps.Dir, deps.Versions, dev, w)}, nil
	}
	r := &Torch{}
	if Adapters(cfg) {
		r.Models = models.NewAdapters(s, deps.Dir, deps.Versions)
	} else {
		r.Models = models.New(s, deps.Dir, deps.Versions, nil, nil)
	}
	prompt := canary.Prompt(deps.Folder.Shape, deps.Prompt, publish.CanaryTokens)
	if r.canary, err = r.NewCanary(ctx, tc.Model, deps.Folder.Shape, prompt); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// sessionConfig returns the session's configuration without the folder of the starting weights.
func sessionConfig(cfg *configs.Config, deps *TorchDeps) (torch.Config, error) {
	t := &cfg.Torch
	training, _, _ := cores.Share(cfg)
	tc := torch.Config{Listen: t.Listen, DP: cfg.Parallel.DP, TP: cfg.Parallel.TP, Python: t.Python,
		Threads: max(1, training/(cfg.Parallel.DP*cfg.Parallel.TP)), Dir: deps.Dir, Reference: deps.Reference,
		State: deps.State, Updates: deps.Updates,
		Mode: t.Mode, DType: t.DType, Recompute: cfg.Train.Recompute, Temperature: deps.Temperature,
		Optimizer: wire.Optimizer{Beta1: optim.Beta1, Beta2: cfg.Train.Beta2, Eps: optim.Eps,
			WeightDecay: cfg.Train.WeightDecay},
		LoRA: wire.LoRA{Rank: t.LoRARank, Alpha: t.LoRAAlpha}, Say: deps.Say, Warn: deps.Warn,
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

// startFolder returns the folder of the starting weights. If they are random, it writes them to a new folder first.
func startFolder(deps *TorchDeps, w *model.Weights) (string, error) {
	if deps.Folder.Dir != "" {
		return deps.Folder.Dir, nil
	}
	dir := filepath.Join(deps.Dir, "start")
	return dir, errors.Join(os.RemoveAll(dir), deps.Folder.Write(dir, w))
}
