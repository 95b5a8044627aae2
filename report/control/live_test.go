package control

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/page"
)

// Without the token, a browser gets the empty page and nothing of the run.
func TestLivePageWithoutTokenIsEmpty(t *testing.T) {
	t.Parallel()
	c, err := New("127.0.0.1:0", "secret", recorded(t, 2))
	require.NoError(t, err)
	defer c.Close()
	root := "http://" + c.Addr()
	status, body := get(t, root+"/", "")
	require.Equal(t, 200, status)
	require.Contains(t, body, `data-token="needed"`)
	require.NotContains(t, body, "counting")
	status, _ = get(t, root+"/page/live.js", "")
	require.Equal(t, 200, status)
	for _, path := range []string{"/page/state", "/page/numbers", "/page/curves", "/page/timeline", "/page/answers",
		"/page/configuration", "/page/x", "/page/../status"} {
		status, body = get(t, root+path, "")
		require.Equal(t, 401, status, path)
		require.NotContains(t, body, "counting")
	}
	_, body = get(t, root+"/page/state", "secret")
	require.Contains(t, body, `"name":"001/counting"`)
	require.Contains(t, body, `"instances":null`)
	status, body = get(t, root+"/page/x", "secret")
	require.Equal(t, 404, status, body)
}

// Other pages can neither frame nor read the page, and a model's answers cannot act in
// it.
func TestLivePagePolicy(t *testing.T) {
	t.Parallel()
	c, err := New("127.0.0.1:0", "", recorded(t, 2))
	require.NoError(t, err)
	defer c.Close()
	for _, path := range []string{"/", "/page/live.js", "/page/state", "/page/curves"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.Addr()+path, nil)
		require.NoError(t, err)
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 200, resp.StatusCode, path)
		policy := resp.Header.Get("Content-Security-Policy")
		require.Contains(t, policy, "frame-ancestors 'none'", path)
		require.Contains(t, policy, "script-src 'self';", path)
		require.Equal(t, "same-origin", resp.Header.Get("Cross-Origin-Resource-Policy"), path)
		require.Empty(t, resp.Header.Get("Refresh"), path)
	}
}

// A client that has the current part gets 304 instead.
func TestPartsHaveTags(t *testing.T) {
	t.Parallel()
	c, err := New("127.0.0.1:0", "", recorded(t, 2))
	require.NoError(t, err)
	defer c.Close()
	tag := `"` + c.boot + `-0"`
	status, body := ask(t, http.MethodGet, "http://"+c.Addr()+"/page/curves", "")
	require.Equal(t, 200, status)
	require.Contains(t, body, "<svg")
	status, body = ask(t, http.MethodGet, "http://"+c.Addr()+"/page/curves", "", "If-None-Match", tag)
	require.Equal(t, 304, status)
	require.Empty(t, body)
}

// However often clients ask, a part is drawn at most once a second and only after a new
// step.
func TestPartsAreDrawnRarely(t *testing.T) {
	t.Parallel()
	dir := recorded(t, 2)
	synctest.Test(t, func(t *testing.T) {
		c := &Server{dir: dir, parts: liveParts()}
		draw := func() (added int, body *byte) {
			html, added, err := c.draw("numbers", c.parts["numbers"])
			require.NoError(t, err)
			return added, &html[0]
		}
		_, first := draw()
		c.Step(stepValues(3), "")
		added, same := draw()
		require.Zero(t, added)
		require.Same(t, first, same)
		<-time.After(2 * drawEvery) // on the bubble's clock
		added, second := draw()
		require.Equal(t, 1, added)
		require.NotSame(t, first, second)
		<-time.After(time.Hour)
		_, same = draw()
		require.Same(t, second, same)
	})
}

func numbersOf(steps *report.Steps) (all []int) {
	for i := range steps.Len() {
		all = append(all, int(steps.Values(i)["step"]))
	}
	return all
}

// The history has each step once, whether or not the file has it already and whether or
// not it is repeated.
func TestHistory(t *testing.T) {
	t.Parallel()
	dir := recorded(t, 5)
	var h history
	h.add(stepValues(4))
	h.add(stepValues(5))
	all, added, err := h.all(dir)
	require.NoError(t, err)
	require.Equal(t, 2, added)
	require.Equal(t, []int{1, 2, 3, 4, 5}, numbersOf(all))
	h.add(stepValues(6))
	h.add(report.Values{"step": 3, "later": 1})
	require.Equal(t, []int{1, 2, 3, 4, 5}, numbersOf(all))
	require.NotContains(t, all.Values(2), "later") // earlier results do not change
	again, _, err := h.all(dir)
	require.NoError(t, err)
	require.Equal(t, []int{1, 2, 3}, numbersOf(again))

	var none history
	all, _, err = none.all(t.TempDir())
	require.NoError(t, err)
	require.Zero(t, all.Len())
	none.add(stepValues(1))
	all, _, err = none.all(t.TempDir())
	require.NoError(t, err)
	require.Equal(t, []int{1}, numbersOf(all))
}

// The log has the warnings of earlier processes, each once, and is bounded.
func TestLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, now := report.Warning{Step: 1, Kind: "a", Text: "old"}, report.Warning{Step: 2, Kind: "b", Text: "new"}
	require.NoError(t, report.WriteWarnings(filepath.Join(dir, report.WarningsFile), []report.Warning{old, now}))
	c := &Server{dir: dir}
	c.Warning(now)
	c.Instance(InstanceEvent{ID: "x", To: "HEALTHY"})
	log, err := c.entries()
	require.NoError(t, err)
	var texts []string
	for _, e := range log {
		texts = append(texts, e.Kind+": "+e.Text)
	}
	require.Equal(t, []string{"warning: after step 1: old", "warning: after step 2: new",
		"instance: x joined, HEALTHY"}, texts)
	require.Zero(t, log[0].Time)
	require.Positive(t, log[1].Time)
	for range 3 * maxEntries {
		c.Instance(InstanceEvent{ID: "x", From: "HEALTHY", To: "SUSPECT"})
	}
	require.Len(t, c.journal.log, maxEntries)
	require.Equal(t, 3*maxEntries+2, c.journal.log[maxEntries-1].Number)
}

// The page works before the first step.
func TestStateBeforeFirstStep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, err := New("127.0.0.1:0", "", dir)
	require.NoError(t, err)
	defer c.Close()
	status, body := get(t, "http://"+c.Addr()+"/page/state", "")
	require.Equal(t, 200, status, body)
	var state struct {
		Told   int
		Glance []page.Tile
	}
	require.NoError(t, json.Unmarshal([]byte(body), &state))
	require.Zero(t, state.Told)
	require.Empty(t, state.Glance)
	for name := range c.parts {
		status, body = get(t, "http://"+c.Addr()+"/page/"+name, "")
		require.Equal(t, 200, status, body)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, report.WarningsFile), []byte("no JSON\n"), 0o644))
	status, _ = get(t, "http://"+c.Addr()+"/page/state", "")
	require.Equal(t, 503, status)
}
