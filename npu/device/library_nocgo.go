//go:build !cgo || !unix

package device

import (
	"fmt"

	"github.com/easyrl/easyrl/npu"
)

// openLibrary fails: only a build with cgo on Unix can load a library at run time.
func openLibrary(path string, _ npu.Numerics, _ int) (npu.Device, error) {
	return nil, fmt.Errorf("open device library %s: needs a build with cgo on a Unix system", path)
}
