package grade

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/limittest"
	"github.com/easyrl/easyrl/internal/soak"
	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/markup"
)

// hostile returns texts that make careless graders hang or exhaust memory.
func hostile() []string {
	const long, longest = 1 << 14, 1 << 20
	list := []string{
		"9^9^9^9^9", "(((9!)!)!)!", "10^{10^{10}}", "2^{99999999999999999999}", "x^{1000000000}", `\frac{1}{9^{9^9}}`,
		"1e999", "1e-999", "0.1^9999",
		"((x+1)^{9999}+1)^{9999}", `\binom{99999999}{4444}`, "0/0", "1/0", "0^0", "0^{-1}", `\sqrt[0]{5}`,
		`\sqrt[10^9]{5}`, "--5", "1--1", "",
		`\begin{pmatrix}`, `\end{pmatrix}`, `\frac`, `\frac{1}`, `\sqrt`, "^", "_", `\`, `\text{`, "$", "$$", `\(`,
		"####", `\boxed`, `\boxed{`, "answer", "answer is", "answer:",
		"\x00\xff\xfe", "…", "\u202e5", "NaN", "∞", "-∞", "i^i", "0.(3)", "5%%%%", "1,2,3,", ",,,", "[[[", "1:2:3:4",
		"\\\\", "%s", "f(f(f(f(x))))",
	}
	for _, item := range []string{"3^{5000}+1/7^{2800}", "x=3^{5000}/7^{2000}", `\sqrt[16]{3^{5000}}`, "x^{5000}y<3",
		`1\pm2`, "(1,2)", "[1,[2,[3,4]]]", "x<3", strings.Repeat("7", 60), "3cm", "5%", "1:2", "(((((1)))))"} {
		list = append(list, strings.Repeat(item+",", 63)+"1", strings.Repeat(item+",", 500)+"2")
	}
	for _, piece := range []string{
		"(", "[", "{", "\\{", "((x+1)", "x^", "2^{", "-", "\\frac{1}{", "\\sqrt{", "\\left(", "|", "||", "a_",
		"\\text{", "\\boxed{", "$", "$$", "\\(", "\\[",
		"\\begin{pmatrix}", "\\begin{a}", "1,", "1 ", "9", "1+", "x", "x+", "\\pm ", "1\\pm", "answer is ",
		"the answer is 5. ", "#### 5\n", "<think>", "</think>", "<answer>",
		"\n", ".", "wait ", "So 5. ", "\\boxed{1} and ", "\\boxed{5", "****", "5 = ", "\\", "}", "!", "%",
		"\nQuestion: ", "1 and ", "=", "x=1,", "(1,2),", "\\cup(1,2)", "&", "\\\\ ",
		"C(", "f(", "\\choose 2", "\\{x|", "\\mid ", "0.\\overline{3}", "0.333...", "答案", "１", "½", "base 8 ", "5 or ",
		"5 ≈ ", "x = 5 and ", "one and a ", "\n\nTom has 3 and buys 4. How many does he have?\n",
		"<b>", "Ans: ", "not 5 ", "than 5 ", "1/8 of ", "\"answer\": \"", "1 to ", "70k ",
		"[[1],", "{\"a\":", "1/0\n", "a,b|c\n", "5 or ", "red or blue, ", "<answer>5. ", "<<2+1=3>>3 ", "7e999/3e998+",
		"1000!,", "1e999,", "\\{1\\}\\cup", "x\\neq 1,", "5 km/h ", "2:30 pm, ", "x = 5 ≈ ",
		"5 cm 3 mm ", "2 hours 40 minutes ", "2h", "an hour and ", "5'", "\\\\[4pt]", "\\\\*", "⁰", "²/₃", "⁄",
		"(5)_9 ", "5 in base nine ", "So 5 of 7, leaving 2", "5, 2 more than ", "\\sqrt{3}", "2\\frac{", "\\cr ",
	} {
		list = append(list, strings.Repeat(piece, 50), strings.Repeat(piece, 2000/len(piece)),
			strings.Repeat(piece, long/len(piece)))
	}
	for _, size := range []int{200, 400, 4000, longest} { // one construct within another, and marks behind one
		for _, part := range [][2]string{{"(1+", ")"}, {"\\sqrt{1+", "}"}, {"2^{", "}"}, {"\\frac{1}{1+", "}"},
			{"[", "]"}, {"$5 ", "$"}, {"<answer>5, ", "</answer>"}, {"x", "'"}, {"5", "!"}, {"x(1", ",1"}, {"f(", ")"},
			{"max(1,", ")"},
			{"\\begin{vmatrix}1&2\\\\3&", "\\end{vmatrix}"}} {
			depth := size / (len(part[0]) + len(part[1]))
			list = append(list, strings.Repeat(part[0], depth)+"1"+strings.Repeat(part[1], depth),
				part[0]+strings.Repeat(part[1], size/len(part[1])))
		}
	}
	for _, piece := range []string{"$", "\n", "\\boxed{5", "2 hours 40 minutes ", "1/0\n", "a,b|c\n", "x\n", "5 or ",
		"red or blue, ", "\"a\",", "[1],", "5 ≈ ", "1 ", "5 km/h ", "\xff"} {
		list = append(list, strings.Repeat(piece, longest/len(piece)))
	}
	return list
}

// uses returns gradings that have a hostile text as response, reference answer or question.
func uses(text string) []func() {
	return []func(){
		func() { Correct(text, "5") },
		func() { Correct("5", text) },
		func() { Correct(`\boxed{`+text+`}`, text) },
		func() { Correct("The answer is "+text, `\frac{1}{2}`) },
		func() { NewTask("How many km?", text).Fault("<answer>" + text + "</answer>") },
		func() { NewTask(text, "5").Fault("<answer>5 " + text + "</answer>") },
		func() { NewTask(text, "1 km, x = 3 m").Fault(`\boxed{1000 \text{ meters each}, 3 m}`) },
		func() { NewTask("Find $"+text+"$.", text).Fault(`\boxed{1 + ` + text + `}`) },
		func() { answer.Equal(text, text+"+1") },
		func() { answer.Equal(text, "1,"+text) },
		func() { answer.Equal(text, strings.ReplaceAll(text, "3", "4")) },
	}
}

// Functions without arguments, and brackets and marks without their counterparts, do not panic.
func TestIncomplete(t *testing.T) {
	t.Parallel()
	for _, gold := range []string{"5", "y=5", "AB=5", "(3,-1)"} {
		for _, x := range []string{`abs()=5`, `f()=5`, `\operatorname{angle}()=5`, `5}} (about 5)`, `\angle A=`,
			`{}C_=5`, `()=()`,
			`5 (about `, `\mod`, `f(y)=5`, `\mathbb{R}\setminus[1,`, `\left.`, `\bar`, `\overline`} {
			NewTask("Find $AB$ and angle $C$ in degrees, to two decimal places.", gold).Fault(`\boxed{` + x + `}`)
			Correct("<answer>"+x+"</answer>", gold)
		}
	}
}

// A grading takes little time and memory, whatever the text. Without EASYRL_SOAK, each text
// is used in a part of the ways, and a text that follows in other ones. The test does not run
// in parallel, so that other tests' work does not count.
func TestHostile(t *testing.T) {
	const most = 100_000_000 // bytes allocated by one grading, most of them short-lived
	part := 4
	switch {
	case soak.Long():
		part = 1
	case soak.Race:
		part = 10 * part
	}
	for n, text := range hostile() {
		for i, grade := range uses(text) {
			if (n+i)%part > 0 {
				continue
			}
			t.Run(fmt.Sprintf("text %d, use %d", n, i), func(t *testing.T) { // named if it hangs
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				if soak.Race { // its time says nothing
					grade()
				} else {
					limittest.Run(t, grade)
				}
				runtime.ReadMemStats(&after)
				require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(most), "use %d of %.60q (%d bytes)", i,
					text, len(text))
			})
		}
	}
}

func FuzzCorrect(f *testing.F) {
	for _, row := range completions(f) {
		f.Add(row.Text, row.Gold)
	}
	for _, text := range hostile() {
		if len(text) < 5000 {
			f.Add(text, "1")
		}
	}
	f.Fuzz(func(t *testing.T, text, gold string) {
		Correct(text, gold)
		NewTask("How many km is the way to "+gold+" in base 2?", gold).Fault(text)
		if got, _ := Extract(text); markup.Clean(got) != "" { // every answer equals itself
			require.True(t, answer.Equal(got, got), got)
		}
	})
}
