// Package device opens a device, the CPU or that of an accelerator's kernel library, and
// measures what its hardware can do.
//
// Packages above npu import it instead of npu/cpu.
package device

import (
	"fmt"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

// CPU is the kind of the device that every build has.
const CPU = "cpu"

// Open opens a device of the given kind: CPU, or the path of a kernel library.
// threads is the number of threads of a CPU, 0 for all cores.
func Open(kind string, numerics npu.Numerics, threads int) (npu.Device, error) {
	if kind == CPU {
		return cpu.Open(numerics, threads)
	}
	return openLibrary(kind, numerics, threads)
}

// isCPU reports whether the kernels of dev run on the cores of this machine.
func isCPU(dev npu.Device) bool {
	_, ok := dev.(npu.Cores)
	return ok
}

// PeakFLOPS measures the float32 operations per second, two for each fused
// multiply-add, that the threads of dev reach together in registers. It takes some
// milliseconds. It returns 0, unknown, if dev is not a CPU.
func PeakFLOPS(dev npu.Device) float64 {
	if !isCPU(dev) {
		return 0
	}
	peak, err := cpu.PeakFLOPS(npu.Threads(dev))
	if err != nil {
		return 0
	}
	return peak
}

// Ceilings measures the best rates of the machine on one thread and on the threads of
// dev, which must be a CPU. It takes half a second and 256 MiB.
func Ceilings(dev npu.Device) (npu.Ceilings, error) {
	if !isCPU(dev) {
		return npu.Ceilings{}, fmt.Errorf("measure ceilings: device is %s, expected a CPU", dev.Info().Name)
	}
	return cpu.Ceilings(npu.Threads(dev))
}

// Bandwidth measures the bytes per second that the threads of dev read and copy as
// they pass over a set of size bytes repeatedly. dev must be a CPU. A copied byte
// counts as read and as written.
func Bandwidth(dev npu.Device, size int64) (read, copied float64, err error) {
	if !isCPU(dev) {
		return 0, 0, fmt.Errorf("measure bandwidth: device is %s, expected a CPU", dev.Info().Name)
	}
	return cpu.Bandwidth(npu.Threads(dev), size)
}
