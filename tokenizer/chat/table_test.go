package chat

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// row is a row of a conformance table.
type row struct {
	Name     string
	Template string
	Context  json.RawMessage
	Data     json.RawMessage
	Expected *string
	Jinja2   *string `json:"expected_jinja2"`
	Error    string  `json:"jinja2_error"`
}

func (r row) variables() json.RawMessage {
	if r.Context != nil {
		return r.Context
	}
	return r.Data
}

// wrong lists rows whose expectation differs from Jinja2's result, and why.
func wrong() map[string]string {
	return map[string]string{
		"MadeAgents/Hammer2.1": "prints a list of dicts as JSON, where Python's str gives its repr",
	}
}

func readRows(t *testing.T, path string) []row {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	var rows []row
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var r row
		require.NoError(t, json.Unmarshal(lines.Bytes(), &r))
		rows = append(rows, r)
	}
	require.NoError(t, lines.Err())
	require.NotEmpty(t, rows)
	return rows
}

// when returns the time of strftime_now in the tables.
func when() time.Time { return time.Date(2025, 7, 10, 12, 34, 56, 0, time.UTC) }

func renderRow(r row) (string, error) {
	tmpl, err := Parse(r.Template, nil)
	if err != nil {
		return "", err
	}
	return tmpl.RenderVariables(r.variables(), when())
}

func checkRows(t *testing.T, path string) {
	for _, r := range readRows(t, path) {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			got, err := renderRow(r)
			if r.Error != "" {
				var e *Error
				require.ErrorAs(t, err, &e, "rendered %q", got)
				require.Equal(t, r.Error, e.Kind, e.Message)
				return
			}
			want := r.Expected
			if r.Jinja2 != nil {
				want = r.Jinja2
			}
			require.NoError(t, err)
			require.NotNil(t, want)
			if why := wrong()[r.Name]; why != "" {
				require.NotEqual(t, *want, got, why)
				return
			}
			require.Equal(t, *want, got)
		})
	}
}

func TestConformanceTables(t *testing.T) {
	t.Parallel()
	root := os.Getenv("EASYRL_TESTDATA")
	if root == "" {
		t.Skip("EASYRL_TESTDATA is not set")
	}
	for _, name := range []string{"jinja_unit", "chat_template_e2e", "chat_template_llamacpp"} {
		path := filepath.Join(root, "conformance", name+".jsonl")
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			t.Skipf("no %s", path)
		}
		t.Run(name, func(t *testing.T) { checkRows(t, path) })
	}
}
