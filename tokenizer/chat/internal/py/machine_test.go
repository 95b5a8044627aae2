package py

import (
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Escapes count as bytes: they are longer than the characters that they stand for.
func TestEscapesAreCharged(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(m *Machine){
		"repr": func(m *Machine) { m.Quote(strings.Repeat("\x01", 300)) },                           // 4 bytes each
		"JSON": func(m *Machine) { m.EncodeJSON(strings.Repeat("\n", 600), JSONStyle{Item: ", "}) }, // 2 bytes each
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := func(bytes int64) (err error) {
				line := 0
				defer Catch(&err, &line)
				write(NewMachine(Limits{Steps: 10_000, Bytes: bytes, Depth: 10}))
				return nil
			}
			require.ErrorContains(t, run(1000), KindLimit)
			require.NoError(t, run(1202))
		})
	}
}

// An integer beyond the largest float is less than infinity.
func TestIntegersBeyondFloats(t *testing.T) {
	t.Parallel()
	huge, inf := new(big.Int).Lsh(big.NewInt(1), 2000), math.Inf(1)
	small := new(big.Int).Neg(huge)
	require.Equal(t, -1, compareNumbers(huge, inf))
	require.Equal(t, 1, compareNumbers(inf, huge))
	require.Equal(t, 1, compareNumbers(small, -inf))
	require.Equal(t, -1, compareNumbers(-inf, small))
	require.Equal(t, 1, compareNumbers(huge, math.MaxFloat64))
	require.Equal(t, 0, compareNumbers(inf, inf))
}
