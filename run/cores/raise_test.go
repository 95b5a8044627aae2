package cores

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Runs of one process that begin and end at once leave GOMAXPROCS as it was.
func TestRaiseGOMAXPROCS(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	restore := RaiseGOMAXPROCS(3)
	require.Equal(t, before+3, runtime.GOMAXPROCS(0))
	restore()
	var runs sync.WaitGroup
	for range 4 {
		runs.Go(func() {
			for range 200 {
				RaiseGOMAXPROCS(2)()
			}
		})
	}
	runs.Wait()
	require.Equal(t, before, runtime.GOMAXPROCS(0))
}
