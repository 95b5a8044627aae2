package grade

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/reward/grade/answer"
)

// The words and signs around a value may take it back.
func TestTask(t *testing.T) {
	t.Parallel()
	const eggs = "Ann has 3 boxes of 8 eggs. How many eggs does she have?"
	for _, row := range []struct{ question, gold, response, fault string }{
		{eggs, "24", "The answer is _24_.", ""},
		{eggs, "24", "**Answer:** __24__ eggs.", ""},
		{"Write 9 in binary.", "1001", "The answer is 1001_{2}.", ""},
		{"Write 9 in binary.", "1001", "The answer is 1001_{10}.", answer.OtherForm},
		{"Which organelle makes most ATP?", "mitochondria", "Answer: the “mitochondria”.", ""},
		{eggs, "24", "#### 3 * 8 = 24 eggs", ""},
		{eggs, "24", "#### 24 eggs", ""},
		{eggs, "24", "#### 24 pink elephants", answer.Strange},
		{eggs, "24", "#### maybe 24", answer.Altered},
		{eggs, "24", "It is false that the answer is 24.", Unmarked},
		{eggs, "24", "#### 24 eggs, but that is a guess", answer.Altered},
		{eggs, "24", `\boxed{x \to 24}`, answer.Altered},
		{eggs, "24", "#### × 24 eggs in total", answer.OtherValue},
		{eggs, "24", `\boxed{24?}`, answer.Several},
		{eggs, "24", "#### 3 * 8", answer.Unfinished},
		{eggs, "24", "", Unmarked},
		{"It costs $5. How much are 2?", "10", "#### €10", answer.OtherUnit},
		{"How many minutes does the clock lose?", "24", "#### It gains 24 minutes", answer.Altered},
		{"Who is the knave?", "knave", "#### knave (knight/knave)", answer.Several},
		{"What is the remainder of 20 by 7?", "6", `\boxed{20 \equiv 6 \pmod 7}`, ""},
		{"Print the rows.", "1 0\n0 1", "Here they are.\n\nAnswer:\n1 0\n0 1", ""},
		{"Print the rows.", "1 0\n0 1", "<answer>1 0\n0 1</answer>", ""},
		{"Print the rows.", "1 0\n0 1", "1 0\n0 1\n1 1", answer.OtherValue},
	} {
		require.Equal(t, row.fault, NewTask(row.question, row.gold).Fault(row.response), "%q: %q", row.question,
			row.response)
	}
}

// A choice whose text begins with its own letter is compared once.
func TestChoiceOfItsOwnLetter(t *testing.T) {
	t.Parallel()
	task := NewTask("What is 3 · 4?\nA. 7\nB. B. 12\nC. 34", "B")
	require.Empty(t, task.Fault(`\boxed{B}`))
	require.Equal(t, answer.OtherValue, task.Fault(`\boxed{34}`))
}

// A unit, a scale or a rate that the question does not ask for makes an answer wrong.
func TestUnits(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ question, gold, right, wrong string }{
		{"A car moves at 60 km/h for 3 hours. How far does it go?", "180", "#### 180 km", `\boxed{180\text{ km/h}}`},
		{"The edges of a box are 2, 3 and 4 cm. What is its volume?", "24", "#### 24 cm³", "#### 24 cm²"},
		{"What is 68 °F in degrees Celsius?", "20", "The answer is 20 °C.", "The answer is 20 °F."},
		{"How many pages does she read in 7 days, 15 a day?", "105", "The answer is 105 pages.",
			"The answer is 105 km."},
		{"Write 13 in binary.", "1101", `\boxed{1101_2}`, `\boxed{1101_{10}}`},
		{"Ben is 12. How old is Ann, who is as old as Ben?", "12", "Answer: 12", "Answer: 12 + one year"},
		{"Does it sum to 9?", "9", "Answer: 9 (9.0)", "Answer: 9 (10)"},
	} {
		task := NewTask(row.question, row.gold)
		require.Empty(t, task.Fault(row.right), row.right)
		require.NotEmpty(t, task.Fault(row.wrong), row.wrong)
	}
}
