//go:build cgo && !race

// The tutorial builds its own commands, without the race detector. Without cgo
// its model would train for hours.

package docs

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/soak"
	"github.com/easyrl/easyrl/report"
)

// TestTutorial follows the tutorial in a copy of the repository. It saves each
// file under the name given before it, runs each command block, and requires
// every line of an output block in the output of the preceding commands, apart
// from numbers. Without EASYRL_SOAK the runs have too few steps to learn.
func TestTutorial(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for a minute")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	dir := t.TempDir()
	copyTree(t, dir)
	said := ""
	page := read(t, "docs/tutorial.md")
	if !soak.Long() {
		page = shortened(t, page)
	}
	all, err := Blocks(page)
	require.NoError(t, err)
	for _, b := range all {
		switch {
		case b.File != "":
			path := filepath.Join(dir, filepath.FromSlash(b.File))
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(b.Text), 0o644))
		case b.Language == "sh":
			said = shell(t, dir, b)
		case b.Language == "text":
			requireLines(t, said, b)
		default:
			require.Fail(t, "nothing is done with a block", "docs/tutorial.md:%d: %s without a name to save it as",
				b.Line, b.Language)
		}
	}
	for _, run := range []string{"digits", "objectives/periodic-async-loss.kind=grpo",
		"objectives/periodic-async-loss.kind=softclip"} {
		steps, err := report.ReadMetrics(
			filepath.Join(dir, "runs", "tutorial", filepath.FromSlash(run), report.MetricsFile))
		require.NoError(t, err)
		if soak.Long() {
			require.Greater(t, steps[len(steps)-1]["eval/test/mean@1"], steps[0]["eval/test/mean@1"]+0.02,
				"%s learns", run)
		}
		if strings.HasSuffix(run, "softclip") {
			require.Zero(t, steps[len(steps)-1]["actor/clip_frac"], "it has no clip")
		}
	}
}

// shortened returns the page with fewer steps in its commands and files, and an eighth of
// the held-out prompts.
func shortened(t *testing.T, page string) string {
	t.Helper()
	for _, r := range [][2]string{
		{"sft.steps=220", "sft.steps=30"}, {"step-000220", "step-000030"}, {"\nsteps = 20\n", "\nsteps = 3\n"},
		{"step-000020", "step-000003"},
		{"-out runs/quickstart/data\n", "-out runs/quickstart/data\nhead -n 64 runs/quickstart/data/test.jsonl " +
			">held-out\nmv held-out runs/quickstart/data/test.jsonl\n"},
	} {
		require.Contains(t, page, r[0])
		page = strings.ReplaceAll(page, r[0], r[1])
	}
	return page
}

// copyTree copies the repository's shipped files to dir.
func copyTree(t *testing.T, dir string) {
	t.Helper()
	notShipped := []string{".git", "bin", "runs", "venv", filepath.Join("torch", "worker", "venv")}
	require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case e.IsDir() && slices.Contains(notShipped, name):
			return filepath.SkipDir
		case e.IsDir():
			return os.MkdirAll(filepath.Join(dir, name), 0o755)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), data, info.Mode())
	}))
}

// shell runs a block of commands as a new user and returns their output. It builds with
// -trimpath, so that the build cache serves every folder.
func shell(t *testing.T, dir string, b Block) string {
	t.Helper()
	caches, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	require.NoError(t, err)
	places := strings.Fields(string(caches))
	require.Len(t, places, 2)
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", b.Text)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "GOCACHE="+places[0], "GOMODCACHE="+places[1],
		"GOFLAGS="+os.Getenv("GOFLAGS")+" -trimpath")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "docs/tutorial.md:%d: %s\n%s", b.Line, b.Text, out)
	t.Logf("%s%s", b.Text, out)
	return string(out)
}

// requireLines requires that each line of a block appears in the output.
func requireLines(t *testing.T, said string, b Block) {
	t.Helper()
	for line := range strings.Lines(b.Text) {
		var parts []string
		for _, word := range strings.Fields(line) {
			pattern := regexp.QuoteMeta(word)
			if strings.ContainsFunc(word, unicode.IsDigit) && !strings.ContainsAny(word, "/=@") && line[0] != '{' {
				pattern = `\S*\d\S*`
			}
			parts = append(parts, pattern)
		}
		pattern := regexp.MustCompile(`(?m)^\s*` + strings.Join(parts, `\s+`))
		require.True(t, pattern.MatchString(said), "docs/tutorial.md:%d: %q is not in\n%s", b.Line, line, said)
	}
}
