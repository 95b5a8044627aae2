package control

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/browser"
	"github.com/easyrl/easyrl/report"
)

// recorded returns a run's folder with steps 1 to n.
func recorded(t *testing.T, n int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "counting")
	require.NoError(t, os.Mkdir(dir, 0o755))
	m, err := report.OpenMetrics(filepath.Join(dir, report.MetricsFile), 0)
	require.NoError(t, err)
	for i := range n {
		require.NoError(t, m.Write(report.Line{Values: stepValues(i + 1)}))
	}
	require.NoError(t, m.Close())
	return dir
}

func stepValues(step int) report.Values {
	x := float64(step)
	return report.Values{"step": x, "time": 1.8e9 + x, "reward/mean": 1 - 1/x, "response_length/mean": 100 + x,
		"response_length/max": 200 - x,
		"idle/trainer":        .2 + .1/x, "idle/instances": .5 - .1/x, "perf/tokens_per_second": 1000 + x,
		"timing_s/step": 1, "actor/entropy": 2 / x}
}

func threeInstances() *book {
	return &book{all: []Instance{
		{ID: "instance 0", Kind: "easyrl", URL: "http://10.0.0.6:8000", State: "HEALTHY", Version: 7, Requests: 3,
			Responses: 24, Served: 1200, Tokens: 123456, Busy: 61.5},
		{ID: "embedded-1", Kind: "embedded", State: "HEALTHY", Version: 7},
		{ID: "http://10.0.0.7:8000", Kind: "easyrl", URL: "http://10.0.0.7:8000", State: "FAILED", Version: 6,
			Failed: 2, Fault: "connection refused"}}}
}

// away waits until the page shows that the trainer does not answer.
func away(b *browser.Tab) { b.Until(`document.querySelector("#state").dataset.state === "away"`) }

func TestLivePage(t *testing.T) {
	t.Parallel()
	b := browser.New(t, os.Getenv(browser.Artifacts))
	dir := recorded(t, 3)
	fleet := threeInstances()
	c, err := New("127.0.0.1:0", "", dir)
	require.NoError(t, err)
	defer func() { c.Close() }()
	c.Serve(fleet, []string{"HEALTHY", "UPDATING", "DRAINED"})

	// The page loads.
	b.Do(chromedp.Navigate("http://" + c.Addr() + "/"))
	b.Shows("#state", "Live")
	b.Shows("h1", "counting")
	b.Shows("[data-part=curves] figcaption", "Reward")
	b.Shows("[data-part=configuration] h2", "Configuration")
	b.Until(`document.querySelector("#ask").hidden && document.querySelectorAll("#instances tbody tr").length === 3`)

	// It shows a new step, warning and instance.
	c.Step(stepValues(4), "1m05s")
	b.Shows("#extent", "4 steps in 4s, until 2027-01-15 08:00 UTC; 1m05s left")
	b.Shows("#now dd", "0.75")
	b.Shows("[data-part=curves] svg[aria-label]", "")
	b.Until(`[...document.querySelectorAll("[data-part=curves] svg")].some(e => (e.getAttribute("aria-label") || ` +
		`"").includes("at step 4"))`)
	c.Warning(report.Warning{Step: 4, Kind: "idle", Text: "the trainer waits <b>60%</b>, expected 20%"})
	c.Instance(InstanceEvent{ID: "instance 0", From: "HEALTHY", To: "SUSPECT", Cause: "late"})
	b.Shows("#entries li.warning", "after step 4: the trainer waits <b>60%</b>")
	b.Shows("#entries li.instance", "instance 0: HEALTHY → SUSPECT (late)")

	// cannot be removed
	b.Until(
		`[...document.querySelectorAll("#instances tr[data-id=embedded-1] button")].filter(b => b.hidden).length === 2`)

	// One click drains an instance; removing one needs two.
	b.Do(chromedp.Click(chromedp.CSS(`#instances button[aria-label="Drain instance 0"]`)))
	b.Shows("#instances td", "DRAINING")
	b.Until(`document.querySelector('#instances button[aria-label="Drain instance 0"]').disabled`)
	require.Equal(t, "DRAINING", fleet.List()[0].State)
	for _, label := range []string{"Remove", "Really remove?"} {
		require.Len(t, fleet.List(), 3)
		b.Do(
			chromedp.Click(chromedp.CSS(fmt.Sprintf(`#instances button[aria-label="%s http://10.0.0.7:8000"]`, label))))
	}
	b.Until(`document.querySelectorAll("#instances tbody tr").length === 2`)
	require.Len(t, fleet.List(), 2)
	require.Empty(t, b.Complaints())
	b.Inspect("live")
	b.Tour()

	// The trainer stops and returns at the same address with one more step.
	addr := c.Addr()
	c.Close()
	away(b)
	b.Until(`document.title.startsWith("disconnected") && [...document.querySelectorAll("#instances ` +
		`button")].every(b => b.disabled)`)
	b.View(1280, "dark")
	b.Keep("live-away")
	m, err := report.OpenMetrics(filepath.Join(dir, report.MetricsFile), 4)
	require.NoError(t, err)
	require.NoError(t, m.Write(report.Line{Values: stepValues(4)}))
	require.NoError(t, m.Write(report.Line{Values: stepValues(5)}))
	require.NoError(t, m.Close())
	c, err = New(addr, "", dir)
	require.NoError(t, err)
	c.Serve(threeInstances(), nil)
	b.Shows("#state", "Live")
	b.Shows("#extent", "5 steps")
	b.Shows("#entries li", "the trainer restarted")
	b.Shows("#entries li.warning", "after step 4") // earlier entries stay
	b.Until(`document.querySelectorAll("#instances tbody tr").length === 3`)
	for _, fault := range b.Complaints() { // calls during the outage
		require.Regexp(t, `net::ERR_(CONNECTION_REFUSED|INCOMPLETE_CHUNKED_ENCODING|CONNECTION_RESET|EMPTY_RESPONSE)`,
			fault)
	}
	c.Step(stepValues(6), "")
	b.Shows("#extent", "6 steps")
	require.Empty(t, b.Complaints())
	b.Do(chromedp.EmulateViewport(390, 800))
	require.LessOrEqual(t, browser.Tells[int](b, "document.documentElement.scrollWidth"), 390,
		"the page is wider than a phone")
}

// Without the token a browser shows nothing of the run. With it the page works, and
// only the tab keeps the token.
func TestLivePageWithToken(t *testing.T) {
	t.Parallel()
	b := browser.New(t, os.Getenv(browser.Artifacts))
	fleet := threeInstances()
	c, err := New("127.0.0.1:0", "open sesame", recorded(t, 2))
	require.NoError(t, err)
	defer c.Close()
	c.Serve(fleet, []string{"HEALTHY", "UPDATING", "DRAINED"})
	b.Do(chromedp.Navigate("http://"+c.Addr()+"/"), chromedp.WaitVisible(chromedp.CSS("#ask")))
	b.Until(`document.querySelector("#shown").hidden && document.activeElement.id === "token"`)
	require.Empty(t, b.Complaints())
	b.Inspect("live-token")
	b.Tour()
	b.Do(chromedp.SendKeys(chromedp.CSS("#token"), "wrong\r"))
	b.Shows("#why", "Wrong control token")
	for _, fault := range b.Complaints() {
		require.Contains(t, fault, "401")
	}
	b.Do(chromedp.WaitVisible(chromedp.CSS("#ask")), chromedp.SendKeys(chromedp.CSS("#token"), "open sesame\r"))
	b.Shows("h1", "counting")
	b.Do(chromedp.Click(chromedp.CSS(`#instances button[aria-label="Drain instance 0"]`)))
	b.Shows("#done", "done")
	require.Equal(t, "DRAINING", fleet.List()[0].State)
	b.Do(chromedp.Reload())
	b.Shows("#state", "Live") // does not ask again
	require.Empty(t, b.Complaints())
	kept := browser.Tells[string](b, "location.href + document.cookie + JSON.stringify(localStorage)")
	require.NotContains(t, kept, "sesame")
}

// The live page works behind a tunnel such as ssh -L, whose port differs from the
// address's own.
func TestLivePageThroughTunnel(t *testing.T) {
	t.Parallel()
	b := browser.New(t, "")
	fleet := threeInstances()
	c, err := New("127.0.0.1:0", "", recorded(t, 2))
	require.NoError(t, err)
	defer c.Close()
	c.Serve(fleet, []string{"HEALTHY", "UPDATING", "DRAINED"})
	tunnel, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // only a test
	require.NoError(t, err)
	defer tunnel.Close()
	go func() {
		for {
			near, err := tunnel.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", c.Addr()) //nolint:noctx // only a test
			if err != nil {
				_ = near.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
				go func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].Close()
				}()
			}
		}
	}()
	_, port, err := net.SplitHostPort(tunnel.Addr().String())
	require.NoError(t, err)
	b.Do(chromedp.Navigate("http://localhost:" + port + "/"))
	b.Shows("#state", "Live")
	b.Do(chromedp.Click(chromedp.CSS(`#instances button[aria-label="Drain instance 0"]`)))
	b.Shows("#instances td", "DRAINING")
	require.Empty(t, b.Complaints())
}
