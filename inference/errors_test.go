package inference

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRequestValidate(t *testing.T) {
	t.Parallel()
	good := request(1, 0)
	require.NoError(t, good.Validate())
	bad := Request{N: -1, Version: -1, Sampling: Sampling{
		Temperature: float32(math.NaN()), TopP: 1.5, TopK: -1, MinP: 2, Stop: []string{""},
	}}
	err := bad.Validate()
	require.ErrorIs(t, err, ErrInvalid)
	for _, want := range []string{"no tokens", "-1 responses", "version -1", "max tokens 0", "temperature NaN", "top-p 1.5", "top-k -1", "min-p 2", "stop string 0"} {
		require.ErrorContains(t, err, want)
	}
}
