package expr

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// show prints a tree in prefix notation.
func show(n *Node) string {
	if n == nil {
		return "nil"
	}
	var args []string
	for _, arg := range n.Args {
		args = append(args, show(arg))
	}
	list := strings.Join(args, " ")
	switch n.Kind {
	case Number:
		return n.Value.RatString()
	case Symbol:
		return n.Name
	case Text:
		return fmt.Sprintf("%q", n.Name)
	case Sum:
		return "(+ " + list + ")"
	case Product:
		return "(* " + list + ")"
	case Power:
		return "(^ " + list + ")"
	case Call:
		return "(" + n.Name + " " + list + ")"
	case Bracket:
		return n.Open + list + n.Close
	case List:
		return "(list " + list + ")"
	case Relation:
		return "(" + strings.Join(n.Ops, " ") + " " + list + ")"
	case Matrix:
		return "(matrix " + list + ")"
	case Ratio:
		return "(: " + list + ")"
	case Unit:
		return "(in " + n.Name + " " + list + ")"
	}
	return "(label " + n.Name + " " + list + ")"
}

func TestParse(t *testing.T) {
	t.Parallel()
	thousands := Mode{Thousands: true}
	for _, row := range []struct {
		text string
		mode Mode
		want string
	}{
		{"1+2*3", Mode{}, "(+ 1 (* 2 3))"},
		{"-x^2", Mode{}, "(* -1 (^ x 2))"},
		{"2^3^2", Mode{}, "(^ 2 (^ 3 2))"},
		{"2^-1", Mode{}, "(^ 2 -1)"},
		{"a/b/c", Mode{}, "(* a (^ b -1) (^ c -1))"},
		{"2x(y+1)", Mode{}, "(* 2 x (+ y 1))"},
		{`\frac12x`, Mode{}, "(* (* 1 (^ 2 -1)) x)"},
		{`\frac{1}2`, Mode{}, "(* 1 (^ 2 -1))"},
		{`\frac 3 8`, Mode{}, "(* 3 (^ 8 -1))"},
		{`\frac\pi2`, Mode{}, "(* pi (^ 2 -1))"},
		{`1\frac{1}{2}`, Mode{}, "3/2"},
		{"3 1/2", Mode{}, "7/2"},
		{`2\frac{3}{2}`, Mode{}, "(* 2 (* 3 (^ 2 -1)))"},
		{`\sqrt[3]{x}`, Mode{}, "(^ x (^ 3 -1))"},
		{`\sqrt2x`, Mode{}, "(* (^ 2 (^ 2 -1)) x)"},
		{`\sin^2 x`, Mode{}, "(^ (sin x) 2)"},
		{`\sin 5x\cos x`, Mode{}, "(* (sin (* 5 x)) (cos x))"},
		{`\log_2 8`, Mode{}, "(log 8 2)"},
		{"|x-1|", Mode{}, "(abs (+ x -1))"},
		{"||x|+1|", Mode{}, "nil"}, // parses as ‖x|
		{"5!", Mode{}, "(factorial 5)"},
		{"1,234", Mode{}, "(list 1 234)"},
		{"1,234", thousands, "1234"},
		{"1 234", thousands, "1234"},
		{"(1,234)", thousands, "(1 234)"},
		{`1{,}234`, Mode{}, "1234"},
		{"1,5", Mode{Decimal: true}, "3/2"},
		{"1.5e-3", Mode{}, "3/2000"},
		{"[0,1)", Mode{}, "[0 1)"},
		{`\{1,2\}`, Mode{}, "{1 2}"},
		{`x\in(0,1)\cup[2,3]`, Mode{}, "(in x (cup (0 1) [2 3]))"},
		{"0<x<=1", Mode{}, "(< <= 0 x 1)"},
		{"a:b", Mode{}, "(: a b)"},
		{"5 cm^2", Mode{}, "(in cm^2 5)"},
		{`5\text{ miles per hour}`, Mode{}, "(in miles per hour 5)"},
		{`90^\circ`, Mode{}, "(in deg 90)"},
		{"$5", Mode{}, "(in dollars 5)"},
		{"Area: 5", Mode{}, "(label Area 5)"},
		{`\text{two lines}`, Mode{}, `"two lines"`},
		{"x_1+x_{12}", Mode{}, "(+ x_1 x_12)"},
		{`\begin{pmatrix}1&2\\3&4\end{pmatrix}`, Mode{}, "(matrix (list 1 2) (list 3 4))"},
		{"52_8", Mode{}, "52"},
		{"f(2)", Mode{}, "(f 2)"},
		{"1\\pm2", Mode{}, "(+ 1 (* ± 2))"},
	} {
		n, ok := Parse(row.text, row.mode)
		require.Equal(t, row.want != "nil", ok, row.text)
		require.Equal(t, row.want, show(n), row.text)
	}
	for _, text := range []string{"", "(", ")", "1+", "x=", "2^", `\frac{1}`, "5 apples for 3 days", "#", "(1", "1)",
		strings.Repeat("(", 999), strings.Repeat("1", 9999)} {
		_, ok := Parse(text, Mode{})
		require.False(t, ok, text)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{`\frac{1}{2}`, "1,234", `\begin{pmatrix}1&2\\3&4\end{pmatrix}`, `\text{a \text{b}}`,
		"x_1^2", `\{1\pm\sqrt{5},-2\}`} {
		f.Add(text, true, false)
	}
	f.Fuzz(func(t *testing.T, text string, thousands, decimal bool) {
		n, ok := Parse(text, Mode{Thousands: thousands, Decimal: decimal})
		require.Equal(t, ok, n != nil)
	})
}
