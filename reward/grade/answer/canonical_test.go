package answer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCanonical(t *testing.T) {
	t.Parallel()
	for want, all := range map[string][]string{
		"1/2":  {"1/2", "0.5", "0.50", `\frac{1}{2}`, `x = \dfrac12`, "$0.50", "50%", "2/4"},
		"18":   {"18", "18.0", "$18", "$18.00$", "18 apples", "eighteen"},
		"1234": {"1,234", "1234", "1{,}234"},
		"A":    {"(A)", "A", `\text{(A)}`},
		"":     {"", " ", strings.Repeat("9", maxAnswer+1)},
	} {
		for _, s := range all {
			require.Equal(t, want, Canonical(s), s)
		}
	}
	for _, pair := range [][2]string{{"No solution", `\text{no solution}`}, {`(1, 2)`, `\left(1,2\right)`},
		{"x + 1", "x+1"}} {
		require.Equal(t, Canonical(pair[0]), Canonical(pair[1]))
	}
	for _, pair := range [][2]string{{"(1,2)", "(2,1)"}, {"3", "-3"}, {"x+1", "x-1"}, {"A", "B"}, {"0.333", "1/3"}} {
		require.NotEqual(t, Canonical(pair[0]), Canonical(pair[1]))
	}
}
