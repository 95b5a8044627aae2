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
		if err := checkOut(*out); err != nil {
			return usagef("init: %w", err)
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

// writeFolder writes a Hugging Face folder to a place where nothing or an empty
// folder is, and takes back what it wrote where that fails.
func writeFolder(dir string, files map[string][]byte, w *model.Weights) (err error) {
	_, statErr := os.Stat(dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return usagef("write model folder: %w", err)
	}
	var wrote []string
	defer func() {
		if err == nil {
			return
		}
		for _, name := range wrote {
			_ = os.Remove(name) // what failed may not be there
		}
		if statErr != nil { // dir is new
			_ = os.Remove(dir)
		}
	}()
	for name, content := range files {
		path := filepath.Join(dir, name)
		wrote = append(wrote, path)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("write model folder: %w", err)
		}
	}
	return checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"), w.Sources(), map[string]string{"format": "pt"})
}
