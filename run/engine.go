package run

import (
	"context"
	"os"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/run/cores"
	"github.com/easyrl/easyrl/run/instances"
)

// startInstances starts the engines of a run and connects to its servers. Engines share the
// memory of dev. If dev is nil, each opens a CPU device. A nil fc selects fleet.DefaultConfig.
func startInstances(ctx context.Context, f *folder.Folder, cfg *configs.Config, dev npu.Device, fc *fleet.Config,
	deps instances.Deps) (*instances.Instances, error) {
	if err := describe(f, cfg, &deps); err != nil {
		return nil, err
	}
	if dir := cfg.Inference.WeightsDir; dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, usage.Errorf("inference.weights_dir: %w", err)
		}
	}
	_, each, _ := cores.Share(cfg)
	deps.Engine = func(ec engine.Config) (*engine.Engine, error) {
		if dev != nil {
			return StartEngine(f, ec, dev, each)
		}
		own, err := OpenDevice(configs.CPU, cfg.Device.Numerics, each)
		if err != nil {
			return nil, err
		}
		return startEngine(f, ec, own)
	}
	if deps.Fleet = fleet.DefaultConfig(); fc != nil {
		deps.Fleet = *fc
	}
	return instances.Start(ctx, cfg, &deps)
}

// describe sets what servers need to know of the model and the run.
func describe(f *folder.Folder, cfg *configs.Config, deps *instances.Deps) (err error) {
	deps.Shape, deps.Computes, deps.Numerics = f.Shape, folder.Fingerprint(f.Shape), cfg.Identity()
	deps.Token, err = serversToken(cfg)
	return err
}

// StartEngine starts an engine for a folder's model. It gets its own queue of dev, with the given number of
// threads, 0 for all, if dev computes on CPU cores. The engine has no weights until Publish.
func StartEngine(f *folder.Folder, cfg engine.Config, dev npu.Device, threads int) (*engine.Engine, error) {
	queue, err := dev.Fork(threads)
	if err != nil {
		return nil, err
	}
	return startEngine(f, cfg, queue)
}

// startEngine starts an engine on dev, which it owns.
func startEngine(f *folder.Folder, cfg engine.Config, dev npu.Device) (*engine.Engine, error) {
	var tok engine.Decoder
	if f.Tokenizer != nil {
		tok = f.Tokenizer
	}
	e, err := engine.New(cfg, f.Shape, tok, dev)
	if err != nil {
		_ = dev.Close() // report the engine's error
		return nil, err
	}
	return e, nil
}
