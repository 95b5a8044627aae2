package inference

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRequestValidate(t *testing.T) {
	t.Parallel()
	good := Request{PromptIDs: []int32{1}, N: 1, Sampling: Sampling{Temperature: 1, TopP: 1, MaxTokens: 8}}
	require.NoError(t, good.Validate())
	bad := Request{N: -1, Version: -1, Sampling: Sampling{
		Temperature: float32(math.NaN()), TopP: 1.5, TopK: -1, MinP: 2, Stop: []string{""},
	}}
	err := bad.Validate()
	for temperature, valid := range map[float32]bool{0: true, 1e-4: true, 1e4: true, 5e-39: false, 9.9e-5: false,
		1.1e4: false, -1: false} {
		good.Sampling.Temperature = temperature
		require.Equal(t, valid, good.Validate() == nil, "%v", temperature)
	}
	require.ErrorIs(t, err, ErrInvalid)
	for _, want := range []string{"no tokens", "-1 responses", "version -1", "max tokens 0", "temperature is NaN",
		"top-p 1.5", "top-k -1", "min-p 2", "stop string 0"} {
		require.ErrorContains(t, err, want)
	}
}
