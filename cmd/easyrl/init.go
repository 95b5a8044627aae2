package main

import (
	"context"
	"path/filepath"

	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/run"
)

func initVerb(std streams) cli.Verb {
	v := cli.Verb{
		Name:    "init",
		Summary: "Write a Hugging Face model folder with random weights.",
		Example: "easyrl init -config config.json -out models/tiny -seed 1",
		Flags:   cli.NewFlags(),
	}
	config := v.Flags.String("config", "", "`CONFIG.json` shape of the model; tokenizer files in its folder are copied")
	out := v.Flags.String("out", "", "`DIR` folder to write; must be new or empty")
	seed := v.Flags.Uint64("seed", 1, "`S` random seed of the weights")
	v.Run = func(_ context.Context, args []string) error {
		if len(args) > 0 {
			return usage.Errorf("init: unexpected argument %s", args[0])
		}
		if *config == "" || *out == "" {
			return usage.Errorf("init: expected -config and -out (see easyrl init -h)")
		}
		shape, err := filetype.Read(*config)
		if err != nil {
			return usage.Errorf("read model configuration: %w", err)
		}
		f, err := folder.Random(*config, filepath.Dir(*config), shape, *seed)
		if err != nil {
			return err
		}
		if err := run.CheckOut(*out); err != nil {
			return usage.Errorf("init: %w", err)
		}
		dev, err := run.OpenCPU(0)
		if err != nil {
			return err
		}
		defer dev.Close() //nolint:errcheck // nothing was written
		w, err := f.Weights(dev)
		if err != nil {
			return err
		}
		if err := f.Write(*out, w); err != nil {
			return err
		}
		cli.Printer{W: std.out}.Line("%s: %.3g M parameters", *out, float64(f.Shape.NumParams())/1e6)
		return nil
	}
	return v
}
