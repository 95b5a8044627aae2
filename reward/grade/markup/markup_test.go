package markup

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		" **5.** ": "5", "$5$": "5", "$5": "$5", `\(x\)`: "x", `\boxed{7}`: "7", "= 5": "5", "{5}": "5", `3x = 6 \implies x = 2`: "x = 2",
		`\underline{2}\,\underline{7}`: "27", "`5`": "5", "": "",
	} {
		require.Equal(t, want, Clean(text), text)
	}
}

func TestCompact(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"2 1/3": "2 1/3", "a + b": "a+b", `\text{no} {x}`: "nox", "{5}": "5", `\dfrac{1}{2}`: `\frac{1}{2}`} {
		require.Equal(t, want, Compact(text), text)
	}
}

func TestBoxed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`\boxed{1} and \boxed{2}`: "1 , 2", `\boxed{1}. Then \boxed{2}`: "2", `\boxed{\frac{1}{2}}`: `\frac{1}{2}`, `$\boxed 42$`: "42", `\fbox{3}`: "3", `\boxed{4`: "", "box": "",
	} {
		inside, end, ok := Boxed(text)
		require.Equal(t, want, inside, text)
		require.Equal(t, want != "", ok, text)
		require.LessOrEqual(t, end, len(text))
	}
}

func TestJoins(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{" and ": true, ", ": true, "$ or $": true, `$ \text{ and } $`: true, " and x = ": true, " so ": false, " and 5 = ": false, " and then ": false, "": false} {
		require.Equal(t, want, Joins(text), text)
	}
}

func TestRows(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`1\\[4pt]2`: `1\\ 2`, `1\\*2`: `1\\2`, `1\\[x]2`: `1\\[x]2`, `\\[-0.5em]`: `\\ `} {
		require.Equal(t, want, Rows(text), text)
	}
}

func TestFormula(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`2\sqrt{3} m`: `2\sqrt{3}`, `\frac{1}{2}.`: `\frac{1}{2}`, `-\sqrt{2}`: `-\sqrt{2}`, `2x`: "", `\sqrt{3`: "", `\pi`: ""} {
		require.Equal(t, want, text[:Formula(text)], text)
	}
}

func TestQuoted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`"5"}`: "5", `"a\"b",`: `a"b`, `"5" is it`: "", `"5`: "", `""}`: "", "5": ""} {
		inside, _, ok := Quoted(text)
		require.Equal(t, want != "", ok, text)
		if ok {
			require.Equal(t, want, inside, text)
		}
	}
}
