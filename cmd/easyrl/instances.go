package main

import (
	"context"
	"os"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/inference/roster"
)

// startInstances starts what samples for a run with a folder's model; deps is what
// it has beside it.
func startInstances(ctx context.Context, f *folder, cfg *configs.Config, deps roster.Deps) (*roster.Roster, error) {
	token, err := readToken("inference.token_file", cfg.Inference.TokenFile)
	if err != nil {
		return nil, err
	}
	if dir := cfg.Inference.WeightsDir; dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, usagef("inference.weights_dir: %w", err)
		}
	}
	_, each, _ := threads(cfg)
	deps.Shape, deps.Computes, deps.Begins, deps.Token = f.shape, fingerprint(f.shape), f.begins, token
	deps.Engine = func(ec engine.Config) (*engine.Engine, error) { return f.engine(ec, each) }
	return roster.Start(ctx, cfg, deps)
}
