package py

import (
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
