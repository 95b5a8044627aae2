package main

import (
	"context"
	"os"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/inference/roster"
	"github.com/easyrl/easyrl/report/trace"
)

// startInstances starts what samples for a run, which has spans as its rows and is
// borne with as bears says beside cfg; rest, where there is one, hears of each
// engine whether it rests.
func startInstances(ctx context.Context, f *folder, cfg *configs.Config, bears inference.FleetConfig, spans *trace.Spans,
	rest func(bool), warn func(format string, args ...any)) (*roster.Roster, error) {
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
	return roster.Start(ctx, cfg, roster.Deps{
		Shape: f.shape, Computes: fingerprint(f.shape), Begins: f.begins, Bears: bears, Token: token, Spans: spans, Rest: rest, Warn: warn,
		Engine: func(ec engine.Config) (*engine.Engine, error) { return f.engine(ec, each) },
	})
}
