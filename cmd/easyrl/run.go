package main

import (
	"cmp"
	"errors"
	"runtime"
	"strings"
	"sync"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/reward"
)

// threads is how a run's cores are shared out: by default the trainer takes half
// and the instances the rest, or in turn all of them where they are colocated.
// lends says that the trainer also has the threads of instances that rest.
func threads(cfg *configs.Config) (training, sampling int, lends bool) {
	return shareOut(cfg, runtime.GOMAXPROCS(0))
}

// shareOut is threads on a number of cores.
func shareOut(cfg *configs.Config, cores int) (training, sampling int, lends bool) {
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

// peakFLOPS is the most operations a second that dev's threads can do, as perf/mfu
// takes it: the machine's ceiling of fused multiply-adds, measured in some
// milliseconds. It is 0, not known, where dev is no CPU.
func peakFLOPS(dev npu.Device) float64 {
	if !strings.HasPrefix(dev.Name(), "cpu/") {
		return 0
	}
	peak, err := cpu.PeakFLOPS(dev.Threads())
	if err != nil {
		return 0
	}
	return peak
}

// oneRank refuses more ranks than this build trains on.
func oneRank(cfg *configs.Config) error {
	if n := cfg.Parallel.DP * cfg.Parallel.TP * cfg.Parallel.PP; n != 1 {
		return usagef("[parallel] asks for %d ranks, expected 1: this build trains on one", n)
	}
	return nil
}

// policyFolder is the folder that a run's policy starts from.
func policyFolder(cfg *configs.Config) (*folder, error) {
	if cfg.Model.Path == "" {
		return initFolder(cfg.Model.Init, cfg.Run.Seed)
	}
	f, err := openFolder(cfg.Model.Path)
	if err != nil {
		return nil, ofKey(modelPath, err)
	}
	f.key = modelPath
	return f, nil
}

// modelPath is the key of a run's model folder.
const modelPath = "model.path"

// ofKey names the key that a usage error is about, on each of its lines.
func ofKey(key string, err error) error {
	if usage := (usageError{}); key != "" && errors.As(err, &usage) {
		return usageError{inFile(key, usage.error)}
	}
	return err
}

// lend leaves a trainer's device its share of the threads and those of instances
// that have nothing to do: the result hears from them that one rests, or works
// again. It is nil where nothing is lent.
func lend(dev npu.Device, cfg *configs.Config) (rest func(resting bool)) {
	own, each, lends := threads(cfg)
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
		return nil, nil, usageError{err}
	}
	return score, func() { _ = score.Close() }, nil
}
