// Package csrc carries the C sources of the device layer: the contract that every
// device library is compiled against, and the kernels of the CPU device.
//
// Packages that compile the headers through cgo import this package. Because it
// embeds the headers, those packages are rebuilt when a header changes, and vendoring
// a module keeps the headers.
package csrc

import "embed"

// Headers holds every C header of this folder.
//
//go:embed *.h
var Headers embed.FS
