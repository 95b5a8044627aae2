package limittest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// record is a testing.TB that records its failure.
type record struct {
	testing.TB
	failure string
}

func (r *record) Helper()                           {}
func (r *record) Setenv(string, string)             {}
func (r *record) Fatalf(format string, args ...any) { r.failure = fmt.Sprintf(format, args...) }

func TestRun(t *testing.T) {
	var r record
	Run(&r, func() {})
	require.Empty(t, r.failure)
	var kept []byte
	Run(&r, func() { kept = make([]byte, maxBytes+1) })
	require.Contains(t, r.failure, "allocated 1073")
	require.Len(t, kept, maxBytes+1)
	began, x := busy(), 1.0
	Run(&r, func() {
		for busy()-began < maxTime+maxTime/10 {
			for range 1 << 16 {
				x *= 1.0000001
			}
		}
	})
	require.Contains(t, r.failure, "of processor time, expected 1s at most")
	require.Greater(t, x, 1.0)
}

func TestParallelTests(t *testing.T) {
	t.Run("parallel", func(t *testing.T) {
		t.Parallel()
		require.Panics(t, func() { Run(t, func() {}) })
	})
}
