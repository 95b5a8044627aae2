package main

import (
	"context"
	"encoding/json"

	"github.com/easyrl/easyrl/bench/roofline"
	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/run"
)

func benchVerb(std streams) cli.Verb {
	v := cli.Verb{
		Name:    "bench",
		Summary: "Measure each phase of training and sampling against the machine's compute and memory ceilings.",
		Example: `easyrl bench
			easyrl bench -model models/my-qwen3 -threads 1 -json > bench.json`,
		Flags: cli.NewFlags(),
	}
	dir := v.Flags.String("model", "",
		"`DIR` Hugging Face model folder; the default is random weights in the quickstart's shape")
	threads := v.Flags.Int("threads", 0, "`N` CPU threads; 0 uses all cores")
	asJSON := v.Flags.Bool("json", false, "print JSON, with times in seconds and work in operations or bytes")
	v.Run = func(ctx context.Context, args []string) error {
		if len(args) > 0 {
			return usage.Errorf("bench: unexpected argument %s", args[0])
		}
		f, err := benchFolder(*dir)
		if err != nil {
			return err
		}
		dev, err := run.OpenCPU(*threads)
		if err != nil {
			return err
		}
		defer dev.Close() //nolint:errcheck // nothing was written
		r, err := roofline.Measure(ctx, dev, f.Shape, f.Source,
			func() (*model.Weights, error) { return f.Weights(dev) })
		if err != nil {
			return err
		}
		if !*asJSON {
			return r.Print(std.out)
		}
		out := json.NewEncoder(std.out)
		out.SetIndent("", "  ")
		return out.Encode(r)
	}
	return v
}

// benchFolder returns the model to measure: the one in dir, or random weights in the
// quickstart's shape if dir is empty.
func benchFolder(dir string) (*folder.Folder, error) {
	if dir != "" {
		f, err := folder.Open(dir)
		if err == nil && f.Shape.MaxPositions < 4 {
			err = usage.Errorf("bench: %s has a context of %d tokens, expected 4 or more", dir, f.Shape.MaxPositions)
		}
		return f, err
	}
	config, err := folder.Sizes{Hidden: 128, FFN: 384, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 32, Vocab: 53}.Config()
	if err != nil {
		return nil, err
	}
	return folder.Random("the quickstart's shape", "", config, 1)
}
