package gym

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/data"
)

// Environments whose own answers or wrong answers grade badly are refused.
func TestCheck(t *testing.T) {
	t.Parallel()
	call := python(t)
	stdout, stderr, err := call("", "check.py")
	require.NoError(t, err, stderr)
	require.Equal(t, "large\nliterals\nrarely\nrepeats\nslow\nsums\n", stdout)
	require.Equal(t, map[string]string{
		"close":     "the answers to other questions score 0.96 on average",
		"code":      "it runs answers as code",
		"contains":  "a list of answers scores 1.00",
		"echo":      "the question scores 1.00",
		"empty":     "no answer scores 1.00",
		"fractions": "its entries are not JSON: Object of type Fraction is not JSON serializable",
		"nan":       "nan scores 1.00",
		"silent":    "its entries have no answer",
		"truthy":    "0 scores 1.00",
		"tuples":    "its own answer scores 0.00",
		"wide":      "the answers to other questions score 1.00 on average",
	}, refusals(stderr))

	stdout, stderr, err = call("", "check.py", "sums", "sudoku")
	require.NoError(t, err, stderr)
	require.Equal(t, "sums\n", stdout)
	require.Equal(t, map[string]string{"sudoku": "it does not build: ValueError: Dataset 'sudoku' not registered"},
		refusals(stderr))
}

// refusals returns the reasons for refused environments by name.
func refusals(stderr string) map[string]string {
	reasons := map[string]string{}
	for line := range strings.Lines(stderr) {
		if name, reason, ok := strings.Cut(strings.TrimSpace(line), " is refused: "); ok {
			reasons[name] = reason
		}
	}
	return reasons
}

// No question is both in training and held out, and an own answer that does not score 1
// is dropped.
func TestMakeData(t *testing.T) {
	t.Parallel()
	call := python(t)
	out := filepath.Join(t.TempDir(), "data")
	stdout, stderr, err := call("", "make_data.py", "--out", out, "--train", "20", "--test", "5", "sums",
		"repeats", "rarely")
	require.NoError(t, err, stderr)
	require.Empty(t, stdout)
	require.Equal(t, "repeats: dropped 12 repeated and 0 refused entries of 25\nrarely: dropped 0 repeated and 1 "+
		"refused entries of 25; its own answer scores 0.50\n", stderr)
	asked := map[string]bool{}
	for name, want := range map[string]map[string]int{"train": {"sums": 20, "repeats": 8, "rarely": 19},
		"test": {"sums": 5, "repeats": 5, "rarely": 5}} {
		prompts, err := data.ReadAll([]string{filepath.Join(out, name+".jsonl")},
			data.Options{PromptKey: "prompt", AnswerKey: "answer", SourceKey: "source"})
		require.NoError(t, err)
		count := map[string]int{}
		for _, p := range prompts[0] {
			count[p.Source]++
			require.False(t, asked[p.Source+p.Text], "%s of %s repeats", p.Text, p.Source)
			asked[p.Source+p.Text] = true
			require.Contains(t, string(p.Answer), `"metadata"`)
		}
		require.Equal(t, want, count, name)
	}

	refused := filepath.Join(t.TempDir(), "data")
	_, stderr, err = call("", "make_data.py", "--out", refused, "sums", "truthy", "empty")
	require.Error(t, err)
	require.Equal(t, "truthy is refused: 0 scores 1.00\nempty is refused: no answer scores 1.00\n", stderr)
	require.NoDirExists(t, refused)
}
