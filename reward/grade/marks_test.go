package grade

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Marks in the styles of many models, and the ways to put more or less into one than an answer.
func TestMarks(t *testing.T) {
	t.Parallel()
	for i, row := range lines[struct {
		Question, Gold, Response, Why string
		Right                         bool
	}](t, "testdata/marks.jsonl") {
		fault := NewTask(row.Question, row.Gold).Fault(row.Response)
		require.Equal(t, row.Right, fault == "", "marks.jsonl:%d gold %q: %q: %s (%s)", i+1, row.Gold, row.Response, fault, row.Why)
	}
}
