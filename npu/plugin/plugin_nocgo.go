//go:build !cgo || !unix

package plugin

import (
	"fmt"

	"github.com/easyrl/easyrl/npu"
)

// Open fails: only a build with cgo on Unix can load a library at run time.
func Open(path string, _, _ int) (npu.Device, error) {
	return nil, fmt.Errorf("open device library %s: needs a build with cgo on a Unix system", path)
}
