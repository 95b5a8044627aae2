package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/model"
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
			return usagef("init: unexpected argument %s", args[0])
		}
		if *config == "" || *out == "" {
			return usagef("init: -config and -out are needed (see easyrl init -h)")
		}
		f, err := initFolder(configs.Init{Config: *config}, *seed)
		if err != nil {
			return err
		}
		if entries, err := os.ReadDir(*out); err == nil && len(entries) > 0 {
			return usagef("init: %s is not empty", *out)
		}
		dev, err := openDevice(configs.CPU, 0)
		if err != nil {
			return err
		}
		defer dev.Close() //nolint:errcheck // nothing is left to do with it
		w, err := f.weights(dev)
		if err != nil {
			return err
		}
		if err := writeFolder(*out, f.files, w); err != nil {
			return err
		}
		printer{std.out}.line("%s: %.3g M parameters", *out, float64(f.shape.NumParams())/1e6)
		return nil
	}
	return v
}

// writeFolder writes a Hugging Face folder.
func writeFolder(dir string, files map[string][]byte, w *model.Weights) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write model folder: %w", err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return fmt.Errorf("write model folder: %w", err)
		}
	}
	return checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"), w.Sources(), map[string]string{"format": "pt"})
}
