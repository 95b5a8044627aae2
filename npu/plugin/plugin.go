// Package plugin opens an accelerator's kernel library at run time and makes it an
// npu.Device.
//
// A library exports easyrl_device_api_v4, the table of functions that
// npu/csrc/easyrl_device.h declares. It stays loaded until the process ends, because
// its own threads may outlive a device.
package plugin
