package chat

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// goldenRow is a template and Jinja2's result for it, written by testdata/golden.py.
type goldenRow struct {
	Context  json.RawMessage
	Template string
	Expected string
	Error    string
	Message  string
	Line     int
}

func readGolden(t testing.TB) (context json.RawMessage, rows []goldenRow) {
	t.Helper()
	file, err := os.Open("testdata/golden.jsonl")
	require.NoError(t, err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var r goldenRow
		require.NoError(t, json.Unmarshal(lines.Bytes(), &r))
		if r.Context != nil {
			context = r.Context
			continue
		}
		rows = append(rows, r)
	}
	require.NoError(t, lines.Err())
	return context, rows
}

func TestAgainstJinja2(t *testing.T) {
	t.Parallel()
	context, rows := readGolden(t)
	require.NotEmpty(t, rows)
	for i, r := range rows {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			got, err := renderRow(row{Template: r.Template, Context: context})
			if r.Error == "" {
				require.NoError(t, err, r.Template)
				require.Equal(t, r.Expected, got, r.Template)
				return
			}
			var e *Error
			require.Truef(t, errors.As(err, &e), "%s: rendered %q, expected %s: %s", r.Template, got,
				r.Error, r.Message)
			require.Equal(t, r.Error, e.Kind, "%s: %s, expected %s", r.Template, e.Message, r.Message)
			if r.Line > 0 && r.Error != "SyntaxError" { // of the Python code that Jinja2 makes
				require.Equal(t, r.Line, e.Line, r.Template)
			}
		})
	}
}
