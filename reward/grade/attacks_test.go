package grade

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// attack is a response that does not give the reference answer, and its twin: an honest
// response to the same question in the same style.
type attack struct {
	Class, Question, Gold, Attack, Twin, Why string
}

func lines[T any](t testing.TB, path string) (rows []T) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // only read
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		var row T
		require.NoError(t, json.Unmarshal(scan.Bytes(), &row))
		rows = append(rows, row)
	}
	return rows
}

func attacks(t testing.TB, path string) []attack { return lines[attack](t, path) }

// isMarked reports whether a response has a mark other than a phrase.
func isMarked(response string) bool {
	for _, mark := range []string{`\boxed`, `\fbox`, "####", "<answer>"} {
		if strings.Contains(response, mark) {
			return true
		}
	}
	return false
}

// Of the marked rows, at most 1% of the attacks win and at most 1% of their twins lose. Attacks
// without any mark win nothing.
func TestAttacks(t *testing.T) {
	t.Parallel()
	gradeAttacks(t, "attacks.jsonl")
	gradeAttacks(t, "attacks-free-wording.jsonl")
}

func gradeAttacks(t *testing.T, file string) {
	t.Helper()
	var attacked, won, twins, lost, prose int
	for i, row := range attacks(t, filepath.Join("testdata", file)) {
		task := NewTask(row.Question, row.Gold)
		wins := task.Fault(row.Attack) == ""
		switch {
		case isMarked(row.Attack):
			attacked++
			if wins {
				won++
				t.Logf("WON %s:%d %s gold %q: %q (%s)", file, i+1, row.Class, row.Gold, row.Attack, row.Why)
			}
		case wins && !strings.Contains(strings.ToLower(row.Attack), "answer"):
			prose++
			t.Logf("WON in prose %s:%d %s gold %q: %q (%s)", file, i+1, row.Class, row.Gold, row.Attack, row.Why)
		}
		if !isMarked(row.Twin) {
			continue
		}
		twins++
		if fault := task.Fault(row.Twin); fault != "" {
			lost++
			t.Logf("LOST %s:%d %s gold %q: %q: %s", file, i+1, row.Class, row.Gold, row.Twin, fault)
		}
	}
	t.Logf("%s: %d of %d attacks won, %d of %d twins lost, %d attacks in prose won", file, won, attacked, lost, twins,
		prose)
	require.LessOrEqual(t, won*100, attacked)
	require.LessOrEqual(t, lost*100, twins)
	require.Zero(t, prose)
}
