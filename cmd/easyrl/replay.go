package main

import (
	"context"

	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/run"
)

func replayVerb(std streams) cli.Verb {
	v := cli.Verb{
		Name:    "replay",
		Summary: "Take one optimizer step from recorded groups, without sampling, with the settings of their run.",
		Example: `easyrl replay -model runs/a/checkpoints/step-000003 -rollouts ` +
			`runs/a/rollouts/step-000004.jsonl -out step4
			easyrl replay -model DIR -rollouts FILE -run runs/a -out try -set train.lr=1e-4`,
		Flags: cli.NewFlags(),
	}
	var of run.Replayed
	v.Flags.StringVar(&of.Model, "model", "", "`DIR` Hugging Face model folder; if it is a checkpoint of easyrl "+
		"train, its optimizer state continues, otherwise the state starts at zero")
	v.Flags.StringVar(&of.Rollouts, "rollouts", "", "`FILE` groups, one per line, as in a run's rollouts/")
	v.Flags.StringVar(&of.Run, "run", "",
		"`DIR` folder of the run whose run.toml has the settings of the step (default: the run that contains "+
			"-rollouts)")
	v.Flags.StringVar(&of.Reference, "reference", "", "`DIR` model that the run started from, for loss.beta above 0 "+
		"(default: the one in run.toml if -model is a checkpoint, otherwise the model itself)")
	v.Flags.StringVar(&of.Out, "out", "",
		"`DIR` folder to write: the stepped model, its optimizer state and the step's metrics.jsonl")
	set := addSettings(v.Flags)
	v.Run = func(ctx context.Context, args []string) error {
		if len(args) > 0 || of.Model == "" || of.Rollouts == "" || of.Out == "" {
			return usage.Errorf(
				"replay: expected -model DIR, -rollouts FILE, -out DIR and no other argument (see easyrl replay -h)")
		}
		return run.Replay(ctx, of, set.Values, run.Options{Out: std.out, Log: std.err})
	}
	return v
}
