package grade

import (
	"bytes"
	_ "embed"
	"encoding/json"
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
var completionsFile []byte

func completions(t testing.TB) []completion {
	t.Helper()
	var rows []completion
	for _, line := range bytes.Split(bytes.TrimSpace(completionsFile), []byte("\n")) {
		var row completion
		require.NoError(t, json.Unmarshal(line, &row))
		rows = append(rows, row)
	}
	return rows
}

func TestCompletions(t *testing.T) {
	t.Parallel()
	rows := completions(t)
	require.GreaterOrEqual(t, len(rows), 450)
	for _, row := range rows {
		if got := Correct(row.Text, row.Gold); got != row.Want {
			t.Errorf("%s %q (%s): %v, expected %v\n%s\nread as %q", row.Set, row.Gold, row.Style, got, row.Want, row.Text, Extract(row.Text))
		}
	}
}

func TestExtract(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"<think>5", nil},
		{"<think>5</think>", nil},
		{`\boxed{\frac{1}{2}}`, []string{`\frac{1}{2}`}},
		{`\boxed{1}, then \boxed{2}`, []string{"2"}},
		{`\boxed{1} and \boxed{2}`, []string{"1 , 2"}},
		{`\boxed{1}. Also \boxed{2`, []string{"1"}},
		{`so \boxed{2`, nil},
		{`\fbox{7}`, []string{"7"}},
		{`$\boxed 7$`, []string{"7"}},
	} {
		require.Equal(t, row.want, Extract(row.text), row.text)
	}
}
