// Package cores divides a process's cores between a run's trainer and its instances.
package cores

import (
	"cmp"
	"runtime"
	"sync"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/npu"
)

// Share divides the process's cores between trainer and instances: half each by
// default, or all for both if they are colocated and take turns. lends reports whether
// the trainer also uses the threads of idle instances.
func Share(cfg *configs.Config) (training, sampling int, lends bool) {
	return ShareOf(cfg, runtime.GOMAXPROCS(0))
}

// ShareOf divides the given number of cores between trainer and instances as a
// run does.
func ShareOf(cfg *configs.Config, cores int) (training, sampling int, lends bool) {
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

// Busy returns the number of this process's cores that the given number of threads
// compute on; 0 threads are one per core.
func Busy(threads int) int {
	most := min(runtime.NumCPU(), runtime.GOMAXPROCS(0))
	return min(cmp.Or(threads, most), most)
}

// Own returns the cores of the trainer and the embedded instances, which share them.
func Own(cfg *configs.Config) int {
	training, sampling, _ := Share(cfg)
	if sampling *= cfg.Inference.Instances; cfg.Run.Mode == configs.Colocated {
		return Busy(max(training, sampling))
	}
	return Busy(training + sampling)
}

// RaiseGOMAXPROCS raises GOMAXPROCS so that other goroutines run beside the given number of
// computing ones. A goroutine inside a kernel keeps its P, and those queued behind it
// would wait for milliseconds. restore undoes the change.
func RaiseGOMAXPROCS(computing int) (restore func()) {
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + computing)
	return func() { runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) - computing) }
}

// Lend limits the trainer's device to its own threads and returns a callback that adds
// an instance's threads when it becomes idle and takes them back when it resumes. The
// callback may be called concurrently. It is nil if the trainer borrows no threads.
func Lend(dev npu.Device, cfg *configs.Config) (rest func(resting bool)) {
	own, each, lends := Share(cfg)
	cores, ok := dev.(npu.Cores)
	if !lends || !ok {
		return nil
	}
	var mu sync.Mutex
	cores.Limit(own)
	return func(resting bool) {
		mu.Lock()
		defer mu.Unlock()
		if resting {
			own += each
		} else {
			own -= each
		}
		cores.Limit(own)
	}
}
