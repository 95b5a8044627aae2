package grade

import (
	_ "embed"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// completion is a response in the style of a model to a question of GSM8K or MATH. Want
// is whether a careful reader accepts it.
type completion struct {
	Set, Gold, Style, Text string
	Want                   bool
}

//go:embed testdata/completions.jsonl
var completionsFile string

func completions(t testing.TB) (rows []completion) {
	t.Helper()
	for line := range strings.Lines(completionsFile) {
		var row completion
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		rows = append(rows, row)
	}
	return rows
}

// A response with a mark is judged like a careful reader does. One without is never right, except
// for later prose that takes its phrase back.
func TestCompletions(t *testing.T) {
	t.Parallel()
	takenBack := map[string]bool{"corrected to wrong": true, "hedge": true}
	marked, phrased, found := 0, 0, 0
	for _, row := range completions(t) {
		got := Correct(row.Text, row.Gold)
		if isMarked(row.Text) {
			marked++
			require.Equal(t, row.Want, got, "%s %q (%s)\n%s", row.Set, row.Gold, row.Style, row.Text)
			continue
		}
		require.False(t, got && !row.Want && !takenBack[row.Style], "%s %q (%s)\n%s", row.Set, row.Gold, row.Style,
			row.Text)
		if row.Want && strings.Contains(row.Text, "nswer") {
			phrased++
			if got {
				found++
			}
		}
	}
	require.Greater(t, marked, 500)
	require.Greater(t, found*100, phrased*85)
}

func TestExtract(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, text, want string }{
		{"empty", "", ""},
		{"unfinished reasoning", `<think>\boxed{5}`, ""},
		{"mark in the reasoning", `<think>\boxed{5}</think>`, ""},
		{"box", `\boxed{\frac{1}{2}}`, `\frac{1}{2}`},
		{"last box", `\boxed{1}, then \boxed{2}`, "2"},
		{"boxes of one list", `\boxed{1} and \boxed{2}`, "1 , 2"},
		{"unfinished box", `\boxed{1}. Also \boxed{2`, ""},
		{"only an unfinished box", `so \boxed{2`, ""},
		{"unfinished name", `\boxed{1} and so \box`, ""},
		{"fbox", `\fbox{7}`, "7"},
		{"framebox", `\framebox{7}`, "7"},
		{"box without braces", `$\boxed 7$`, "7"},
		{"box in a box", `\boxed{\boxed{7}}`, "7"},
		{"box beside another answer", `\boxed{6, \boxed{7}}`, "6,  , 7"},
		{"no answer in a box", `Write it in \boxed{}. It is \boxed{7}.`, "7"},
		{"hash", "2 + 5 = 7\n#### 7", "7"},
		{"hash within a line", "2 + 5 = 7 #### 7", "7"},
		{"hash still to come", "#### 43\n#### ", ""},
		{"hash as a title", `\boxed{7}` + "\n#### Check of the answer\nIt fits.", "7"},
		{"hash after a box", `\boxed{4}` + "\n#### 5", "5"},
		{"box after a hash", "#### 4\n" + `So it is \boxed{5}.`, "5"},
		{"tag", "<answer>5</answer>", "5"},
		{"tag of another name", "<final_answer>5</final_answer>", "5"},
		{"tag after a hash", "#### 4\n<answer>5</answer>", "5"},
		{"unfinished tag", "<answer>43</answer> hmm <answer>45", ""},
		{"tags of one list", "<answer>4</answer> or <answer>5</answer>", "4 , 5"},
		{"box in a tag", `<answer>Hence \boxed{5}.</answer>`, "5"},
		{"phrase", "Therefore, the answer is 5.", "5"},
		{"phrase and reason", "The answer is 13, because 13 squared is 169.", "13"},
		{"title", "### Final Answer\n\n**58**", "58"},
		{"bold", "**Final Answer:** $5$", "$5$"},
		{"inverted", "So $5$ is the answer.", "$5$"},
		{"JSON", `{"steps": 3, "answer": "35/2"}`, "35/2"},
		{"JSON number", `{"steps": 3, "answer": 88}`, "88"},
		{"other language", "Ответ: 42", "42"},
		{"choice", "Answer: (C) 42", "(C) 42"},
		{"phrase that says nothing", `\boxed{5}. This answer is consistent with the estimate of 4.`, "5"},
		{"phrase that goes on", "The answer is", ""},
		{"denied phrase", "It is false that the answer is 24.", ""},
		{"nothing but an answer", "$x = 5$", "$x = 5$"},
		{"nothing but words", "Wednesday", "Wednesday"},
		{"prose", "So she has 18 eggs in all.", ""},
		{"prose after a mark", `\boxed{5}. No, it is 6.`, "5"},
		{"LaTeX comment", "\\boxed{5}\n% \\boxed{6}", "5"},
		{"HTML comment", `\boxed{5} <!-- \boxed{6} -->`, "5"},
		{"next question", "So 18.\n#### 18\n\nQuestion: Tom has 3 and buys 4. How many?\n#### 7", "18"},
		{"calculator", "#### 2+3=<<2+3=5>>5", "2+3=5"},
	} {
		got, ok := Extract(row.text)
		require.Equal(t, row.want != "", ok, "%s: %q", row.name, got)
		if ok {
			require.Equal(t, row.want, got, row.name)
		}
	}
}

// Other models' reasoning is not the answer.
func TestReasoning(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, text, want string }{
		{"think", "<think>\n\\boxed{44}?\n</think>\n\nThe answer is \\boxed{43}.", "43"},
		{"think opened by the prompt", "17+26=43</think>\n\n\\boxed{43}", "43"},
		{"thought again", `<think>a</think><think>\boxed{43}</think>`, ""},
		{"gpt-oss",
			"<|channel|>analysis<|message|>Maybe 44.<|end|><|start|>assistant<|channel|>final<|message|>43<|return|>",
			"43"},
		{"gpt-oss, no answer",
			`<|channel|>analysis<|message|>\boxed{43}<|end|><|start|>assistant<|channel|>final<|message|>I do ` +
				`not know.`, ""},
		{"gpt-oss, unfinished", `<|channel|>analysis<|message|>We get \boxed{43}`, ""},
		{"gpt-oss, commentary last", `<|channel|>final<|message|>\boxed{43}<|channel|>commentary to=x <|message|>{}`,
			""},
		{"gpt-oss without special tokens", "analysisMaybe 44.assistantfinal43", "43"},
		{"gpt-oss without special tokens, unfinished", `analysisWe get \boxed{43}`, ""},
		{"Kimi", `◁think▷ \boxed{44} ◁/think▷ \boxed{43}`, "43"},
		{"Kimi, no answer", `◁think▷ \boxed{43} ◁/think▷ I do not know.`, ""},
		{"Kimi, unfinished", `◁think▷ \boxed{43}`, ""},
		{"Seed", `<seed:think>maybe 44</seed:think>\boxed{43}`, "43"},
		{"Seed, no answer", `<seed:think>\boxed{43}</seed:think> I do not know.`, ""},
		{"Magistral", `[THINK]\boxed{44}[/THINK]\boxed{43}`, "43"},
		{"Command", `<|START_THINKING|>\boxed{44}<|END_THINKING|><|START_RESPONSE|>\boxed{43}<|END_RESPONSE|>`, "43"},
		{"Sky", `<|begin_of_thought|>\boxed{44}<|end_of_thought|> <|begin_of_solution|>\boxed{43}<|end_of_solution|>`,
			"43"},
		{"turn that ends", `\boxed{43}<|im_end|><think>no</think>\boxed{44}`, "43"},
	} {
		got, ok := Extract(row.text)
		require.Equal(t, row.want != "", ok, "%s: %q", row.name, got)
		if ok {
			require.Equal(t, row.want, got, row.name)
		}
	}
}
