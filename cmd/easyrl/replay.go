package main

import (
	"context"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/run"
)

func replayVerb(std streams) cli.Verb {
	v := cli.Verb{
		Name:    "replay",
		Summary: "Take one optimizer step from recorded groups, without sampling.",
		Example: "easyrl replay -model DIR -rollouts runs/quickstart/grpo/rollouts/step-000001.jsonl -out stepped -set train.lr=1e-4",
		Flags:   cli.NewFlags(),
	}
	dir := v.Flags.String("model", "", "`DIR` Hugging Face model folder; if it is a checkpoint, its optimizer state continues, otherwise the state starts at zero")
	file := v.Flags.String("rollouts", "", "`FILE` groups, one per line, as in a run's rollouts/")
	out := v.Flags.String("out", "", "`DIR` folder to write: the stepped model, its optimizer state and the step's metrics.jsonl")
	set := addSettings(v.Flags)
	v.Run = func(ctx context.Context, args []string) error {
		if len(args) > 0 || *dir == "" || *file == "" || *out == "" {
			return usage.Errorf("replay: expected -model DIR, -rollouts FILE, -out DIR and no other argument (see easyrl replay -h)")
		}
		resolved, err := run.Load(configs.ReplayTask, nil, set.Values)
		if err != nil {
			return err
		}
		return run.Replay(ctx, resolved, *dir, *file, *out, run.Options{Out: std.out, Log: std.err})
	}
	return v
}
