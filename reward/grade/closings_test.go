package grade

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// closings returns last sentences of solutions to word problems, with @ in place of the
// answer, that mark it.
func closings() []string {
	return []string{
		"Therefore, the answer is @.",
		`\boxed{@}`,
		"@ is the answer.",
		"@ is the answer",
		"So we give @ as our final answer",
		"Answer: @.",
		"**Answer**: @",
		"So the final answer is **@**.",
		"#### @",
		"Final answer: @",
		"Therefore the answer is @, as required.",
		"Answer: @ (since 14 + 36 makes this).",
		"So the answer would be @ dollars.",
		"My answer: @",
		"The correct answer is @.",
		"Answer:\n\n@",
		"### Answer\n\n**@**",
		"The final answer is\n\n$$\\boxed{@}$$\n",
		"The answer is @.\n\nThis is because each of the 3 parts adds up.",
		"The answer is therefore $@$ (since $x > 3$).",
		"<answer>@</answer>",
		"<answer>\n@ dollars\n</answer>",
		"The answer is \\(@\\).",
		"Ответ: @",
		"答案：@",
	}
}

// unmarked returns last sentences that state the answer without a mark.
func unmarked() []string {
	return []string{
		"So, in total, there are @ of them after 3 days.",
		"Thus, she will have $@ left at the end of the 2 weeks.",
		"This gives us @.",
		"In conclusion, they need @ more to reach the goal of 500.",
		"**@**",
		"The result: @",
		"So, 7 + 8 + 9 + 3 = @.",
		"Total = @",
	}
}

// endings returns last sentences of solutions to MATH problems, with @ in place of the
// answer.
func endings() []string {
	return []string{
		"Hence, $@$ is the answer.",
		`Thus the answer is $\boxed{@}$, since $n > 0$.`,
		"**Answer:** $@$ (as computed in step $2$)",
		"Final Answer: The final answer is $@$. I hope it is correct.",
		`The final answer is: $\boxed{@}$`,
		"\\boxed{\n@\n}",
		"<answer>@</answer>",
		"<answer>$@$</answer>",
		"Answer: @",
		"The answer is @.",
	}
}

func TestClosings(t *testing.T) {
	t.Parallel()
	const work = "Let's go step by step.\n\nThere are 12 of them at 3 each," +
		" which makes 12 * 3 = 36. Then we add 14.\n\n"
	for _, form := range closings() {
		for _, number := range []string{"50", "1250", "1,250", "7.5"} {
			text := work + strings.Replace(form, "@", number, 1)
			require.True(t, Correct(text, strings.ReplaceAll(number, ",", "")), text)
			require.False(t, Correct(text, "51"), text)
		}
	}
	for _, form := range unmarked() {
		require.Equal(t, Unmarked, NewTask("", "50").Fault(work+strings.Replace(form, "@", "50", 1)), form)
	}
}

func TestEndings(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("EASYRL_TESTDATA")
	if folder == "" {
		t.Skip("EASYRL_TESTDATA is not set")
	}
	data, err := os.ReadFile(filepath.Join(folder, "prompts", "math", "test_math.json"))
	require.NoError(t, err)
	var rows []struct{ Answer string }
	require.NoError(t, json.Unmarshal(data, &rows))
	for i := 0; i < len(rows); i += every() {
		row := rows[i]
		for _, form := range endings() {
			text := "We have $a = 12$ and $b = 3$.\n\nThen $12 \\cdot 3 = 36$.\n\n" +
				strings.Replace(form, "@", row.Answer, 1)
			require.True(t, Correct(text, row.Answer), text)
		}
	}
}
