package main

import (
	"context"
	"math/rand/v2"
	"strconv"

	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/run"
)

func auditVerb(std streams) cli.Verb {
	v := cli.Verb{
		Name:     "audit",
		Synopsis: "RUN_DIR STEP",
		Summary:  "Recompute a recorded step on this CPU and compare the weights after it with the run's record.",
		Example: `easyrl audit runs/quickstart/grpo 12
			easyrl audit runs/large 1200 -leaves 8`,
		Flags: cli.NewFlags(),
	}
	var of run.Audited
	v.Flags.StringVar(&of.Reference, "reference", "", "`DIR` model that the run started from, if the step needs it "+
		"(default: the one in run.toml)")
	v.Flags.IntVar(&of.Threads, "threads", 0, "`N` CPU threads; 0 uses all cores")
	leaves := v.Flags.String("leaves", "all", "`N` leaves (parts of groups) of the step to recompute, drawn at "+
		"random; all also repeats the update. Gradients are compared if the run had log.audit")
	v.Flags.Uint64Var(&of.Seed, "seed", 0, "`S` random seed that draws leaves (default random)")
	v.Run = func(ctx context.Context, args []string) error {
		if len(args) != 2 {
			return usage.Errorf("audit: got %d arguments, expected RUN_DIR and STEP (see easyrl audit -h)", len(args))
		}
		step, err := strconv.Atoi(args[1])
		if err != nil {
			return usage.Errorf("audit: step is %q, expected a number from 1", args[1])
		}
		if *leaves != "all" {
			if of.Leaves, err = strconv.Atoi(*leaves); err != nil || of.Leaves < 1 {
				return usage.Errorf("audit: -leaves is %q, expected all or a number from 1", *leaves)
			}
		}
		if of.Seed == 0 {
			of.Seed = uint64(rand.Uint32()) // short enough to type
		}
		of.Run, of.Step = args[0], step
		return run.Audit(ctx, of, run.Options{Out: std.out, Log: std.err})
	}
	return v
}
