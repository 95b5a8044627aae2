package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/run"
)

func initVerb(std streams) verb {
	v := verb{
		name:    "init",
		summary: "Write a randomly initialised Hugging Face folder.",
		example: "easyrl init -config config.json -out models/tiny -seed 1",
		flags:   newFlags(),
	}
	config := v.flags.String("config", "", "`CONFIG.json` with the shape; the tokenizer's files beside it are copied")
	out := v.flags.String("out", "", "`DIR` to write, which must not exist or be empty")
	seed := v.flags.Uint64("seed", 1, "`S` of the random weights")
	v.run = func(_ context.Context, args []string) error {
		if len(args) > 0 {
			return usage.Errorf("init: unexpected argument %s", args[0])
		}
		if *config == "" || *out == "" {
			return usage.Errorf("init: -config and -out are needed (see easyrl init -h)")
		}
		shape, err := os.ReadFile(*config)
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
		defer dev.Close() //nolint:errcheck // nothing is left to do with it
		w, err := f.Weights(dev)
		if err != nil {
			return err
		}
		if err := f.Write(*out, w); err != nil {
			return err
		}
		printer{std.out}.line("%s: %.3g M parameters", *out, float64(f.Shape.NumParams())/1e6)
		return nil
	}
	return v
}
