package main

import (
	"context"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/run"
)

func logprobsVerb(std streams) cli.Verb {
	v := cli.Verb{
		Name:    "logprobs",
		Summary: "Print the log-probability of each token given those before it, as the trainer computes it.",
		Example: `echo '{"ids":[1,403,407]}' | easyrl logprobs -model DIR`,
		Flags:   cli.NewFlags(),
	}
	dir := v.Flags.String("model", "", "`DIR` Hugging Face model folder")
	data := v.Flags.String("data", "", "`FILE` JSON lines {\"ids\":[…]} (default standard input)")
	temperature := v.Flags.Float64("temperature", 1, "`T` sampling temperature")
	threads := v.Flags.Int("threads", 0, "`N` CPU threads; 0 uses all cores")
	device, numerics := deviceFlags(v.Flags)
	v.Run = func(ctx context.Context, args []string) error {
		if len(args) > 0 || *dir == "" {
			return usage.Errorf("logprobs: expected -model DIR and no other argument (see easyrl logprobs -h)")
		}
		if *temperature == 0 || inference.CheckTemperature(*temperature) != nil {
			return usage.Errorf("logprobs: -temperature is %v, expected %v to %v", *temperature,
				inference.MinTemperature, inference.MaxTemperature)
		}
		in, name := std.in, "standard input"
		if *data != "" {
			file, err := filetype.OpenInput(*data)
			if err != nil {
				return usage.Wrap(err)
			}
			defer file.Close() //nolint:errcheck // read only
			in, name = file, *data
		}
		f, err := folder.Open(*dir)
		if err != nil {
			return err
		}
		dev, err := run.OpenDevice(*device, *numerics, *threads)
		if err != nil {
			return err
		}
		defer dev.Close() //nolint:errcheck // only read from
		return run.Logprobs(ctx, f, dev, float32(*temperature), in, name, std.out)
	}
	return v
}
