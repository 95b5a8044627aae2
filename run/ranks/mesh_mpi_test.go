//go:build mpi

package ranks

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/parallel"
)

// All ranks learn which rank computes in other numerics.
func TestMPISameNumerics(t *testing.T) {
	t.Parallel()
	verdicts := func(names ...string) []error {
		errs := make([]error, len(names))
		var ranks sync.WaitGroup
		for i, end := range parallel.NewLocal(len(names)) {
			ranks.Go(func() { errs[i] = sameNumerics(t.Context(), end, names[i]) })
		}
		ranks.Wait()
		return errs
	}
	for _, err := range verdicts("a", "a", "a") {
		require.NoError(t, err)
	}
	for _, err := range verdicts("a", "a", "bf16 (version 5)") {
		require.EqualError(t, err, `rank 2 computes in "bf16 (version 5)", expected "a", as rank 0`)
	}
}
