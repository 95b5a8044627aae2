// Package origin reads the model that a run starts from. Its errors name the configuration key of
// the model folder.
package origin

import (
	"path/filepath"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/model/source"
	"github.com/easyrl/easyrl/npu"
)

// Folder opens the model folder that the policy starts from, or describes a model
// with random weights.
func Folder(cfg *configs.Config) (*folder.Folder, error) {
	if cfg.Model.Path != "" {
		f, err := Open(cfg, cfg.Model.Path)
		return f, named(cfg, err)
	}
	path := cfg.Model.Init.Config
	config, err := filetype.Read(path)
	if err != nil {
		return nil, usage.Errorf("read model configuration: %w", err)
	}
	return folder.Random(path, filepath.Dir(path), config, cfg.Run.Seed)
}

// Open opens a model folder that the run's backend can train. Its errors do not name a key.
func Open(cfg *configs.Config, dir string) (*folder.Folder, error) {
	if cfg.Train.Backend == configs.PyTorch {
		return folder.OpenAny(dir)
	}
	return folder.Open(dir)
}

// Weights loads the policy's starting weights.
func Weights(cfg *configs.Config, f *folder.Folder, dev npu.Device) (*model.Weights, error) {
	w, err := f.Weights(dev)
	return w, named(cfg, err)
}

// Each returns a function that passes the policy's starting weights on; see folder.Folder.Each.
func Each(cfg *configs.Config, f *folder.Folder) func(source.Use) error {
	return func(use source.Use) error { return named(cfg, f.Each(use)) }
}

// Check checks that the files of the model folder fit its config.json, without
// reading values.
func Check(cfg *configs.Config, f *folder.Folder) error { return named(cfg, f.CheckWeights()) }

// named adds the key of the model folder, if the run has one, to an error about it.
func named(cfg *configs.Config, err error) error {
	if cfg.Model.Path == "" {
		return err
	}
	return usage.Prefix("model.path", err)
}
