package run

import (
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/device"
)

// OpenDevice opens a device of the given kind with the numerics of the given name and the given number of
// threads, 0 for all. Its errors are usage errors.
func OpenDevice(kind, numerics string, threads int) (npu.Device, error) {
	n, err := npu.ParseNumerics(numerics)
	if err != nil {
		return nil, usage.Wrap(err)
	}
	dev, err := device.Open(kind, n, threads)
	switch {
	case err != nil && (kind == configs.CUDA || kind == configs.Ascend):
		return nil, usage.Errorf("device.kind is %q, expected %q or the path of a kernel library: %w", kind,
			configs.CPU, err)
	case err != nil:
		return nil, usage.Wrap(err)
	}
	return dev, nil
}

// OpenCPU opens the CPU in float32 with the given number of threads, 0 for all.
func OpenCPU(threads int) (npu.Device, error) {
	return OpenDevice(configs.CPU, npu.FP32.String(), threads)
}
