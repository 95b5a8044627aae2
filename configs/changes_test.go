package configs

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChanges(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100)
	document := small + "[train]\nlr = 1e-6\n[reward]\nkind = \"sum\"\n[reward.parts.a]\nkind = " +
		"\"math\"\n[reward.sources.\"b c\"]\nkind = \"exact\"\n"
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
			[]string{`data.train ["a", "b"] (was ["t.jsonl"])`, "rollout.group_size 4 (was 8)",
				"train.lr 0.001 (was 1e-06)"}},
		{[]string{"reward.parts.a.kind=regex", "reward.parts.a.pattern=" + long},
			[]string{`reward.parts.a.kind "regex" (was "math")`,
				`reward.parts.a.pattern "` + long[:59] + `… (was "")`, `reward.parts.a.marks not set (was "")`}},
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

// A run's folder holds no passwords. A run resumed from that folder names the keys whose passwords
// are missing, and a hidden password counts as no change.
func TestPasswordsAreHidden(t *testing.T) {
	t.Parallel()
	document := small + "[log]\nto = [\"csv\", \"mlflow=http://me:s3cret@host:5000\"]\n[reward]\nkind = " +
		"\"sum\"\n[reward.parts.a]\nkind = \"http\"\n" +
		"url = [\"http://a/?x=1&token=s3cret\", \"http://me:s3cret@b/\"]\n"
	r, err := Load(write(t, document), nil)
	require.NoError(t, err)
	require.NoError(t, r.Validate(TrainTask))
	dir := t.TempDir()
	require.NoError(t, r.WriteFile(dir))
	path := filepath.Join(dir, RunFile)
	held, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(held), `url = ["http://a/?***", "http://***@b/"]`)
	var explained bytes.Buffer
	require.NoError(t, r.Explain(&explained))
	tree, err := json.Marshal(r.Tree())
	require.NoError(t, err)
	for _, text := range []string{string(held), explained.String(), string(tree)} {
		require.NotContains(t, text, "s3cret")
	}
	changes, err := r.Changes(dir)
	require.NoError(t, err)
	require.Empty(t, changes)
	require.True(t, r.Same(path))

	again, err := Load([]string{path}, nil)
	require.NoError(t, err)
	err = again.Validate(TrainTask)
	require.ErrorContains(t, err, `reward.parts.a.url is ["http://a/?***", "http://***@b/"], whose password is `+
		`hidden in a run's run.toml; set the key in an overlay or with -set`)
	require.ErrorContains(t, err, `log.to is ["csv", "mlflow=http://***@host:5000"], whose password is hidden`)
	require.ErrorContains(t, err, path+":")
	err = again.Validate(ScoreTask)
	require.ErrorContains(t, err, "reward.parts.a.url is ")
	require.NotContains(t, err.Error(), "log.to")
	again, err = Load([]string{path}, []string{`reward.parts.a.url=["http://a/?x=1&token=new", "http://b/"]`,
		`log.to=["csv"]`})
	require.NoError(t, err)
	require.NoError(t, again.Validate(TrainTask))
}

// A reward's command keeps its secrets out of the run's folder and of the JSON of a check; a
// command without secrets runs again.
func TestSecretsOfCommandsAreHidden(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ command, want string }{
		"option":   {`["python3", "r.py", "--token", "hunter2"]`, `["python3", "r.py", "--token", "***"]`},
		"variable": {`["env", "API_KEY=hunter2", "r"]`, `["env", "API_KEY=***", "r"]`},
		"URL":      {`["r", "http://a/?x=hunter2"]`, `["r", "http://a/?***"]`},
		"none": {`["python3", "r.py", "--mode", "strict", "--timeout", "5"]`,
			`["python3", "r.py", "--mode", "strict", "--timeout", "5"]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Load(write(t, small+"[reward]\nkind = \"command\"\ncommand = "+row.command+"\n"), nil)
			require.NoError(t, err)
			dir := t.TempDir()
			require.NoError(t, r.WriteFile(dir))
			held, err := os.ReadFile(filepath.Join(dir, RunFile))
			require.NoError(t, err)
			require.Contains(t, string(held), "command = "+row.want)
			tree, err := json.Marshal(r.Tree())
			require.NoError(t, err)
			require.NotContains(t, string(tree), "hunter2")
			again, err := Load([]string{filepath.Join(dir, RunFile)}, nil)
			require.NoError(t, err)
			if err := again.Validate(TrainTask); row.want == row.command {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "hidden in a run's run.toml")
			}
		})
	}
}
