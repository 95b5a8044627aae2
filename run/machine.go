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
)

// shareThreads divides the process's cores between trainer and instances: half each by
// default, or all for both if they are colocated and take turns. lends reports whether
// the trainer also uses the threads of idle instances.
func shareThreads(cfg *configs.Config) (training, sampling int, lends bool) {
	return ShareThreads(cfg, runtime.GOMAXPROCS(0))
}

// ShareThreads divides the given number of cores between trainer and instances as a
// run does.
func ShareThreads(cfg *configs.Config, cores int) (training, sampling int, lends bool) {
	training, sampling = cfg.Device.Threads, cfg.Inference.Threads
	if cfg.Run.Mode == configs.Colocated {
		return cmp.Or(training, cores), cmp.Or(sampling, cores), false
	}
	if cfg.Inference.Instances == 0 { // servers sample
		return cmp.Or(training, cores), 0, false
	}
	if sampling == 0 {
		left := cores - cmp.Or(training, max(1, cores/2))
		sampling = max(1, left/cfg.Inference.Instances)
	}
	return cmp.Or(training, max(1, cores-sampling*cfg.Inference.Instances)), sampling, training == 0
}

// Cores returns the number of this process's cores that the given number of threads
// compute on; 0 threads are one per core.
func Cores(threads int) int {
	most := min(runtime.NumCPU(), runtime.GOMAXPROCS(0))
	return min(cmp.Or(threads, most), most)
}

// ownCores returns the cores of the trainer and the embedded instances, which share them.
func ownCores(cfg *configs.Config) int {
	training, sampling, _ := shareThreads(cfg)
	if sampling *= cfg.Inference.Instances; cfg.Run.Mode == configs.Colocated {
		return Cores(max(training, sampling))
	}
	return Cores(training + sampling)
}

// giveWay raises GOMAXPROCS so that other goroutines run beside the given number of
// computing ones. A goroutine inside a kernel keeps its P, and those queued behind it
// would wait for milliseconds. restore undoes the change.
func giveWay(computing int) (restore func()) {
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + computing)
	return func() { runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) - computing) }
}

// modelPath is the configuration key of the model folder.
const modelPath = "model.path"

// openFolder opens the model folder that the policy starts from, or describes a model
// with random weights.
func openFolder(cfg *configs.Config) (*folder.Folder, error) {
	if cfg.Model.Path != "" {
		f, err := folder.Open(cfg.Model.Path)
		return f, usage.Prefix(modelPath, err)
	}
	path := cfg.Model.Init.Config
	config, err := os.ReadFile(path)
	if err != nil {
		return nil, usage.Errorf("read model configuration: %w", err)
	}
	return folder.Random(path, filepath.Dir(path), config, cfg.Run.Seed)
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

// lend limits the trainer's device to its own threads and returns a callback that adds
// an instance's threads when it becomes idle and takes them back when it resumes. The
// callback may be called concurrently. It is nil if the trainer borrows no threads.
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

// openDevice opens a device of the given kind with the given number of threads, 0 for
// all. Its errors are usage errors.
func openDevice(kind string, threads int) (npu.Device, error) {
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
func OpenCPU(threads int) (npu.Device, error) { return openDevice(configs.CPU, threads) }
