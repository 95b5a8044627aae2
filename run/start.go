package run

import (
	"path/filepath"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/npu"
)

// openModel opens the model folder that the policy starts from, or describes a model
// with random weights. Its errors name the configuration key of the folder.
func openModel(cfg *configs.Config) (*folder.Folder, error) {
	f, err := openStart(cfg)
	if err == nil && cfg.Train.Backend != configs.PyTorch {
		f.Files, err = f.FilesAs(cfg.Numerics())
	}
	return f, err
}

// openStart is openModel without the type in which the run stores weights.
func openStart(cfg *configs.Config) (*folder.Folder, error) {
	if cfg.Model.Path != "" {
		f, err := openFolder(cfg, cfg.Model.Path)
		return f, named(cfg, err)
	}
	path := cfg.Model.Init.Config
	config, err := filetype.Read(path)
	if err != nil {
		return nil, usage.Errorf("read model configuration: %w", err)
	}
	return folder.Random(path, filepath.Dir(path), config, cfg.Run.Seed)
}

// openFolder opens a model folder that the run's backend can train. Its errors do not name a key.
func openFolder(cfg *configs.Config, dir string) (*folder.Folder, error) {
	if cfg.Train.Backend == configs.PyTorch {
		return folder.OpenAny(dir)
	}
	return folder.Open(dir)
}

// startWeights loads the policy's starting weights.
func startWeights(cfg *configs.Config, f *folder.Folder, dev npu.Device) (*model.Weights, error) {
	w, err := f.Weights(dev)
	return w, named(cfg, err)
}

// named adds the key of the model folder, if the run has one, to an error about it.
func named(cfg *configs.Config, err error) error {
	if cfg.Model.Path == "" {
		return err
	}
	return usage.Prefix("model.path", err)
}
