package run

import (
	"os"
	"path/filepath"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/device"
)

// modelPath is the configuration key of the model folder.
const modelPath = "model.path"

// openFolder opens the model folder that the policy starts from, or describes a model
// with random weights.
func openFolder(cfg *configs.Config) (*folder.Folder, error) {
	if cfg.Model.Path != "" {
		f, err := openModel(cfg, cfg.Model.Path)
		return f, usage.Prefix(modelPath, err)
	}
	path := cfg.Model.Init.Config
	config, err := os.ReadFile(path)
	if err != nil {
		return nil, usage.Errorf("read model configuration: %w", err)
	}
	return folder.Random(path, filepath.Dir(path), config, cfg.Run.Seed)
}

// openModel opens a model folder that the run's backend can train.
func openModel(cfg *configs.Config, dir string) (*folder.Folder, error) {
	if cfg.Train.Backend == configs.PyTorch {
		return folder.OpenAny(dir)
	}
	return folder.Open(dir)
}

// loadWeights loads the policy's starting weights. Its errors name the configuration key
// of the model folder.
func loadWeights(cfg *configs.Config, f *folder.Folder, dev npu.Device) (*model.Weights, error) {
	w, err := f.Weights(dev)
	if err != nil && cfg.Model.Path != "" {
		err = usage.Prefix(modelPath, err)
	}
	return w, err
}

// checkWeights checks that the files of the model folder fit its config.json, without
// reading values.
func checkWeights(cfg *configs.Config, f *folder.Folder) error {
	err := f.CheckWeights()
	if cfg.Model.Path != "" {
		err = usage.Prefix(modelPath, err)
	}
	return err
}

// OpenDevice opens a device of the given kind with the given number of threads, 0 for
// all. Its errors are usage errors.
func OpenDevice(kind string, threads int) (npu.Device, error) {
	dev, err := device.Open(kind, threads)
	switch {
	case err != nil && (kind == configs.CUDA || kind == configs.Ascend):
		return nil, usage.Errorf("device.kind is %q, expected %q or the path of a kernel library: %w", kind, configs.CPU, err)
	case err != nil:
		return nil, usage.Wrap(err)
	}
	return dev, nil
}

// OpenCPU opens the CPU with the given number of threads, 0 for all.
func OpenCPU(threads int) (npu.Device, error) { return OpenDevice(configs.CPU, threads) }
