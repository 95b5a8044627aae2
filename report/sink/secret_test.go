package sink

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// The file in the run's folder has no password. A resumed run with it continues the same run in
// MLflow, as does one whose file has the password.
func TestMLflowFileHidesPassword(t *testing.T) {
	t.Parallel()
	dir, api := t.TempDir(), &fake{}
	synctest.Test(t, func(t *testing.T) {
		for step := 1; step <= 3; step++ {
			f := newFolder(t, dir, step-1)
			m, err := openMLflow("http://me:hunter2@mlflow:5000", &f.run, api)
			require.NoError(t, err)
			f.step(m, report.Values{"step": float64(step), "reward/mean": 1})
			require.NoError(t, m.Close(Finished))
			path := filepath.Join(dir, mlflowFile)
			kept, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Contains(t, string(kept), `"url":"http://***@mlflow:5000"`)
			require.NoError(t, os.WriteFile(path, bytes.Replace(kept, []byte("***"), []byte("me:hunter2"), 1), 0o644))
		}
	})
	require.Len(t, api.runs, 1)
	require.Equal(t, []int{1, 2, 3}, api.runs[0].steps("reward/mean"))
}

// Commands are masked as in run.toml, with words that look random.
func TestMLflowParametersHideSecrets(t *testing.T) {
	t.Parallel()
	dir, api := t.TempDir(), &fake{}
	synctest.Test(t, func(t *testing.T) {
		f := newFolder(t, dir, 0)
		f.run.Settings["reward.command"] = `["python3", "vR7kQ2mXz9LpW4tNb8Yc"]`
		m, err := openMLflow(server, &f.run, api)
		require.NoError(t, err)
		f.step(m, report.Values{"step": 1, "reward/mean": 1})
		<-time.After(time.Second)
		require.NoError(t, m.Close(Finished))
	})
	require.Equal(t, `["python3", "***"]`, api.runs[0].params["reward.command"])
}
