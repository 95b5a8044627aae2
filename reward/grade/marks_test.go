package grade

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Marks in the styles of many models, and the ways to put more or less into one than an answer: at
// most 0.5% of the wrong ones win, and at most 1% of the right ones lose.
func TestMarks(t *testing.T) {
	t.Parallel()
	var wrong, won, right, lost int
	for i, row := range lines[struct {
		Question, Gold, Response, Why string
		Right                         bool
	}](t, "testdata/marks.jsonl") {
		fault := NewTask(row.Question, row.Gold).Fault(row.Response)
		switch {
		case row.Right:
			right++
		default:
			wrong++
		}
		if row.Right == (fault == "") {
			continue
		}
		t.Logf("marks.jsonl:%d gold %q: %q: %q (%s)", i+1, row.Gold, row.Response, fault, row.Why)
		if row.Right {
			lost++
		} else {
			won++
		}
	}
	require.LessOrEqual(t, won*200, wrong)
	require.LessOrEqual(t, lost*100, right)
}

// Without a mark, the last number of the response counts if that is asked for.
func TestFaultAny(t *testing.T) {
	t.Parallel()
	const question = "How many eggs does she have?"
	for _, row := range []struct{ name, gold, response, fault string }{
		{"prose", "24", "She has 3 * 8 = 24 eggs.", ""},
		{"last number", "24", "She has 24 eggs in 3 boxes.", "another value"},
		{"separators", "1234.5", "So it is 1,234.5 in all.", ""},
		{"negative", "-3", "It is -3.", ""},
		{"a hyphen is no sign", "3", "It is 2-3", ""},
		{"mark first", "24", `\boxed{24}, in 3 steps`, ""},
		{"wrong mark", "24", `\boxed{25}, not 24`, "another value"},
		{"mark that is cut off", "24", `So \boxed{24`, ""},
		{"no number", "24", "I do not know.", Unmarked},
		{"unfinished reasoning", "24", "<think>24", EndlessText},
		{"reasoning", "24", "<think>23</think>It is 24.", ""},
	} {
		task := NewTask(question, row.gold)
		require.Equal(t, row.fault, task.FaultAny(row.response), row.name)
		if row.fault == "" {
			require.Equal(t, Canonical(row.gold), AnsweredAny(row.response), row.name)
		}
	}
	require.Equal(t, Unmarked, NewTask(question, "24").Fault("She has 24 eggs."))
	require.Empty(t, AnsweredAny("<think>5"))
}
