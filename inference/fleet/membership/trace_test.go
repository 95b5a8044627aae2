package membership

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report/trace"
)

// Traces are shared, so that a server's row has no secret of its URL.
func TestRowsOfTheTraceHideSecrets(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	spans := trace.New(trace.DefaultSpans)
	m := connected(ctx, t, newNotes(), setup{engines: 1})
	m.servers.spans = spans // before a server joins
	require.NoError(t, m.Begin(ctx, nil))
	_, err := m.Add(ctx, "http://a:1/vR7kQ2mXz9LpW4tNb8Yc/v1", "")
	require.NoError(t, err)
	publishTiny(t, m, 1)
	path := filepath.Join(t.TempDir(), trace.File)
	require.NoError(t, spans.WriteFile(path))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(data), "http://a:1/***/v1")
	require.NotContains(t, string(data), "vR7kQ2mXz9LpW4tNb8Yc")
}
