package run

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/device"
	"github.com/easyrl/easyrl/reward"
)

// shareThreads divides the process's cores between trainer and instances: by
// default half each, or all of them in turn if they are colocated. lends reports
// that the trainer also gets the threads of idle instances.
func shareThreads(cfg *configs.Config) (training, sampling int, lends bool) {
	return ShareThreads(cfg, runtime.GOMAXPROCS(0))
}

// ShareThreads divides a number of cores between trainer and instances as a run
// does.
func ShareThreads(cfg *configs.Config, cores int) (training, sampling int, lends bool) {
	training, sampling = cfg.Device.Threads, cfg.Inference.Threads
	if cfg.Run.Mode == configs.Colocated {
		return cmp.Or(training, cores), cmp.Or(sampling, cores), false
	}
	if cfg.Inference.Instances == 0 { // others sample
		return cmp.Or(training, cores), 0, false
	}
	if sampling == 0 {
		left := cores - cmp.Or(training, max(1, cores/2))
		sampling = max(1, left/cfg.Inference.Instances)
	}
	return cmp.Or(training, max(1, cores-sampling*cfg.Inference.Instances)), sampling, training == 0
}

// giveWay lets goroutines run beside the given number that compute: one that is
// in a kernel keeps its place among GOMAXPROCS, and those behind it would wait
// for milliseconds. restore ends it.
func giveWay(computing int) (restore func()) {
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + computing)
	return func() { runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) - computing) }
}

// modelPath is the key of a run's model folder.
const modelPath = "model.path"

// openFolder opens the model folder that a run's policy starts from.
func openFolder(cfg *configs.Config) (*folder.Folder, error) {
	if cfg.Model.Path != "" {
		f, err := folder.Open(cfg.Model.Path)
		return f, usage.Prefix(modelPath, err)
	}
	init := cfg.Model.Init
	config, err := initConfig(init)
	if err != nil {
		return nil, usage.Errorf("read model configuration: %w", err)
	}
	return folder.Random(cmp.Or(init.Config, "[model.init]"), cmp.Or(init.Tokenizer, filepath.Dir(init.Config)), config, cfg.Run.Seed)
}

// initConfig is the config.json of random weights: a file, or a Qwen3 of the given
// sizes.
func initConfig(init configs.Init) ([]byte, error) {
	if init.Config != "" {
		return os.ReadFile(init.Config)
	}
	return folder.Sizes{Hidden: init.HiddenSize, FFN: init.FFN, Layers: init.Layers, Heads: init.Heads, KVHeads: init.KVHeads,
		HeadDim: init.HeadDim, Vocab: init.VocabSize}.Config()
}

// loadWeights loads the policy's starting weights. Faults name the key of its
// folder.
func loadWeights(cfg *configs.Config, f *folder.Folder, dev npu.Device) (*model.Weights, error) {
	w, err := f.Weights(dev)
	if err != nil && cfg.Model.Path != "" {
		err = usage.Prefix(modelPath, err)
	}
	return w, err
}

// lend leaves a trainer's device its share of the threads and those of instances
// that have nothing to do: the result hears from them that one rests, or works
// again. It is nil where nothing is lent.
func lend(dev npu.Device, cfg *configs.Config) (rest func(resting bool)) {
	own, each, lends := shareThreads(cfg)
	if !lends {
		return nil
	}
	var mu sync.Mutex
	dev.Limit(own)
	return func(resting bool) {
		mu.Lock()
		defer mu.Unlock()
		if resting {
			own += each
		} else {
			own -= each
		}
		dev.Limit(own)
	}
}

// scorer is a run's reward and its end.
func scorer(cfg *configs.Config) (*reward.Scorer, func(), error) {
	score, err := reward.New(cfg.Reward, cfg.Rollout.MaxTokens)
	if err != nil {
		return nil, nil, usage.Wrap(err)
	}
	return score, func() { _ = score.Close() }, nil
}

// openDevice opens the device of a configuration with a number of threads, 0
// for all. What it cannot open is a usage error.
func openDevice(kind string, threads int) (npu.Device, error) {
	dev, err := device.Open(kind, threads)
	switch {
	case err != nil && (kind == configs.CUDA || kind == configs.Ascend):
		return nil, usage.Errorf("device.kind is %q, expected %q, or the path of a kernel library: %w", kind, configs.CPU, err)
	case err != nil:
		return nil, usage.Wrap(err)
	}
	return dev, nil
}

// OpenCPU opens the CPU with a number of threads, 0 for all.
func OpenCPU(threads int) (npu.Device, error) { return openDevice(configs.CPU, threads) }
