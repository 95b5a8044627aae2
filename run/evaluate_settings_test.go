package run

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/model/folder"
)

// The record of an evaluation begins with its settings. Another password shows without being readable.
func TestSettingsOfAnEvaluationHideSecrets(t *testing.T) {
	t.Parallel()
	settingsWith := func(password string) map[string]string {
		file := filepath.Join(t.TempDir(), "run.toml")
		require.NoError(t, os.WriteFile(file, []byte(`[model]
path = "m"
[reward]
kind = "sum"
[reward.parts.a]
kind = "http"
url = ["http://ann:`+password+`@judge:8000/v1"]
[reward.parts.b]
kind = "command"
command = ["python3", "judge.py", "--token", "`+password+`"]
`), 0o644))
		resolved, err := configs.Load([]string{file}, nil)
		require.NoError(t, err)
		settings, err := evalSettings(resolved, &folder.Folder{}, "sum", nil)
		require.NoError(t, err)
		return settings
	}
	url, command := "reward.parts.a.url", "reward.parts.b.command"
	settings := settingsWith("hunter2")
	require.Regexp(t, `^\["http://\*\*\*@judge:8000/v1"\] \([0-9a-f]{4}\)$`, settings[url])
	require.Regexp(t, `^\["python3", "judge.py", "--token", "\*\*\*"\] \([0-9a-f]{4}\)$`, settings[command])
	require.Equal(t, settings, settingsWith("hunter2"))
	other := settingsWith("hunter3")
	require.NotEqual(t, settings[url], other[url])
	require.NotEqual(t, settings[command], other[command])
}
