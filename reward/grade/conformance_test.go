package grade

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/soak"
	"github.com/easyrl/easyrl/reward/grade/answer"
)

// table reads a JSON lines file from the test data.
func table[T any](t *testing.T, parts ...string) []T {
	t.Helper()
	folder := os.Getenv("EASYRL_TESTDATA")
	if folder == "" {
		t.Skip("EASYRL_TESTDATA is not set")
	}
	data, err := os.ReadFile(filepath.Join(append([]string{folder}, parts...)...))
	require.NoError(t, err)
	var rows []T
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var row T
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		rows = append(rows, row)
	}
	return rows
}

// every returns the stride through the large tables, whose rows are much alike.
func every() int {
	switch {
	case soak.Race:
		return 25
	case soak.Long():
		return 1
	}
	return 4
}

// Rows of Math-Verify that we judge differently, by line:
//
//	16, 63           a sum and a product of matrices are left to evaluate
//	17               it does not treat \( 9 \) with line ends inside as mathematics
//	50, 51, 53, 58   the members of a chain of equations differ
//	130              it treats 1 - 1/e and 1 + 1/e as equal
//
// Rows 8, 9, 45, 47, 61, 62 and 72 state their answer in prose, without a mark.
func TestMathVerify(t *testing.T) {
	t.Parallel()
	other := []int{8, 9, 16, 17, 45, 47, 50, 51, 53, 58, 61, 62, 63, 72, 130}
	rows := table[struct {
		Gold, Pred string
		Expected   bool
	}](t, "conformance", "math_equiv_math_verify.jsonl")
	for i, row := range rows {
		want := row.Expected != slices.Contains(other, i+1)
		require.Equal(t, want, Correct(row.Pred, row.Gold), "line %d: %q, %q", i+1, row.Gold, row.Pred)
	}
}

// Rows of Hendrycks' MATH that we judge differently: 2 and 9 are lists of solutions in
// another order.
func TestHendrycks(t *testing.T) {
	t.Parallel()
	other := []int{2, 9}
	rows := table[struct {
		A, B     string
		Expected bool
	}](t, "conformance", "math_equiv_hendrycks.jsonl")
	for i, row := range rows {
		want := row.Expected != slices.Contains(other, i+1)
		require.Equal(t, want, answer.Equal(row.A, row.B), "line %d: %q, %q", i+1, row.A, row.B)
	}
}

// renderings returns ways in which a model may write an answer.
func renderings() []string {
	return []string{
		"%s", "$%s$", `\boxed{%s}`, `We find that the answer is $\boxed{%s}$.`,
		"It follows.\n\n\\[\n\\boxed{%s}\n\\]\n",
		"Therefore, the answer is $%s$.", `**Final Answer:** \(%s\)`, "<answer>%s</answer>",

		"<think>It may be $17$.</think>\n\n**Answer**\n\n$$%s$$",
	}
}

// alike reports whether neighbouring MATH answers differ only in a unit or a name.
func alike(a, b string) bool {
	digits := regexp.MustCompile(`\d+`)
	return slices.Equal(digits.FindAllString(a, -1), digits.FindAllString(b, -1))
}

// slips returns answers that differ from gold like common mistakes: in a digit or in
// the first sign.
func slips(gold string) []string {
	var list []string
	value, _, _ := strings.Cut(gold, `\mbox`) // units are optional
	for i := range value {
		if gold[i] >= '0' && gold[i] <= '9' {
			list = append(list, gold[:i]+string('0'+(gold[i]-'0'+1)%10)+gold[i+1:])
		}
	}
	if first := gold[0]; first >= '1' && first <= '9' {
		list = append(list, "-"+gold)
	}
	return list
}

func TestMATHAnswers(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("EASYRL_TESTDATA")
	if folder == "" {
		t.Skip("EASYRL_TESTDATA is not set")
	}
	var golds []string
	for _, file := range []string{"test_math.json", "train_math.json"} {
		data, err := os.ReadFile(filepath.Join(folder, "prompts", "math", file))
		require.NoError(t, err)
		var rows []struct{ Answer string }
		require.NoError(t, json.Unmarshal(data, &rows))
		for _, row := range rows {
			if strings.TrimSpace(row.Answer) != "" {
				golds = append(golds, row.Answer)
			}
		}
	}
	for i := 0; i < len(golds); i += every() {
		gold := golds[i]
		for _, form := range renderings() {
			text := strings.Replace(form, "%s", gold, 1)
			require.True(t, Correct(text, gold), "%q in %q", gold, text)
		}
		if next := golds[(i+1)%len(golds)]; !alike(gold, next) {
			require.False(t, answer.Equal(gold, next), "%q, %q", gold, next)
			require.False(t, Correct(`So it is $\boxed{`+next+`}$.`, gold), "%q, %q", gold, next)
		}
		for _, slip := range slips(gold) {
			require.False(t, answer.Equal(gold, slip), "%q, %q", gold, slip)
			require.False(t, Correct(`So it is $\boxed{`+slip+`}$.`, gold), "%q, %q", gold, slip)
		}
	}
}

func TestGSM8KAnswers(t *testing.T) {
	t.Parallel()
	type row struct{ Question, Answer string }
	rows := append(table[row](t, "prompts", "gsm8k", "test.jsonl"), table[row](t, "prompts", "gsm8k", "train.jsonl")...)
	notes := regexp.MustCompile(`<<[^>]*>>`)
	for i := 0; i < len(rows); i += every() {
		row := rows[i]
		text, gold, _ := strings.Cut(row.Answer, "####")
		gold = strings.TrimSpace(gold)
		for _, form := range append(renderings(), "#### %s") {
			require.True(t, Correct(strings.Replace(form, "%s", gold, 1), row.Answer), "%q in %q", gold, form)
		}
		_, next, _ := strings.Cut(rows[(i+1)%len(rows)].Answer, "####")
		require.Equal(t, strings.TrimSpace(next) == gold, Correct(row.Answer, next), "%q, %q", gold, next)
		require.Empty(t, NewTask(row.Question, row.Answer).Fault(row.Answer), row.Answer)
		if text = notes.ReplaceAllString(text, ""); !strings.Contains(strings.ToLower(text), "answer") {
			require.NotEmpty(t, NewTask(row.Question, gold).Fault(text), "a solution without its mark")
		}
	}
}
