package page

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func writeRollouts(t *testing.T, dir string, step int, lines ...string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "rollouts"), 0o755))
	path := filepath.Join(dir, "rollouts", fmt.Sprintf("step-%06d.jsonl", step))
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
}

func groupLine(step int, id, text string, reward float64) string {
	return fmt.Sprintf(
		`{"step":%d,"prompt_id":%q,"prompt":"1+1=","answer":"2","responses":[{"text":%q,"ids":[1,2,3],`+
			`"reward":%v,"finish":"stop"}]}`, step, id, text, reward)
}

func TestAnswersToSamePrompt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeRollouts(t, dir, 1, groupLine(1, "a", "it is 3", 0), groupLine(1, "b", "", 0))
	writeRollouts(t, dir, 2, groupLine(2, "a", "it is 4", 0))
	writeRollouts(t, dir, 3, groupLine(3, "c", "x", 0), groupLine(3, "a", "it is 2", 1))
	writeRollouts(t, dir, 4, strings.Repeat("x", 100), groupLine(4, "c", "y", .5))
	got, err := readAnswers(dir)
	require.NoError(t, err)
	require.Len(t, got.Pairs, 1)
	p := got.Pairs[0]
	require.Equal(t, []int{1, 3}, []int{p.First.Step, p.Last.Step}, "the latest is shown")
	require.Equal(t, []edit{{Text: "it is "}, {Text: "3", Gone: true}, {Text: "2", Come: true}}, p.Diff)
	require.InDelta(t, 1, p.Last.Mean(), 0)
	require.Len(t, got.Charts, 2)
	require.Contains(t, got.Charts[0], "step 1: 2 values from 3 to 3")
	require.Contains(t, got.Charts[1], "step 2: 1 values from 0 to 0")
	require.Len(t, got.Samples, 1, "the last file does not start with a group")
}

func TestAnswersToHeldOutPrompts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeRollouts(t, dir, 1, groupLine(1, "a", "x", 0))
	writeRollouts(t, dir, 2, groupLine(2, "a", "y", 0))
	require.NoError(t, os.Mkdir(filepath.Join(dir, HeldOut), 0o755))
	for step, text := range map[int]string{0: "4", 10: "3", 20: "2"} {
		line := fmt.Sprintf(
			`{"step":%d,"set":"t","prompt_id":"h","prompt":"1+1=","responses":[{"text":%q,"reward":1,"tokens":7}]}`,
			step, text)
		require.NoError(t, os.WriteFile(filepath.Join(dir, HeldOut, fmt.Sprintf("step-%06d.jsonl", step)),
			[]byte(line), 0o644))
	}
	got, err := readAnswers(dir)
	require.NoError(t, err)
	require.Len(t, got.Pairs, 1)
	require.Equal(t, []edit{{Text: "4", Gone: true}, {Text: "2", Come: true}}, got.Pairs[0].Diff)
	require.Equal(t, 7, got.Pairs[0].Last.Responses[0].Length())
}

func TestAnswersWithoutPairs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	got, err := readAnswers(dir)
	require.NoError(t, err)
	require.Empty(t, got)
	writeRollouts(t, dir, 1, `{"step":1}`)
	writeRollouts(t, dir, 2, `{"step":2,"responses":[]}`)
	got, err = readAnswers(dir)
	require.NoError(t, err)
	require.Empty(t, got.Pairs)
	require.Len(t, got.Samples, 2)
}

func TestEachLineBudget(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x")
	require.NoError(t, os.WriteFile(path, []byte("one\ntwo\nthree\n"), 0o644))
	budget, lines := int64(6), []string(nil)
	require.NoError(t, eachLine(path, &budget, func(line []byte) { lines = append(lines, string(line)) }))
	require.Equal(t, []string{"one", "tw"}, lines)
	require.Zero(t, budget)
}

func TestPromptID(t *testing.T) {
	t.Parallel()
	require.Equal(t, `a"b`, promptID([]byte(`{"step":1,"prompt_id":"a\"b","prompt":"x"}`)))
	for _, line := range []string{"", `{"prompt_id":7}`, `{"prompt":"x"}`, `{"prompt_id":`} {
		require.Empty(t, promptID([]byte(line)))
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	require.Empty(t, diff("", ""))
	require.Equal(t, []edit{{Text: "same", Gone: false}}, diff("same", "same"))
	require.Equal(t, []edit{{Text: "new", Come: true}}, diff("", "new"))
	require.Equal(t, []edit{{Text: "old", Gone: true}}, diff("old", ""))
	require.Equal(t, []edit{{Text: "5+9"}, {Text: "+0", Gone: true}, {Text: "="}, {Text: "14", Gone: true},
		{Text: "15", Come: true}, {Text: " é"}},
		diff("5+9+0=14 é", "5+9=15 é"))
}

func FuzzDiff(f *testing.F) {
	f.Add("a b c", "a c d")
	f.Add("\xff é", "é\xfe")
	f.Fuzz(func(t *testing.T, a, b string) {
		a, b = shorten(a), shorten(b)
		var old, now strings.Builder
		for _, e := range diff(a, b) {
			require.False(t, e.Gone && e.Come)
			if !e.Come {
				old.WriteString(e.Text)
			}
			if !e.Gone {
				now.WriteString(e.Text)
			}
		}
		require.Equal(t, a, old.String())
		require.Equal(t, b, now.String())
	})
}
