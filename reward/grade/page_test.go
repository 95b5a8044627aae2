package grade

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pageRows returns the cells of the tables of docs/grading.md with n columns, as lists of their
// code spans, below a header that begins with name.
func pageRows(t *testing.T, name string, n int) (rows [][][]string, text []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/grading.md")
	require.NoError(t, err)
	code := regexp.MustCompile("`([^`]+)`")
	inside := false
	for line := range strings.Lines(string(page)) {
		line = strings.ReplaceAll(strings.TrimSpace(line), `\|`, "\x00")
		cells := strings.Split(strings.Trim(line, "|"), "|")
		switch {
		case !strings.HasPrefix(line, "|"):
			inside = false
		case strings.HasPrefix(line, "| "+name+" |"):
			inside = true
		case inside && len(cells) == n && !strings.HasPrefix(line, "|--"):
			row := make([][]string, n)
			for i, cell := range cells {
				for _, m := range code.FindAllStringSubmatch(cell, -1) {
					row[i] = append(row[i], strings.ReplaceAll(m[1], "\x00", "|"))
				}
			}
			rows, text = append(rows, row), append(text, strings.TrimSpace(cells[0]))
		}
	}
	require.NotEmpty(t, rows, name)
	return rows, text
}

// The page about grading is true line by line.
func TestPage(t *testing.T) {
	t.Parallel()
	rows, _ := pageRows(t, "response", 2)
	for _, row := range rows {
		got, ok := Extract(row[0][0])
		require.Equal(t, len(row[1]) > 0, ok, row[0][0])
		if ok {
			require.Equal(t, row[1][0], got, row[0][0])
		}
	}
	rows, questions := pageRows(t, "question", 4)
	for i, row := range rows {
		require.NotEmpty(t, row[2], questions[i])
		require.NotEmpty(t, row[3], questions[i])
		task := NewTask(questions[i], row[1][0])
		for _, content := range row[2] {
			require.Empty(t, task.Fault(`\boxed{`+content+`}`), "%s %s: %s", questions[i], row[1][0], content)
		}
		for _, content := range row[3] {
			require.NotEmpty(t, task.Fault(`\boxed{`+content+`}`), "%s %s: %s", questions[i], row[1][0], content)
		}
	}
	known := map[string]bool{}
	rows, _ = pageRows(t, "reason", 2)
	for _, row := range rows {
		for _, reason := range row[0] {
			known[reason] = true
		}
	}
	for _, row := range lines[struct{ Question, Gold, Response string }](t, "testdata/marks.jsonl") {
		fault := NewTask(row.Question, row.Gold).Fault(row.Response)
		require.True(t, fault == "" || known[fault], "the page lacks the reason %q", fault)
	}
}
