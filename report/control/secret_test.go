package control

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// Faults and refusals may quote URLs and headers of servers.
func TestFaultsHideSecrets(t *testing.T) {
	t.Parallel()
	const fault = "publish to http://ann:hunter2@a:1: 401"
	c, root := newControl(t, &book{all: []Instance{
		{ID: "http://a:1", URL: "http://a:1", State: "FAILED", Fault: fault}}})
	c.Step(report.Values{"step": 1}, "")
	in := hear(t, root)
	readEvents(t, in, 1)
	c.Instance(InstanceEvent{ID: "http://a:1/vR7kQ2mXz9LpW4tNb8Yc", From: "HEALTHY", To: "DEAD", Cause: fault})
	event := readEvents(t, in, 1)[0]
	require.Contains(t, event, `"cause":"publish to http://***@a:1: 401"`)
	drain := "/instances/http%3A%2F%2Fa%3A1/drain"
	for _, call := range [][2]string{{"GET", "/instances"}, {"GET", "/page/state"}, {"POST", drain}} {
		status, body := ask(t, call[0], root+call[1], "")
		require.Equal(t, 200, status, body)
		require.Contains(t, body, "http://***@a:1: 401", call)
		require.NotContains(t, body, "hunter2", call)
	}
	_, body := ask(t, "GET", root+"/page/state", "")
	require.Contains(t, body, "http://a:1/***: HEALTHY")
	_, body = ask(t, "POST", root+"/instances", `{"url": "ftp://ann:hunter2@b"}`)
	require.Contains(t, body, `url is \"ftp://***@b\"`)
}

// The log shows warnings of an earlier process too.
func TestWarningsOnTheLivePageHideSecrets(t *testing.T) {
	t.Parallel()
	c, root := newControl(t, &book{})
	warnings := []report.Warning{{Step: 7, Kind: "x", Text: "no answer of http://ann:hunter2@b"}}
	require.NoError(t, report.WriteWarnings(filepath.Join(c.dir, report.WarningsFile), warnings))
	_, body := ask(t, "GET", root+"/page/state", "")
	require.Contains(t, body, "after step 7: no answer of http://***@b")
}
