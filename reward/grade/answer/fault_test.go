package answer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/reward/grade/question"
)

// With a question, an equal value may still be no answer.
func TestFault(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, question, formula string
		want, got, fault        string
	}{
		{"chain", "", "", "12", "3 \\cdot 4 = 12", ""},
		{"chain of a name", "", "", `6\pi`, `C = 2\pi r = 6\pi`, ""},
		{"chain with different values", "", "", "12", "3 + 4 = 12", Several},
		{"chain that restates", "", "", "0.5", `x = \frac{1}{2} = 0.5`, ""},
		{"chain rounded", "", "", `\sqrt{2}`, `\sqrt{2} = 1.414`, ""},
		{"struck out", "", "", "5", "~~5~~", NoAnswer},
		{"denied", "", "", "5", `\text{not } 5`, Altered},

		{"unit asked for", "How many minutes does it take?", "", "160", "2 hours and 40 minutes", ""},
		{"unit not asked for", "How many hours does it take?", "", "160", "160 minutes", OtherUnit},
		{"unit converted", "How long is it?", "", "2 m", "200 cm", ""},
		{"unit of another size", "How many meters long is it?", "", "2", "2 cm", OtherUnit},
		{"unit of another quantity", "A square has a side of 5 cm. What is the area?", "", "25", "25 cm", OtherUnit},
		{"rate not asked for", "How many km does the car drive?", "", "60", "60 km/h", OtherUnit},
		{"percent of a share", "What percentage of the class is that?", "", "40", `40\%`, ""},
		{"percent of a count", "How many students are there?", "", "40", `40\%`, OtherUnit},
		{"scale asked for", "How many billion stars are there?", "", "26", "26 billion", ""},
		{"base not asked for", "How many are there?", "", "5", "101_2", OtherValue},

		{"expanded", "Expand $(x+1)^2$.", "(x+1)^2", "x^2+2x+1", "x^2 + 2x + 1", ""},
		{"repeats the question", "Expand $(x+1)^2$.", "(x+1)^2", "x^2+2x+1", "(x+1)^2", Echo},
		{"not factored", "Factor $x^2-1$.", "x^2-1", "(x-1)(x+1)", "-1+x^2", Echo},
		{"half factored", "Factor $x^4-1$.", "x^4-1", "(x-1)(x+1)(x^2+1)", "(x^2-1)(x^2+1)", OtherForm},
		{"not in lowest terms", "Express 0.5 as a common fraction.", "0.5", `\frac{1}{2}`, `\frac{2}{4}`, Unfinished},
		{"not rationalized", `Rationalize $\frac{1}{\sqrt{2}}$.`, `\frac{1}{\sqrt{2}}`, `\frac{\sqrt{2}}{2}`,
			`\frac{2}{2\sqrt{2}}`, Unfinished},
		{"not a decimal", "Write the probability as a decimal.", "", "0.5", "1/2", OtherForm},
		{"not scientific", "Write it in scientific notation.", "", `6.72 \times 10^{5}`,
			`67.2 \times 10^{4}`, OtherForm},
		{"not exact", "Give an exact answer.", "", `\frac{1}{3}`, "0.3333333", OtherValue},
		{"another name", "Find $f(2)$.", "f(2)", "5", "f(3) = 5", Altered},

		{"series", "", "", "1 2 3", "1, 2, 3", ""},
		{"series in brackets", "", "", "1 2 3", "[1 2 3]", ""},
		{"series in another order", "", "", "1 2 3", "3 2 1", OtherValue},
		{"series as one number", "", "", "12 345", "12,345", OtherValue},
		{"block", "", "", "1 0\n0 1", "1  0\n0 1\n", ""},
		{"block as a matrix", "", "", "1 0\n0 1", "\\begin{pmatrix}1 & 0 \\\\ 0 & 1\\end{pmatrix}", ""},
		{"block in one line", "", "", "1 0\n0 1", "1 0 0 1", OtherValue},
		{"block with another row", "", "", "1 0\n0 1", "1 0\n1 0", OtherValue},
		{"nested brackets", "", "", "[[1, 2], [3, 4]]", `\begin{pmatrix}1&2\\3&4\end{pmatrix}`, ""},
		{"nested brackets in another order", "", "", "[[1, 2], [3, 4]]", "[[3, 4], [1, 2]]", OtherValue},
		{"texts in brackets", "", "", `["a", "b"]`, `['a','b']`, ""},
		{"time of the day", "", "", "8:34 PM", "20:34", ""},
		{"another half of the day", "", "", "8:34 PM", "8:34 am", OtherValue},

		{"choice with its value", "Choose: (A) 3 (B) 4 (C) 5", "", "B", "(B) 4", ""},
		{"choice with another value", "Choose: (A) 3 (B) 4 (C) 5", "", "B", "(B) 5", Several},
		{"word in a sentence", "Which day is it?", "", "Friday", "The day is Friday", ""},
		{"word and a rival", "Which day is it?", "", "Friday", "Friday or Monday", OtherValue},
		{"word denied", "Is it even or odd?", "", "even", "not even", OtherValue},
		{"word with a comment", "Is it even or odd?", "", "even", "even, since 2 divides it", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			q := question.New(row.question + " " + row.formula)
			require.Equal(t, row.fault, Fault(q, row.want, row.got))
		})
	}
}
