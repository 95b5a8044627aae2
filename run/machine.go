package run

import (
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/device"
)

// OpenDevice opens a device of the given kind with the given number of threads, 0 for
// all. Its errors are usage errors.
func OpenDevice(kind string, threads int) (npu.Device, error) {
	dev, err := device.Open(kind, npu.FP32, threads)
	switch {
	case err != nil && (kind == configs.CUDA || kind == configs.Ascend):
		return nil, usage.Errorf("device.kind is %q, expected %q or the path of a kernel library: %w", kind,
			configs.CPU, err)
	case err != nil:
		return nil, usage.Wrap(err)
	}
	return dev, nil
}

// OpenCPU opens the CPU with the given number of threads, 0 for all.
func OpenCPU(threads int) (npu.Device, error) { return OpenDevice(configs.CPU, threads) }
