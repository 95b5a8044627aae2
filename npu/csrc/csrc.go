// Package csrc carries the C sources of the device layer: the contract that
// every device library is compiled against, and the kernels of the CPU device.
//
// The headers are embedded so that packages which compile them through cgo, and
// import this one for that reason, are rebuilt when a header changes and keep
// their headers when a module is vendored.
package csrc

import "embed"

// Headers holds every C header of this folder.
//
//go:embed *.h
var Headers embed.FS
