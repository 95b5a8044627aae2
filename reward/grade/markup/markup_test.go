package markup

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		" **5.** ": "5", "$5$": "5", "$5": "$5", `\(x\)`: "x", `\boxed{7}`: "7", "= 5": "5", "{5}": "5",
		`3x = 6 \implies x = 2`:        "x = 2",
		`\underline{2}\,\underline{7}`: "27", "`5`": "5", "": "",
	} {
		require.Equal(t, want, Clean(text), text)
	}
}

func TestCompact(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"2 1/3": "2 1/3", "a + b": "a+b", `\text{no} {x}`: "nox", "{5}": "5",
		`\dfrac{1}{2}`: `\frac{1}{2}`} {
		require.Equal(t, want, Compact(text), text)
	}
}

func TestBoxed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`\boxed{1} and \boxed{2}`: "1 , 2", `\boxed{1}. Then \boxed{2}`: "2", `\boxed{\frac{1}{2}}`: `\frac{1}{2}`,
		`$\boxed 42$`: "42", `\fbox{3}`: "3", `\boxed{4`: "", "box": "",
	} {
		inside, end, ok := Boxed(text)
		require.Equal(t, want, inside, text)
		require.Equal(t, want != "", ok, text)
		require.LessOrEqual(t, end, len(text))
	}
}

func TestJoins(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{" and ": true, ", ": true, "$ or $": true, `$ \text{ and } $`: true,
		" and x = ": true, " so ": false, " and 5 = ": false, " and then ": false, "": false} {
		require.Equal(t, want, Joins(text), text)
	}
}

func TestRows(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`1\\[4pt]2`: `1\\ 2`, `1\\*2`: `1\\2`, `1\\[x]2`: `1\\[x]2`,
		`\\[-0.5em]`: `\\ `} {
		require.Equal(t, want, Rows(text), text)
	}
}

func TestSpans(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		text string
		want []string
	}{
		{"What is 17 + 26?", []string{"17 + 26"}},
		{"Let $x+y=7$ and \\(xy=3\\).", []string{"x+y=7", "xy=3"}},
		{"He has $5 and she has $6.", []string{"$5", "$6"}},
		{"It weighs 3.5 kg, not 4.", []string{"3.5", "4"}},
		{"A plan for a day", nil},
		{"x^2 - 4x + 3 = 0 has two roots", []string{"x^2 - 4x + 3 = 0"}},
		{"(3, 4) and [0, 1)", []string{"(3, 4)", "[0, 1)"}},
		{"sqrt(2) is near 1.4", []string{"sqrt(2)", "1.4"}},
		{`about \frac{1}{2} of it`, []string{`\frac{1}{2}`}},
		{"5! = 120", []string{"5! = 120"}},
	} {
		var got []string
		for _, span := range Spans(row.text) {
			got = append(got, row.text[span.Lo:span.Hi])
		}
		require.Equal(t, row.want, got, row.text)
	}
}

func TestUndecorated(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`\color{blue}{17}`: "{17}", `{\color{red} 17}`: "{ 17}",
		`\colorbox{yellow}{17}`: "{17}", `\enclose{circle}{17}`: "{17}", `\fcolorbox{a}{b}{17}`: "{17}",
		`\bbox[5px]{17}`: "{17}", `\colored 5`: `\colored 5`, `\cancel{17}`: `\cancel{17}`} {
		require.Equal(t, want, Undecorated(text), text)
	}
}

func TestRespelled(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"]2, 7[": "(2, 7)", "[2, 7[": "[2, 7)", "]2; 7]": "(2, 7]", `\left]2,7\right]`: `\left(2,7\right]`,
		`x \in ]0,1[ \cup [2,3[`: `x \in (0,1) \cup [2,3)`, "[2, 7)": "[2, 7)", "[[1,2],[3,4]]": "[[1,2],[3,4]]",
		"a[1]": "a[1]",
		"ℝ⁺":   `(0,\infty)`, `\mathbb{R}_{\ge 0}`: `[0,\infty)`, `\mathbb{R}`: `\mathbb{R}`,
		"45^o": `45^\circ`, `101_{\text{two}}`: "101_{2}", `4\text{ или }-3`: `4\text{ or }-3`,
		`4\text{ oder }5`: `4\text{ or }5`,
		`3\,µA`:           `3 \text{ microA}`, `5 \mu m`: `5 \text{ microm}`, `\mu = 3`: `\mu = 3`,
		`9.8\,\mathrm{m\,s^{-2}}`: `9.8\,\mathrm{m/s^2}`, `72\,\mathrm{km\,h^{-1}}`: `72\,\mathrm{km/h}`,
	} {
		require.Equal(t, want, Respelled(text), text)
	}
}

func TestUnclosed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{`\boxed{5`: 0, `a \boxed{5}`: -1, `\boxed{5} \fbox{\frac{1}{`: 10,
		`\boxed{5} \box`: 10, `\boxed{5} \boxed`: 10, `\boxed 5$`: -1} {
		require.Equal(t, want, Unclosed(text), text)
	}
}

func TestQuoted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`"5"}`: "5", `"a\"b",`: `a"b`, `"5" is it`: "", `"5`: "",
		`""}`: "", "5": ""} {
		inside, _, ok := Quoted(text)
		require.Equal(t, want != "", ok, text)
		if ok {
			require.Equal(t, want, inside, text)
		}
	}
}
