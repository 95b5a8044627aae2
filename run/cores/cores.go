// Package cores divides a process's cores between a run's trainer and its instances.
package cores

import (
	"cmp"
	"runtime"
	"sync"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/npu"
)

// Share divides the process's cores between trainer and instances: half for each by
// default, or all for both if they are colocated and take turns. training and sampling are the numbers of threads
// of the trainer and of each instance. usesIdle reports whether the trainer also uses the threads of idle
// instances.
func Share(cfg *configs.Config) (training, sampling int, usesIdle bool) {
	return ShareOf(cfg, runtime.GOMAXPROCS(0))
}

// ShareOf is Share for the given number of cores.
func ShareOf(cfg *configs.Config, cores int) (training, sampling int, usesIdle bool) {
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

// Busy returns the number of this process's cores that the given number of threads keep busy. 0 threads stand for
// one per core.
func Busy(threads int) int {
	cores := min(runtime.NumCPU(), runtime.GOMAXPROCS(0))
	return min(cmp.Or(threads, cores), cores)
}

// InUse returns the number of cores that the trainer and the embedded instances together keep busy.
func InUse(cfg *configs.Config) int {
	training, each, _ := Share(cfg)
	sampling := each * cfg.Inference.Instances
	if cfg.Run.Mode == configs.Colocated { // they take turns
		return Busy(max(training, sampling))
	}
	return Busy(training + sampling)
}

// RaiseGOMAXPROCS raises GOMAXPROCS by the given number of computing goroutines, so that others run beside them.
// A goroutine inside a kernel keeps its P (the Go scheduler's processor) for milliseconds, and goroutines queued on
// that P wait. restore undoes the change. Several runs of a process may raise it at once.
func RaiseGOMAXPROCS(computing int) (restore func()) {
	addGOMAXPROCS(computing)
	return func() { addGOMAXPROCS(-computing) }
}

var goMaxProcs sync.Mutex // held between reading and setting GOMAXPROCS

func addGOMAXPROCS(n int) {
	goMaxProcs.Lock()
	defer goMaxProcs.Unlock()
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
}

// UseIdleThreads limits the trainer's device to its own threads and returns a callback for engine.Config.Rest,
// which adds an instance's threads when the instance becomes idle and removes them when it resumes. The
// callback may be called concurrently. It is nil if the trainer does not use the threads of idle instances.
func UseIdleThreads(dev npu.Device, cfg *configs.Config) (rest func(resting bool)) {
	training, each, usesIdle := Share(cfg)
	cores, ok := dev.(npu.Cores)
	if !usesIdle || !ok {
		return nil
	}
	var mu sync.Mutex
	limit := training // guarded by mu
	cores.Limit(limit)
	return func(resting bool) {
		mu.Lock()
		defer mu.Unlock()
		if resting {
			limit += each
		} else {
			limit -= each
		}
		cores.Limit(limit)
	}
}
