package control

import (
	"bufio"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// The end of a run cuts nobody off before its last events.
func TestEventsEndWithTheLast(t *testing.T) {
	t.Parallel()
	c, root := newControl(t, nil)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, root+"/events", nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: &http.Transport{}}).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	const steps = 100
	var want []string
	for i := range steps {
		c.Step(report.Values{"step": float64(i)})
		want = append(want, fmt.Sprintf(`step {"step":%d}`, i))
	}
	c.Close()
	require.Equal(t, want, readEvents(t, bufio.NewScanner(resp.Body), steps))
}
