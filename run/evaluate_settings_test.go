package run

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/model/folder"
)

// The record of an evaluation begins with its settings.
func TestSettingsOfAnEvaluationHideSecrets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "run.toml")
	require.NoError(t, os.WriteFile(file, []byte(`[model]
path = "m"
[reward]
kind = "sum"
[reward.parts.a]
kind = "http"
url = ["http://ann:hunter2@judge:8000/v1"]
[reward.parts.b]
kind = "command"
command = ["python3", "judge.py", "--token", "hunter2"]
`), 0o644))
	resolved, err := configs.Load([]string{file}, nil)
	require.NoError(t, err)
	settings, err := evalSettings(resolved, &folder.Folder{}, "sum", nil)
	require.NoError(t, err)
	require.Equal(t, `["http://***@judge:8000/v1"]`, settings["reward.parts.a.url"])
	require.Equal(t, `["python3", "judge.py", "--token", "***"]`, settings["reward.parts.b.command"])
}
