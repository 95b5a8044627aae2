package run

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// recordSteps writes the metrics of a run and the named files of its folder.
func recordSteps(t *testing.T, lines []report.Values, files ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	var text []byte
	for _, values := range lines {
		text = append(text, values.Line()...)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, report.MetricsFile), text, 0o644))
	for _, name := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, nil, 0o644))
	}
	return dir
}

func TestLines(t *testing.T) {
	t.Parallel()
	scored := []report.Values{
		{"step": 0, "eval/b/mean@4": .25, "eval/b/pass@4": 1},
		{"step": 1, "reward/mean": .5, "actor/loss": 1},
		{"step": 2, "reward/mean": .75, "actor/loss": 2, "eval/b/mean@4": .5, "eval/a/mean@4": .125},
		{"step": 3, "reward/mean": .9, "eval/b/mean@4": .375},
	}
	dir := recordSteps(t, scored, "checkpoints/step-000003/x", "checkpoints/step-000002/x", "report.html")
	root := filepath.Join(dir, "checkpoints")
	require.NoError(t, os.Symlink("step-000002", filepath.Join(root, "best")))
	r := summary{dir: dir, last: 3, total: 3, took: 65 * time.Second}
	require.Equal(t, []string{
		"3 steps in 1m05s; held-out a 0.125; held-out b 0.250 → 0.375",
		"model:  " + root + "/step-000003 (best: " + root + "/best, step-000002)",
		"report: " + dir + "/report.html",
	}, r.lines())

	r.first, r.total = 1, 9
	require.True(t, strings.HasPrefix(r.lines()[0], "3 of 9 steps, from step 2 on in 1m05s; held-out a"), r.lines()[0])
	r.first, r.last, r.total = 3, 3, 3
	require.True(t, strings.HasPrefix(r.lines()[0], "3 steps done before; "), r.lines()[0])

	r = summary{dir: recordSteps(t, scored[1:2]), last: 1, total: 1, took: time.Second}
	require.Equal(t, []string{"1 step in 1s; reward 0.500"}, r.lines(), "neither checkpoint nor report")
	r.dir = recordSteps(t, []report.Values{{"step": 1, "actor/loss": 2}, {"step": 2, "actor/loss": 1}})
	require.Equal(t, []string{"1 step in 1s; loss 2.000 → 1.000"}, r.lines())
	r.dir = recordSteps(t, []report.Values{{"step": 1, "actor/loss": 2},
		{"step": 2, "actor/loss": 1, "eval/x/loss": 3}})
	require.Equal(t, []string{"1 step in 1s; held-out loss on x 3.000"}, r.lines())
	r.dir, r.last = t.TempDir(), 0
	require.Equal(t, []string{"0 of 1 steps in 1s"}, r.lines())
}

func TestLinesNameTheBest(t *testing.T) {
	t.Parallel()
	dir := recordSteps(t, nil, "checkpoints/step-000003/x")
	require.NoError(t, os.Symlink("step-000003", filepath.Join(dir, "checkpoints", "best")))
	require.Equal(t, "model:  "+dir+"/checkpoints/step-000003, the best",
		summary{dir: dir, last: 3, total: 3}.lines()[1])
}

// A shell gives back the words.
func TestCommand(t *testing.T) {
	t.Parallel()
	require.Equal(t, "easyrl train runs/a.toml -set run.steps=10 -resume",
		Command("easyrl", "train", "runs/a.toml", "-set", "run.steps=10", "-resume"))
	require.Equal(t, `easyrl train 'my run.toml' -set 'data.train=["a", '\''b'\'']'`,
		Command("easyrl", "train", "my run.toml", "-set", `data.train=["a", 'b']`))
	words := []string{"", " ", "a b", "it's", `"`, `\`, "$HOME", "`id`", "*", "~", "~/x", "#c", "a;b", "a&b", "!x",
		"{a,b}", "[a]", "a\nb", "é", "=x", "x=y", "%1", "(a)", "<a>", "|", "?", "-n", "a'b'c", "\t"}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh")
	}
	out, err := exec.Command(sh, "-c", `printf '%s\000' `+Command(words...)).Output()
	require.NoError(t, err)
	require.Equal(t, words, strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"))
}
