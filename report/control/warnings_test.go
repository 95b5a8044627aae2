package control

import (
	"bufio"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

func TestWarningsAreEvents(t *testing.T) {
	t.Parallel()
	c, root := newControl(t, nil)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, root+"/events", nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: &http.Transport{}}).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	c.Warning(report.Warning{Step: 7, Kind: "entropy", Text: "it collapsed"})
	c.Close()
	require.Equal(t, []string{`warning {"step":7,"kind":"entropy","text":"it collapsed"}`}, readEvents(t, bufio.NewScanner(resp.Body), 1))
	var none *Server
	none.Warning(report.Warning{})
}
