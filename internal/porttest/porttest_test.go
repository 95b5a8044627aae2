package porttest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAddressesDiffer(t *testing.T) {
	t.Parallel()
	taken := map[string]bool{}
	for range 400 {
		addr := Address(t)
		require.False(t, taken[addr], addr)
		taken[addr] = true
	}
}
