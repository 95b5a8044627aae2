package control

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// hear opens the event stream of an address.
func hear(t *testing.T, root string) *bufio.Scanner {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, root+"/events", nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: &http.Transport{}}).Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	return bufio.NewScanner(resp.Body)
}

// readEvents reads up to n events of a stream.
func readEvents(t *testing.T, in *bufio.Scanner, n int) (all []string) {
	t.Helper()
	name := ""
	for len(all) < n && in.Scan() {
		switch line := in.Text(); {
		case strings.HasPrefix(line, "event: "):
			name = strings.TrimPrefix(line, "event: ")
		case strings.HasPrefix(line, "data: "):
			all = append(all, name+" "+strings.TrimPrefix(line, "data: "))
		}
	}
	require.NoError(t, in.Err())
	return all
}

func TestEvents(t *testing.T) {
	t.Parallel()
	c, root := newControl(t, &book{})
	c.Step(report.Values{"step": 1}, "")
	in := hear(t, root)
	require.Equal(t, []string{`step {"step":1}`}, readEvents(t, in, 1))
	c.Instance(InstanceEvent{ID: "a", From: "HEALTHY", To: "DEAD", Cause: "gone\nfor good"})
	c.Step(report.Values{"step": 2, "reward/mean": 0.5}, "")
	require.Equal(t, []string{`instance {"id":"a","from":"HEALTHY","to":"DEAD","cause":"gone\nfor good"}`,
		`step {"step":2,"reward/mean":0.5}`}, readEvents(t, in, 2))
	c.Close() // does not wait for listeners
	require.Empty(t, readEvents(t, in, 1))
	require.Empty(t, c.listeners)
}

// A listener that falls behind is cut off, and the number of listeners is bounded.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	c, root := newControl(t, &book{})
	slow := c.listen()
	for range maxUnsent {
		c.Step(report.Values{"step": 1}, "")
	}
	require.Len(t, c.listeners, 1)
	c.Step(report.Values{"step": 2}, "")
	require.Empty(t, c.listeners)
	n := 0
	for range slow {
		n++
	}
	require.Equal(t, maxUnsent, n)
	for range maxListeners {
		require.NotNil(t, c.listen())
	}
	status, body := ask(t, "GET", root+"/events", "")
	require.Equal(t, 503, status)
	require.Contains(t, body, "too many listeners, expected at most 64")
}

// At the end of a run, listeners still get the last events.
func TestEventsBeforeCloseAreSent(t *testing.T) {
	t.Parallel()
	c, root := newControl(t, nil)
	in := hear(t, root)
	const steps = 100
	c.Warning(report.Warning{Step: 7, Kind: "entropy", Text: "it collapsed"})
	want := []string{`warning {"step":7,"kind":"entropy","text":"it collapsed"}`}
	for i := range steps {
		c.Step(report.Values{"step": float64(i)}, "")
		want = append(want, fmt.Sprintf(`step {"step":%d}`, i))
	}
	c.Close()
	require.Equal(t, want, readEvents(t, in, steps+1))
}
