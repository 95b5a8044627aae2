//go:build unix

package reward

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/rollout"
)

// A program gets PATH, HOME, LANG, TMPDIR and the variables named, not the trainer's environment.
// Nor has the process above it more than what it needs to start.
func TestCommandEnvironment(t *testing.T) {
	for _, name := range []string{"WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "EASYRL_TOKEN", "LD_PRELOAD_NOT", "LC_ALL",
		"JUDGE_KEY", "judge_url", "EMPTY"} {
		t.Setenv(name, "value of "+name)
	}
	t.Setenv("EMPTY", "")
	t.Setenv("LANG", "C.UTF-8")
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	t.Setenv("JUDGE_KEY", "raw \xff\n= bytes")
	dump := filepath.Join(t.TempDir(), "environment")
	const script = `env -0 >"$0"; [ -r /proc/$PPID/environ ] && cat /proc/$PPID/environ >"$0".above
		while read -r q; do echo '{"id":1,"score":1}'; done`
	r := commandKind().Example()
	r.Command, r.Env, r.Concurrency, r.Batch, r.Timeout = []string{"sh", "-c", script, dump},
		[]string{"JUDGE_KEY", "judge_url", "EMPTY"}, 1, 1, 100
	c, err := newCommand(&r.Term)
	require.NoError(t, err)
	_, err = c.Score(t.Context(), input("1", "1", rollout.Stop))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	given := func(path string) (names []string) {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, entry := range strings.Split(strings.TrimSuffix(string(content), "\x00"), "\x00") {
			name, _, _ := strings.Cut(entry, "=")
			// the shell's and easyrl's own
			if !regexp.MustCompile(`^(_|PWD|OLDPWD|SHLVL|EASYRL_REWARD_PROGRAM|LD_LIBRARY_PATH)$`).MatchString(name) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	require.Equal(t, []string{"EMPTY", "HOME", "JUDGE_KEY", "LANG", "PATH", "TMPDIR", "judge_url"}, given(dump))
	content, err := os.ReadFile(dump)
	require.NoError(t, err)
	require.Contains(t, string(content), "JUDGE_KEY=raw \xff\n= bytes\x00")
	if _, err := os.Stat(dump + ".above"); err == nil {
		require.Empty(t, strings.Join(given(dump+".above"), ""))
	}
	r.Env = []string{"JUDGE_KEY", "NOT_SET_ANYWHERE"}
	_, err = newCommand(&r.Term)
	require.EqualError(t, err, "new reward: env: variable NOT_SET_ANYWHERE is not set")
}

// reward.env takes names. A value, which may be a password, is not in the error.
func TestEnvTakesNames(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string]string{
		"API_KEY": "", "http_proxy": "", "_x1": "", "API_KEY=hunter2": `"API_KEY=***"`, "=hunter2": `"=***"`, "": `""`,
		"A B": `"A B"`, "1X": `"1X"`, "A\nB": `"A\nB"`, "A*": `"A*"`, "A\x00": `"A\x00"`,
	} {
		r := commandKind().Example()
		r.Env = []string{"HOME", entry}
		c := Config{Rule: r}
		err := c.Validate(10)
		if want == "" {
			require.NoError(t, err, entry)
			continue
		}
		require.ErrorContains(t, err, "env has "+want+" at position 2")
		require.NotContains(t, err.Error(), "hunter2")
	}
}
