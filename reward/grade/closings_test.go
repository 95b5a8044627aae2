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
// answer. Most contain another number too.
func closings() []string {
	return []string{
		"Therefore, the answer is @.",
		"So, in total, there are @ of them after 3 days.",
		"Thus, she will have $@ left at the end of the 2 weeks.",
		"Hence, the final count comes out to @.",
		`\boxed{@}`,
		"The total is therefore @ units.",
		"@ is the answer.",
		"@ is the answer",
		"So we give @ as our final answer",
		"This gives us @.",
		"We get @ as our final result.",
		"So @ it is.",
		"In conclusion, they need @ more to reach the goal of 500.",
		"Answer: @.",
		"**Answer**: @",
		"**@**",
		"So the final answer is **@**.",
		"Thus, the required value is $ @ $.",
		"The result: @",
		"Therefore, he pays @ dollars for 4 tickets and 2 drinks.",
		"He pays @ dollars for the 4 tickets.",
		"It takes @ minutes to walk 3 miles.",
		"At this rate, it will take @ hours.",
		"By the end of week 4, there are @.",
		"After 5 years the tree is @ feet tall.",
		"Each of the 4 people gets @.",
		"@ people can ride at once in the 3 buses.",
		"Out of 500 students, @ passed.",
		"The two of them have @ together.",
		"All 3 of them together weigh @ pounds.",
		"Their combined age is @.",
		"So that's @ total!",
		"This means that @ apples remain in the 2 baskets.",
		"The number of apples that remain is @, so we are done.",
		"#### @",
		"Final answer: @ (see step 3).",
		"Therefore the answer is @, as required.",
		"Thus, John spends @ dollars more than Mary, who spends 10 dollars.",
		"We conclude that the value is equal to @.",
		"Hence there are exactly @ such numbers.",
		"So the store sold @ items on Monday and Tuesday.",
		"Consequently, the price per item equals @ dollars.",
		"So they will need @ buses to carry all 120 students.",
		"Total = @",
		"Total: @ dollars",
		"= @",
		"So, 7 + 8 + 9 + 3 = @.",
		"The area is @ square meters.",
		"He is @ years old now, and will be older in 5 years.",
		"@ - this is the final answer.",
		"The profit comes to @ dollars, or about 20% of the cost.",
		"The answer is @.\n\nThis is because each of the 3 parts adds up.",
		"The answer is therefore $@$ (since $x > 3$).",
		"Therefore, Emma needs to save @ dollars each week for 12 weeks.",
		"So Mark has to work @ hours at $15 an hour.",
		"So the number of red marbles in the 3 bags is @.",
		"Thus the cost for all 6 people is $@.",
		"That leaves @ for the remaining 3 days.",
		"That leaves him with @ cookies.",
		"So there will be @ people at the party on day 3.",
		"Therefore, 3 dozen eggs cost @ dollars.",
		"3 dozen eggs cost @ dollars.",
		"The 4 friends paid @ dollars altogether.",
		"This is @ more than last year's 20.",
		"Hence, @.",
		"Therefore: @",
		"So the answer would be @ dollars.",
		"My answer: @",
		"The correct answer is @.",
		"Answer:\n\n@",
		"**Final Answer:** The total is @ dollars.",
		"The final answer is\n\n$$\\boxed{@}$$\n",
		"Therefore, the minimum number is $@$.",
		"$x = @$",
		"So x = @.",
		"The train covers @ miles in the first 3 hours.",
		"Her score on the 4th test must be @.",
		"She has to score @ on the 4th test.",
		"That's @ per person for 4 people.",
		"Over 30 days, that adds up to @.",
		"In 30 days, he drinks @ cups.",
		"For 30 days, he needs @ cups.",
		"With a 20% discount, the price is @ dollars.",
		"With the 20% discount she pays @ dollars.",
		"If each box holds 6, they need @ boxes.",
		"Since each box holds 6, they need @ boxes.",
		"Because there are 12 months, the yearly cost is @.",
		"The yearly cost for 12 months is @.",
		"Adding the 5 from before, we get @.",
		"Adding 5 to this gives @.",
		"Subtracting 5 leaves @.",
		"Dividing by 2 yields @.",
		"Multiplying by 3, we find @.",
		"@ apples are left for 2 people.",
		"@ of the 500 seats are empty.",
		"A total of @ seats are empty in the 3 rows.",
		"The total number of legs is @ (4 per table).",
	}
}

// endings returns last sentences of solutions to MATH problems, with @ in place of the
// answer.
func endings() []string {
	return []string{
		"Hence, $@$ is the answer.",
		"Therefore, the value is $@$, and we are done.",
		"We conclude that the result is\n$$= @.$$",
		`Thus the answer is $\boxed{@}$, since $n > 0$.`,
		"**Answer:** $@$ (as computed in step $2$)",
		"Final Answer: The final answer is $@$. I hope it is correct.",
		`The final answer is: $\boxed{@}$`,
		"\\boxed{\n@\n}",
		"So, the final result is:\n\n**$@$**",
		"<answer>@</answer>",
		"<answer>$@$</answer>",
		"Answer: @",
		"The answer is @.",
		"\\begin{align*}\nS &= T \\\\\n&= @.\n\\end{align*}",
		`The solution is \(@\).`,
	}
}

func TestClosings(t *testing.T) {
	t.Parallel()
	const work = "Let's go step by step.\n\nThere are 12 of them at 3 each, which makes 12 * 3 = 36. Then we add 14.\n\n"
	for _, form := range closings() {
		for _, number := range []string{"50", "1250", "1,250", "7.5"} {
			text := work + strings.Replace(form, "@", number, 1)
			require.True(t, Correct(text, strings.ReplaceAll(number, ",", "")), "%q, read as %q", text, Extract(text))
			require.False(t, Correct(text, "51"), text)
		}
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
	for i := 0; i < len(rows); i += every {
		row := rows[i]
		for _, form := range endings() {
			text := "We have $a = 12$ and $b = 3$.\n\nThen $12 \\cdot 3 = 36$.\n\n" + strings.Replace(form, "@", row.Answer, 1)
			require.True(t, Correct(text, row.Answer), "%q, read as %q", text, Extract(text))
		}
	}
}
