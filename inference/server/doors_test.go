package server

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/browser"
)

// A web page in the user's browser can send simple requests to any server without asking.
func TestForeignPageIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	for _, path := range []string{"/v1/drain", "/v1/drain", "/v1/drain", "/v1/completions", "/v1/trainer"} {
		for _, origin := range []string{"https://evil.example", "null"} {
			status, _, data := call(t, s, http.MethodPost, path, `{"prompt":"a","id":"x"}`, "Origin", origin,
				"Content-Type", "text/plain")
			require.Equal(t, http.StatusForbidden, status, "%s: %s", path, data)
		}
	}
	status, _, data := call(t, s, http.MethodPost, "/v1/completions", `{"prompt":"a"}`, "Content-Type", "text/plain")
	require.Equal(t, http.StatusUnsupportedMediaType, status, "%s", data)
	require.Contains(t, string(data), "application/json")
	status, got := post(t, s, "/v1/completions", `{"prompt":"a"}`)
	require.Equal(t, http.StatusOK, status, "%v", got)
}

// A page whose name has been pointed at the server counts as the server's own in a browser.
func TestReboundNameIsRefused(t *testing.T) {
	t.Parallel()
	backend := newFake()
	s := serve(t, backend, fakeText{}, nil)
	_, port, _ := strings.Cut(s.Addr(), ":")
	rebound := "rebound.example:" + port
	for _, to := range [][2]string{{http.MethodPut, "/v1/weights?version=9"}, {http.MethodPost, "/v1/drain"},
		{http.MethodGet, "/v1/models"}} {
		status, _, data := call(t, s, to[0], to[1], "weights", "Host", rebound, "Origin", "http://"+rebound)
		require.Equal(t, http.StatusForbidden, status, "%s: %s", to, data)
	}
	version, _ := backend.Held()
	require.EqualValues(t, 3, version)
	status, _, _ := call(t, s, http.MethodGet, "/health", "")
	require.Equal(t, http.StatusOK, status)
}

// curl works as the documentation says, also through a tunnel whose port differs.
func TestCurl(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("the server is not called with curl: it is not on the PATH")
	}
	s := serve(t, newFake(), fakeText{}, nil)
	for _, c := range []struct {
		args string
		want string
	}{
		{`-H Content-Type:application/json -d {"prompt":"a"}`, "200"},
		{`-d {"prompt":"a"}`, "415"},
		{`-H Content-Type:application/json -d {"prompt":"a"} --connect-to localhost:9000:` + s.Addr() +
			` --url http://localhost:9000/v1/completions`, "200"},
		{`-H Content-Type:application/json -d {"prompt":"a"} --connect-to vllm.svc:8000:` + s.Addr() +
			` --url http://vllm.svc:8000/v1/completions`, "403"},
		{`-X POST --url http://` + s.Addr() + `/v1/drain`, "200"},
	} {
		args := append([]string{"-q", "-s", "-w", "%{http_code}"}, strings.Fields(c.args)...)
		if !strings.Contains(c.args, "--url") {
			args = append(args, "http://"+s.Addr()+"/v1/completions")
		}
		out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
		require.NoError(t, err, "%s: %s", c.args, out)
		require.True(t, strings.HasSuffix(string(out), c.want), "%s: %s", c.args, out)
	}
}

// The same attacks from pages in a browser.
func TestPagesInBrowser(t *testing.T) {
	t.Parallel()
	b := browser.New(t, "")
	backend := newFake()
	s := serve(t, backend, fakeText{}, nil)
	_, port, _ := strings.Cut(s.Addr(), ":")
	unharmed := func() {
		t.Helper()
		require.NoError(t, s.ready())
		version, _ := backend.Held()
		require.EqualValues(t, 3, version)
	}
	evil := httptest.NewServer(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<title>evil</title>") }))
	defer evil.Close()
	_, evilPort, _ := strings.Cut(strings.TrimPrefix(evil.URL, "http://"), ":")
	page := "http://evil.example:" + evilPort
	b.Do(chromedp.Navigate(page))
	for _, call := range []string{
		`"/v1/drain", {method: "POST", mode: "no-cors"}`,
		`"/v1/drain", {method: "POST", mode: "no-cors", body: "{}"}`,
		`"/v1/drain", {method: "POST", mode: "no-cors", body: new Blob(["{}"])}`,
		`"/v1/weights?version=9", {method: "PUT", body: "weights"}`,
		`"/v1/models"`,
	} {
		script := fmt.Sprintf(`fetch("http://%s" + %s).then(a => a.type, e => e.name)`, s.Addr(), call)
		require.Contains(t, []string{"opaque", "TypeError"}, browser.Tells[string](b, script), call)
		unharmed()
	}
	form := fmt.Sprintf(`new Promise(done => {
		const frame = document.createElement("iframe"), form = document.createElement("form");
		frame.name = form.target = "answer";
		form.method = "POST"; form.action = "http://%s/v1/drain"; form.enctype = "text/plain";
		document.body.append(frame, form);
		frame.onload = () => done("sent");
		form.submit();
	})`, s.Addr())
	require.Equal(t, "sent", browser.Tells[string](b, form))
	unharmed()

	b.Do(chromedp.Navigate("http://rebound.example:" + port + "/"))
	for _, call := range []string{`"/v1/drain", {method: "POST"}`,
		`"/v1/weights?version=9", {method: "PUT", body: "weights"}`, `"/v1/models"`} {
		require.Equal(t, 403, browser.Tells[int](b, "fetch("+call+").then(a => a.status)"), call)
		unharmed()
	}

	b.Do(chromedp.Navigate("http://localhost:" + port + "/health")) // the server's own page
	require.Equal(t, 200, browser.Tells[int](b, `fetch("/v1/drain", {method: "POST"}).then(a => a.status)`))
	require.Error(t, s.ready())
}
