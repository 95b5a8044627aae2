package inference

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestFleetHealsAnInstanceThatRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeInstance{id: "a", capacity: 4}
		f := newFleet(t, nil, a)
		a.version = 0
		require.Equal(t, map[string]int{"a": 4}, outcomes(t, f, 4, request(1, 1)))
		require.Equal(t, []int64{1, 1}, a.published)
		require.Equal(t, Healthy, states(f)["a"])
		require.NoError(t, f.Close())
	})
}
