package trainer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStepOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"":                                 0,
		"\n \n":                            0,
		`{"step":3}`:                       3,
		"\n" + `{"step":3}` + "\n{\n":      3,
		`{"step":"3"}`:                     0,
		`{"version":3}` + "\n{\"step\":4}": 0,
		"[3]":                              0,
	} {
		require.Equal(t, want, StepOf([]byte(text)), text)
	}
}
