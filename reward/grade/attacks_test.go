package grade

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// attack is a response that does not give the reference answer, and its twin: an honest
// response to the same question in the same style.
type attack struct {
	Class, Question, Gold, Attack, Twin, Why string
}

func attacks(t testing.TB, path string) (rows []attack) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // only read
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var row attack
		require.NoError(t, json.Unmarshal(lines.Bytes(), &row))
		rows = append(rows, row)
	}
	return rows
}

// At most 1% of the attacks win and at most 1% of their twins lose. In the second table,
// whose wording is further from what models write, at most 4%.
func TestAttacks(t *testing.T) {
	t.Parallel()
	gradeAttacks(t, 1, "attacks.jsonl")
	gradeAttacks(t, 4, "attacks-free-wording.jsonl")
}

// gradeAttacks requires that no more percent of a table are misjudged.
func gradeAttacks(t *testing.T, percent int, file string) {
	t.Helper()
	type count struct{ rows, won, lost int }
	classes, all := map[string]*count{}, count{}
	for i, row := range attacks(t, filepath.Join("testdata", file)) {
		c := classes[row.Class]
		if c == nil {
			c = &count{}
			classes[row.Class] = c
		}
		c.rows++
		all.rows++
		task := NewTask(row.Question, row.Gold)
		if task.Fault(row.Attack) == "" {
			c.won++
			all.won++
			t.Logf("WON %s:%d %s gold %q: %q read as %q (%s)", file, i+1, row.Class, row.Gold, row.Attack, Extract(row.Attack), row.Why)
		}
		if fault := task.Fault(row.Twin); fault != "" {
			c.lost++
			all.lost++
			t.Logf("LOST %s:%d %s gold %q: %q read as %q: %s", file, i+1, row.Class, row.Gold, row.Twin, Extract(row.Twin), fault)
		}
	}
	for name, c := range classes {
		t.Logf("%s: %d rows, %d attacks won, %d twins lost", name, c.rows, c.won, c.lost)
	}
	require.LessOrEqual(t, all.won*100, all.rows*percent)
	require.LessOrEqual(t, all.lost*100, all.rows*percent)
}
