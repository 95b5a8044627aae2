package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/run"
)

// Weights that a trainer publishes as a file in memory or as a stream are served. Weights
// that do not match their checksum change nothing.
func TestServePublished(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	first, second := initTiny(t, dir, "first", 1), initTiny(t, dir, "second", 2)
	root, _, _ := serveFolder(t, "-model", first)
	f, err := folder.Open(second)
	require.NoError(t, err)
	dev, err := run.OpenCPU(2)
	require.NoError(t, err)
	defer dev.Close() //nolint:errcheck // only read from
	w, err := f.Weights(dev)
	require.NoError(t, err)

	var held map[string]any
	require.Equal(t, http.StatusOK, ask(t, http.MethodGet, root+"/v1/weights", "", http.NoBody, &held))
	require.Equal(t, model.PanelLayout, held["layout"])
	var rows bytes.Buffer
	require.NoError(t, model.NewSnapshot(w, 4).WriteSafetensors(&rows))
	panels := checkpoint.NewMemory()
	require.NoError(t, panels.Fill(model.NewSnapshot(w, 4).WritePacked))
	for _, good := range [][]byte{rows.Bytes(), panels.Bytes()} {
		wrong := bytes.Clone(good)
		wrong[len(wrong)-3] ^= 1
		for _, row := range []struct {
			body []byte
			want string
		}{{wrong, "checksum"}, {good[:len(good)-4], "truncated"}} {
			path := filepath.Join(t.TempDir(), "wrong")
			require.NoError(t, os.WriteFile(path, row.body, 0o600))
			var refused answered
			require.Equal(t, http.StatusBadRequest,
				ask(t, http.MethodPut, root+"/v1/weights?version=4", "", bytes.NewReader(row.body), &refused))
			require.Contains(t, refused.Error.Message, row.want)
			require.Equal(t, http.StatusBadRequest,
				ask(t, http.MethodPut, root+"/v1/weights?version=4&path="+path, "", http.NoBody, &refused))
			require.Contains(t, refused.Error.Message, "path is not a file with weights of this model")
		}
	}
	a, code := askCompletions(t, root, "")
	require.Equal(t, http.StatusOK, code)
	require.Zero(t, a.Version)
	requireGenerates(t, first, a)

	store, err := publish.NewStore(t.TempDir())
	require.NoError(t, err)
	for version, store := range []*publish.Store{store, nil, store} {
		inst, err := remote.Dial(t.Context(), remote.Config{URL: root, Store: store})
		require.NoError(t, err)
		s := model.NewSnapshot(w, int64(version)+5)
		sum, err := inst.Publish(t.Context(), s)
		require.NoError(t, err)
		require.Equal(t, w.Checksum(), sum)
		a, code = askCompletions(t, root, fmt.Sprintf(`,"weight_version":%d`, s.Version()))
		require.Equal(t, http.StatusOK, code, a.Error)
		requireGenerates(t, second, a)
		require.NoError(t, inst.Close())
	}
}
