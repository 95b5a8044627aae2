package grade

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Plain-text answers are found whole within a sentence.
func TestPlainExpressions(t *testing.T) {
	t.Parallel()
	for _, row := range [][2]string{ // LaTeX, plain text
		{`7\sqrt{11}`, "7sqrt(11)"},
		{`7\sqrt{11}`, "7 sqrt(11)"},
		{`7\sqrt{11}`, "7√11"},
		{`19\pi`, "19pi"},
		{`19\pi`, "19 pi"},
		{`19\pi`, "19π"},
		{`\sqrt{2}`, "sqrt(2) ≈ 1.414"},
		{`[-6,\infty)`, "[-6,inf)"},
		{`[-6,\infty)`, "[-6, ∞)"},
		{`(-\infty,1)\cup(1,3)`, "(-∞,1) ∪ (1,3)"},
		{`(-\infty,1)\cup(1,3)`, "(-inf, 1) U (1, 3)"},
		{`(-4,-9)`, "(-4,-9)"},
		{`(-4,-9)`, "(−4, −9)"},
		{`[0,5)`, "[0,5)"},
		{`3x-4y+z-12=0`, "3x - 4y + z - 12 = 0"},
		{`x^4-3x^3+x^2-2`, "x⁴ − 3x³ + x² − 2"},
		{`6r^2`, "6r²"},
		{`\frac{3ab}{a^2+b^2}`, "(3ab)/(a^2 + b^2)"},
		{`\frac{1}{2^{45}}`, "1/(2^(45))"},
		{`3^{777}`, "3^(777)"},
		{`\frac{-50}{7}`, "(-50)/7"},
		{`s^2\le 5r^2`, "s^2 <= 5r^2"},
		{`\tan 20^\circ`, "tan 20°"},
		{`4,8,-8`, "4,8,-8"},
		{`8k`, "8k"},
		{`\frac{1}{8}`, "⅛"},
		{`\frac{5}{2}`, "2½"},
		{"8000", "8k"},
	} {
		for _, form := range []string{
			"The answer is @.", "Working it out, 3 + 4 = 7, so we are left with **@**.", "Therefore, it equals @, as required.", "It follows that the quantity is @.", "Answer: @", "#### @", `\boxed{@}`,
		} {
			if form == `\boxed{@}` && (strings.Contains(row[1], "≈") || row[0] == "8000") {
				continue
			}
			text := strings.Replace(form, "@", row[1], 1)
			require.True(t, Correct(text, row[0]), "%q in %q, read as %q", row[0], text, Extract(text))
			require.False(t, Correct(text, "9"), text)
		}
	}
}

// Only the conclusion of a sentence counts, not its reasons.
func TestExplanations(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		text, want string
		not        []string
	}{
		{"He can spend 55 more minutes before his average goes above 60 because 300 - 245 = 55.", "55", []string{"60", "300", "245"}},
		{"In an 8 hour day, if 350 people come every hour then they see 8*350 = 2,800 people in 8 hours.", "2800", []string{"8", "350"}},
		{"Driving at 132 miles an hour, since distance = speed * time, he covers 132*4 = 528 miles.", "528", []string{"132", "4"}},
		{"To pay it off in 2 years instead of 5, he pays 250-100 = $150 more a month.", "150", []string{"2", "5", "250"}},
		{"He pays $60, which is $40 less than the original price of $100.", "60", []string{"40", "100"}},
		{"So 3 inches is 1/8 of 2 feet.", "1/8", []string{"3", "2"}},
		{"It takes 840 minutes to groom 5 dogs and 3 cats.", "840", []string{"5", "3"}},
		{"Each candy costs $4.00/16 = $0.25", "25", []string{"4", "16", "2.5"}},
		{"The latest she can start is 5-3 = 2:00 pm", "2", []string{"5", "3"}},
		{"It takes 210 minutes, or 3.5 hours.", "3.5", []string{"3", "21"}},
		{"The value could be $4$, or it could be $5$.", "4 , 5", []string{"4", "5"}},
		{"The answer is not 12.", "The answer is not 12.", []string{"12"}},
		{"This is a puzzle with 5 parts. I need more information.", "I need more information.", []string{"5"}},
		{`{"steps": 3, "answer": "35/2π"}`, `\frac{35\pi}{2}`, []string{"35/2", "3"}},
		{"It takes 6.25 turns. She is facing East.", `\text{east}`, []string{"west"}},
		{"20 * 4 = 80 legs.\n#### 80\n\nThere are 12 dogs. 12 * 4 = 48\n#### 48", "48", []string{"80", "12"}},
		{"So she has 18.\n\nQuestion: Tom has 3 and buys 4. How many?\nAnswer: 7", "18", []string{"7", "3"}},
	} {
		require.True(t, Correct(row.text, row.want), "%q, read as %q", row.text, Extract(row.text))
		for _, other := range row.not {
			require.False(t, Correct(row.text, other), "%q is no %s, read as %q", row.text, other, Extract(row.text))
		}
	}
}
