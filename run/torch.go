package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference/canary"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/internal/usage"
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
	"github.com/easyrl/easyrl/trainer"
)

// loadTorch is load for train.backend = "torch": it starts the ranks, which load the models.
func (j *job) loadTorch(ctx context.Context, from string, reference *folder.Folder) (start, began string, err error) {
	dir, err := j.torchDir()
	if err != nil {
		return "", "", err
	}
	w, start, err := j.startingWeights()
	if err != nil {
		return "", "", err
	}
	began = start
	tc, err := j.torchConfig(dir)
	if err == nil {
		tc.Model, err = j.startFolder(dir, w)
	}
	if err != nil {
		return "", "", err
	}
	if j.modelsConfig().Reference {
		tc.Reference = tc.Model
	}
	if reference != nil {
		tc.Reference = reference.Dir
		if began, err = models.Checksum(reference.Dir); err != nil {
			return "", "", usage.Prefix("-reference", err)
		}
	}
	if from != "" {
		if j.state, err = trainer.ReadState(from); err != nil {
			return "", "", usage.Wrap(err)
		}
		tc.State, tc.Updates = from, j.state.Updates
	}
	s, err := torch.Open(ctx, tc)
	if err != nil {
		return "", "", err
	}
	var dev npu.Device
	if w != nil {
		dev = j.dev
	}
	m := models.New(s, dir, dev, w)
	j.models = m
	j.atEnd(m.Close)
	if w == nil {
		prompt := canary.Prompt(j.folder.Shape, j.canaryTokens(), publish.CanaryTokens)
		j.canary, err = m.NewCanary(ctx, tc.Model, j.folder.Shape, prompt)
	}
	return start, began, err
}

// canaryTokens returns the first tokens of the run's prompts, if it has any.
func (j *job) canaryTokens() []int32 {
	if j.reader == nil {
		return nil
	}
	return j.reader.CanaryTokens()
}

// torchConfig returns the session's configuration without the models.
func (j *job) torchConfig(dir string) (torch.Config, error) {
	cfg, t := j.cfg, &j.cfg.Torch
	training, _, _ := cores.Share(cfg)
	ranks := cfg.Parallel.DP * cfg.Parallel.TP
	tc := torch.Config{Listen: t.Listen, DP: cfg.Parallel.DP, TP: cfg.Parallel.TP, Python: t.Python, Threads: max(1, training/ranks), Dir: dir,
		Mode: t.Mode, DType: t.DType, Recompute: cfg.Train.Recompute, Temperature: float64(j.modelsConfig().Temperature),
		Optimizer: wire.Optimizer{Beta1: optim.Beta1, Beta2: cfg.Train.Beta2, Eps: optim.Eps, WeightDecay: cfg.Train.WeightDecay},
		LoRA:      wire.LoRA{Rank: t.LoRARank, Alpha: t.LoRAAlpha}, Say: j.note, Warn: j.warn,
		Rows: func(rank int) trace.Track { return j.spans.Track(fmt.Sprintf("rank %d", rank)) }}
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

// torchDir creates the folder that trainer and ranks share. A check, which changes nothing,
// gets a temporary one.
func (j *job) torchDir() (dir string, err error) {
	if j.checks {
		if dir, err = os.MkdirTemp("", "easyrl-torch-"); err == nil {
			j.atEnd(func() { _ = os.RemoveAll(dir) })
		}
		return dir, err
	}
	if err := os.MkdirAll(j.cfg.Run.Dir, 0o755); err != nil {
		return "", unwritable(j.cfg.Run.Dir, err)
	}
	if err := j.lock(j.cfg.Run.Dir, true); err != nil { // no other process may use the folder
		return "", err
	}
	dir, err = filepath.Abs(cmp.Or(j.cfg.Torch.Dir, filepath.Join(j.cfg.Run.Dir, "torch")))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", usage.Errorf("torch.dir: %w", err)
	}
	return dir, nil
}

// startingWeights returns the weights that the run starts from and their checksum. Those of a
// foreign decoder are nil.
func (j *job) startingWeights() (w *model.Weights, sum string, err error) {
	if j.folder.Foreign {
		sum, err = models.Checksum(j.folder.Dir)
		return nil, sum, usage.Wrap(err)
	}
	if w, err = loadWeights(j.cfg, j.folder, j.dev); err != nil {
		return nil, "", err
	}
	return w, w.Checksum(), nil
}

// startFolder returns the folder of the weights that the run starts from. It writes random ones.
func (j *job) startFolder(dir string, w *model.Weights) (string, error) {
	if j.folder.Dir != "" {
		return filepath.Abs(j.folder.Dir)
	}
	start := filepath.Join(dir, "start")
	return start, errors.Join(os.RemoveAll(start), j.folder.Write(start, w))
}

// verification returns what verifies servers, or nil for the usual comparison with this
// process's decoder.
func (j *job) verification() instances.Verification {
	if j.canary == nil {
		return nil
	}
	return j.canary
}

// checkInstances returns an error if a foreign decoder needs instances that cannot compute it.
func (p *preparation) checkInstances() error {
	if !p.folder.Foreign {
		return nil
	}
	c := &p.cfg.Inference
	if c.Instances > 0 || c.Kind == configs.EasyRL {
		return usage.Errorf("inference.kind is %q, but easyrl's engine does not know the model_type %q of %s: sample with vllm or sglang", c.Kind, p.folder.Shape.Type, p.folder.Source)
	}
	return nil
}
