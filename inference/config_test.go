package inference

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFleetConfigReportsAllFaults(t *testing.T) {
	t.Parallel()
	_, err := NewFleet(FleetConfig{Ahead: -1})
	for _, want := range []string{"min serving", "attempts", "dead after", "call timeout", "publish timeout", "empty wait", "backoff", "ahead", "probe every", "probe timeout", "watchdog"} {
		require.ErrorContains(t, err, want)
	}
}
