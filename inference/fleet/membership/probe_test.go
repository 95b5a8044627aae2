package membership

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference/remote"
)

// Probe refuses what Connect refuses and closes every connection.
func TestProbe(t *testing.T) {
	t.Parallel()
	a, gone := remote.Endpoint{URL: "http://a:1"}, remote.Endpoint{URL: "http://gone:1", Kind: remote.VLLM}
	for _, test := range []struct {
		name      string
		endpoints []remote.Endpoint
		engines   int
		least     int
		joins     bool
		fails     bool
	}{
		{"no servers", nil, 1, 1, false, false},
		{"one server", []remote.Endpoint{a}, 0, 1, false, false},
		{"one of two", []remote.Endpoint{gone, a}, 0, 1, false, false},
		{"too few", []remote.Endpoint{gone, a}, 0, 2, false, true},
		{"none", []remote.Endpoint{gone}, 0, 1, false, true},
		{"an engine instead", []remote.Endpoint{gone}, 1, 1, false, false},
		{"others may join", []remote.Endpoint{gone}, 0, 1, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			closed := make(chan string, 2)
			dial := dialThen(t,
				func(url string, e engineServer) remote.Server { return closing{e, func() { closed <- url }} })
			dir := t.TempDir()
			probed, err := Probe(t.Context(), Config{Endpoints: test.endpoints, MinInstances: test.least,
				MayJoin: test.joins, Dir: dir, Dial: dial}, test.engines)
			m := open(t.Context(), t, newNotes(),
				setup{engines: test.engines, endpoints: test.endpoints, minInstances: test.least, fixed: !test.joins})
			same := m.Connect(t.Context())
			require.Equal(t, test.fails, err != nil, err)
			if test.fails {
				require.EqualError(t, err, same.Error())
			} else {
				require.NoError(t, same)
			}
			require.Len(t, probed, len(test.endpoints))
			open := 0
			for i, p := range probed {
				require.Equal(t, test.endpoints[i].URL, p.URL)
				if p.URL == gone.URL {
					require.ErrorContains(t, p.Fault, "connection refused")
					require.Equal(t, remote.VLLM, p.Kind)
					continue
				}
				require.NoError(t, p.Fault)
				require.Equal(t, remote.EasyRL, p.Kind)
				require.Equal(t, 7, p.Capacity)
				open++
			}
			require.Len(t, closed, open)
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, entries)
		})
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, stateName), []byte("[]"), 0o644))
	_, err := Probe(t.Context(), Config{Dir: dir}, 1)
	require.ErrorContains(t, err, "Delete the file to start with an empty list")
}

// closing is a client that says when it is closed.
type closing struct {
	engineServer
	closed func()
}

func (c closing) Close() error {
	c.closed()
	return c.engineServer.Close()
}
