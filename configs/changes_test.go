package configs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChanges(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100)
	document := small + "[train]\nlr = 1e-6\n[reward]\nkind = \"sum\"\n[reward.parts.a]\nkind = \"math\"\n[reward.sources.\"b c\"]\nkind = \"exact\"\n"
	load := func(settings ...string) *Resolved {
		r, err := Load(write(t, document), settings)
		require.NoError(t, err)
		return r
	}
	dir := t.TempDir()
	changes, err := load().Changes(dir)
	require.NoError(t, err)
	require.Empty(t, changes, "no resolved run in the folder")
	require.NoError(t, load("run.dir=elsewhere").WriteFile(dir))
	for _, row := range []struct{ settings, want []string }{
		{nil, nil},
		{[]string{"run.name=other", "run.dir=" + dir}, nil},
		{[]string{"train.lr=1e-3", "rollout.group_size=4", "data.train=[\"a\",\"b\"]"},
			[]string{`data.train ["a", "b"] (was ["t.jsonl"])`, "rollout.group_size 4 (was 8)", "train.lr 0.001 (was 1e-06)"}},
		{[]string{"reward.parts.a.kind=regex", "reward.parts.a.pattern=" + long}, []string{`reward.parts.a.kind "regex" (was "math")`,
			`reward.parts.a.pattern "` + long[:59] + `… (was "")`}},
		{[]string{"reward.sources.'b c'.think=true"}, []string{`reward.sources."b c".think true (was false)`}},
	} {
		changes, err := load(row.settings...).Changes(dir)
		require.NoError(t, err)
		require.Equal(t, row.want, append([]string(nil), changes...), row.settings)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, RunFile), []byte("[run"), 0o644))
	_, err = load().Changes(dir)
	require.ErrorContains(t, err, RunFile+":1: ")
}
