package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	code, out, errs := command(t, "version")
	require.Equal(t, exitDone, code, errs)
	require.Regexp(t, `^easyrl \S+\nrevision .+\ngo go1\.\S+ \w+/\w+\ndevices cpu/\S+\n$`, out)
	code, _, errs = command(t, "version", "x")
	require.Equal(t, exitUsage, code)
	requireOneLine(t, errs, "version: unexpected argument x")
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	code, script, errs := command(t, "completion", "bash")
	require.Equal(t, exitDone, code, errs)
	complete := func(words ...string) []string {
		ask := script + `COMP_WORDS=(easyrl "$@"); COMP_CWORD=$#; _easyrl; printf '%s\n' "${COMPREPLY[@]}"`
		out, err := exec.Command(bash, append([]string{"-c", ask, "bash"}, words...)...).Output()
		require.NoError(t, err)
		return strings.Fields(string(out))
	}
	require.Equal(t, []string{"replay", "report"}, complete("rep"))
	require.Equal(t, []string{"-set"}, complete("train", "run.toml", "-s"))
	require.Equal(t, []string{"version_test.go"}, complete("train", "version_t"))
	code, script, _ = command(t, "completion", "fish")
	require.Equal(t, exitDone, code)
	require.Contains(t, script, "complete -c easyrl -n '__fish_seen_subcommand_from train' -o resume -d 'continue "+
		"from the run\\'s newest valid checkpoint'\n")
	code, _, errs = command(t, "completion", "tcsh")
	require.Equal(t, exitUsage, code)
	requireOneLine(t, errs, `completion: shell is "tcsh", expected bash, zsh or fish`)
}
