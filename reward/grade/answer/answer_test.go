package answer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEqual(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		kind string
		want string
		same []string
		not  []string
	}{
		{"integer", "1000", []string{"1,000", "1 000", "1000.00", `1{,}000`, `1,\!000`, "10^3", `10^{3}`, "1e3",
			"$1000", `\$1,000`, "1000 apples", "+1000", "one thousand"},
			[]string{"100", "1.000", "10000", "-1000", "1000x"}},
		{"fraction", `\frac{1}{2}`, []string{"1/2", "0.5", ".5", `\frac12`, `\dfrac{2}{4}`, `\tfrac 1 2`, "50%", "1:2",
			"½"}, []string{"2", "0.2", "1/3", "0.51", "1/2x", `2^{-1}`, `\frac{\sqrt{4}}{4}`}},
		{"mixed", `1\frac{4}{5}`, []string{"9/5", "1.8", "1 4/5", `\frac{9}{5}`}, []string{"4/5", "14/5"}},
		{"nothing", "0", []string{"zero", "0.0"}, []string{".", "-.", ". .", ",", `\boxed{.}`}},
		{"hundred", "100", []string{"hundred", "one hundred", "one hundred dollars"}, []string{"thousand", "1"}},
		{"backslash", "1", []string{"1"}, []string{`\71`}},
		{"value of a choice", "119", []string{`\text{C. } 119`, `\textbf{(D)}\ 119`, "(B) 119"},
			[]string{"C", "(C) 118", "C. 19", "(1) 119 (2) 7"}},
		{"periodic", `\frac{1}{3}`, []string{"0.333333", "0.3333333333", `\frac{2}{6}`, `0.\overline{3}`, `0.\bar3`,
			"0.333...", "one third"}, []string{"0.33", "0.3", "0.34", "3"}},
		{"repeating", `\frac{41}{330}`, []string{`0.1\overline{24}`, "0.1242424..."},
			[]string{"0.124", `0.\overline{124}`, "0.12..."}},
		{"root", `\frac{\sqrt{3}}{3}`, []string{`\frac{1}{\sqrt3}`, `3^{-1/2}`, "sqrt(3)/3", "√3/3", "0.5773503"},
			[]string{`\sqrt3`, "0.58", `\frac{\sqrt{3}}{2}`}},
		{"nested root", `\sqrt{3+2\sqrt{2}}`, []string{`1+\sqrt2`, `\sqrt{2}+1`}, []string{`\sqrt2-1`}},
		{"cube root", `\sqrt[3]{8}`, []string{"2", "∛8", "8^{1/3}"}, []string{"8", "24"}},
		{"pi", `12\pi`, []string{"12*pi", "12π", `\pi \cdot 12`, "37.6991118"}, []string{"12", "37.7", `12\pi^2`}},
		{"power", "2^{4181}", []string{"2^4181", `2 \cdot 2^{4180}`}, []string{"2^{4182}", "2^{4181}+1"}},
		{"tower", "9^{9^{9^9}}", []string{"9^9^9^9"}, []string{"9^{9^9}", "5"}},
		{"exponent", "2^{n-1}", []string{`\frac{2^n}{2}`}, []string{"2^n", "2^{n+1}"}},
		{"scientific", "6.72e-5", []string{`6.72 \times 10^{-5}`, ".0000672", "6.72*10^-5"},
			[]string{"6.72e-4", "6.73e-5"}},
		{"percent", `28\%`, []string{"28", "28%", "0.28", "28 percent", "28 pct"}, []string{"2.8", "280%"}},
		{"money", `\$18.90`, []string{"18.9", "$18.90", "18.90 dollars", "1890 cents"}, []string{"18.09", "1890"}},
		{"unit", `15\mbox{ cm}^2`, []string{"15", "15 cm^2", "15 square centimeters", `15\text{ cm}^2`, "15 cm²"},
			[]string{"1.5", "152"}},
		{"degrees", `90^\circ`, []string{"90", "90 degrees", "90°", `90^{\circ}`}, []string{"9", `\pi`}},
		{"base", "52_8", []string{"52", "52_{8}", `52_{\text{eight}}`, `52\text{ (base 8)}`, "52 base 8", "(52)_8"},
			[]string{"42", "52_9", "-52_8", "52 base 9"}},
		{"complex", "6 - 5i", []string{"-5i+6", "6-5 i", "i(-5-6i)"}, []string{"6+5i", "5-6i"}},
		{"polynomial", "(a+5)(b+2)", []string{"ab+2a+5b+10", "(b+2)(a+5)"}, []string{"ab+10", "(a+2)(b+5)"}},
		{"rational function", `\frac{1}{x-1}`, []string{`\frac{x+1}{x^2-1}`, "(x-1)^{-1}"}, []string{`\frac{1}{x+1}`}},
		{"trigonometry", `\cot x`, []string{`\frac{\cos x}{\sin x}`, `1/\tan(x)`}, []string{`\tan x`}},
		{"degrees in trigonometry", `\sin 30^\circ`, []string{"1/2", "0.5"}, []string{"1"}},
		{"logarithm", `\log_2 8`, []string{"3"}, []string{"2", "4"}},
		{"remainder", `17 \bmod 5`, []string{"2", "17 mod 5", `2 \pmod 5`}, []string{"3", "17"}},
		{"equation", "x=5", []string{"5", "x = 5"}, []string{"x=6", "y=5x", "n=6"}},
		{"line", "y = 2x + 3", []string{"2x+3", "2x - y + 3 = 0", "y - 2x = 3"}, []string{"y = 2x", "y=-2x+3", "3"}},
		{"plane", "5x - 7y + 11z + 4 = 0", []string{"-5x+7y-11z=4", "10x-14y+22z+8=0"},
			[]string{"5x - 7y + 11z = 4", "0"}},
		{"interval", "(3,4]", []string{`3 < x \le 4`, `x \in (3,4]`, `\left(3, 4\right]`},
			[]string{"[3,4]", "(3,4)", "3,4"}},
		{"union", `(-\infty,2)\cup(3,\infty)`, []string{"x<2 or x>3", `(3,\infty)\cup(-\infty,2)`,
			`x<2 \text{ or } x>3`}, []string{"(2,3)", `(-\infty,2]\cup[3,\infty)`}},
		{"line without a point", `(-\infty,3)\cup(3,\infty)`, []string{`x \neq 3`, `\mathbb{R} \setminus \{3\}`},
			[]string{`x=3`, `\mathbb{R}`}},
		{"absolute value", `1\leq|z|\leq 2`, []string{`[-2,-1]\cup[1,2]`}, []string{"[1,2]"}},
		{"conditions", `[0,3)\cup(3,\infty)`, []string{`\{x \mid x \ge 0, x \ne 3\}`, `x \ge 0 \text{ and } x \neq 3`,
			`\{x \in \mathbb{R} : x \ge 0, x \ne 3\}`}, []string{`x \ge 0`, `x \ne 3`, `\{0, 3\}`}},
		{"all reals", `(-\infty,\infty)`, []string{`\mathbb{R}`, "all real numbers", `\text{all real numbers}`},
			[]string{`(0,\infty)`}},
		{"list", "1,-2", []string{"-2,1", "-2 and 1", `\{1,-2\}`, "x=1 or x=-2", "x = 1, -2"},
			[]string{"1", "1,2", "1,-2,3", "[1,-2]"}},
		{"set with both signs", `\{1\pm\sqrt{5},-2\}`, []string{`-2, 1+\sqrt5, 1-\sqrt5`}, []string{`1\pm\sqrt5`}},
		{"tuple", "(100,101)", []string{"(100, 101)", `\langle 100,101\rangle`, `\begin{pmatrix}100\\101\end{pmatrix}`},
			[]string{"(101,100)", `\{100,101\}`}},
		{"matrix", `\begin{pmatrix}1&0\\0&1\end{pmatrix}`,
			[]string{`\begin{bmatrix}1&0\\0&1\end{bmatrix}`, `\frac12\begin{pmatrix}2&0\\0&2\end{pmatrix}`},
			[]string{`\begin{pmatrix}1&0\\0&2\end{pmatrix}`, `\begin{pmatrix}0&1\\0&1\end{pmatrix}`,
				`\begin{pmatrix}1&0\\1&0\end{pmatrix}`, "1"}},
		{"ratio", "3:5", []string{`\frac{3}{5}`, "3 : 5", "0.6"}, []string{"5:3", "3"}},
		{"binomial", `\binom{5}{2}`, []string{"10", `{5 \choose 2}`, "C(5,2)"},
			[]string{`{5 \choose 3} + 1`, "C(5,1)"}},
		{"unfinished", "10", []string{"10.0", "ten"},
			[]string{`\binom{5}{2}`, "7+3", "20/2", `\frac{20}{2}`, "C(5,2)", `2 \cdot 5`, `\sqrt{100}`}},
		{"weekday", `\text{Friday}`, []string{"Friday", "The day is Friday", "It is a Friday"},
			[]string{"100 days after Friday is Sunday", "Sunday"}},
		{"speed", "25", []string{`25\,\mathrm{m/s}`, `25\ \frac{\text{m}}{\text{s}}`, `25^\circ\text{C}`,
			`\textcolor{red}{25}`}, []string{`25\mathrm{i}`, `\text{not } 25`}},
		{"factorial", `\frac{1}{2004!}`, []string{"1/2004!", `2004!^{-1}`}, []string{`\frac{1}{2006!}`, "0"}},
		{"nearly", "1", []string{"1.0", "0.999..."}, []string{"0.9999999", "1.0000001", "0.999"}},
		{"places", "1000000.5", []string{"1000000.50", "2000001/2"}, []string{"1000000.4", "1000001"}},
		{"cents", "25", []string{"$0.25", "25 cents"}, []string{"$2.50", "0.25", "$0.2"}},
		{"hour", "2", []string{"2:00 pm", "2:00 a.m."}, []string{"2:30 pm", "3:00 pm"}},
		{"rate", "5", []string{"5 m/s", "5 km/h"}, []string{"5m/s + 1", "5 m/2"}},
		{"digits apart", "227", []string{`\underline{2}\,\underline{2}\,\underline{7}`},
			[]string{`\underline{2}\,\underline{7}\,\underline{2}`}},
		{"time", `4\!:\!51\!:\!06 \text{ p.m.}`, []string{"4:51:06 PM", "4:51:06"}, []string{"4:51:06 am", "4:51"}},
		{"choice", `\text{(C)}`, []string{"C", "(C)", `\textbf{(C)}\ 42`, "C.", "Option C", "(C) 42"},
			[]string{"D", "(E)", "42"}},
		{"word", `\text{Evelyn}`, []string{"Evelyn", "evelyn", "It is Evelyn"},
			[]string{"Carla", "not Evelyn", "Evelyn or Carla"}},
		{"number in words", `\mbox{four}`, []string{"4", "Four", "four"}, []string{"5", "fourteen"}},
		{"date", `\text{October 30}`, []string{"October 30", "October 30th"}, []string{"November 30", "30"}},
		{"nothing", `\text{no solution}`,
			[]string{"No solutions", "none", "no real solutions", `\emptyset`, `\{\}`, `\text{DNE}`}, []string{"0"}},
		{"escaped twice", `\\left(\\frac{1}{5},2\\right)`, []string{`\left(\frac15, 2\right)`}, []string{"(5,2)"}},
		{"chain", `0.56 = 56\%`, []string{"56%", "0.56"}, []string{"5.6"}},
		{"about", `\$\dfrac23 \approx \$0.67`, []string{`\frac{2}{3}`}, []string{"0.6"}},
		{"opaque", `F_n = \sum_{k=0}^{n-1} F_k F_{n-k-1}`, []string{`F_n = \sum_{k=0}^{n-1} F_{n-k-1} F_k`},
			[]string{`F_n = F_{n-1}`}},
		{"order", "f(2) < f(1) < f(4)", []string{"f(4) > f(1) > f(2)"}, []string{"f(1) < f(2) < f(4)"}},
	} {
		t.Run(row.kind, func(t *testing.T) {
			t.Parallel()
			require.True(t, Equal(row.want, row.want))
			for _, got := range row.same {
				require.True(t, Equal(row.want, got), "%q, %q", row.want, got)
			}
			for _, got := range row.not {
				require.False(t, Equal(row.want, got), "%q, %q", row.want, got)
			}
		})
	}
	require.False(t, Equal("", ""))
	require.False(t, Equal("5", ""))
}
