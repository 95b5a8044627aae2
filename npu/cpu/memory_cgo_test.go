//go:build cgo

package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// An allocation that fails says how much was asked for, in GiB.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	d, err := Open(1)
	require.NoError(t, err)
	defer d.Close() //nolint:errcheck // nothing is pending
	b, err := d.Alloc(1<<20, npu.Weights)
	require.NoError(t, err)
	defer d.Free(b)
	_, err = d.Alloc(1<<47, npu.Gradients)
	require.ErrorContains(t, err, "allocate 524288.0 GiB for gradients on ")
	require.ErrorContains(t, err, ": out of memory; 4.0 MiB are in use")
}
