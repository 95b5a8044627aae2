package control

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// artifactsKey names the folder that screenshots go to.
const artifactsKey = "EASYRL_ARTIFACTS"

// tab is a tab of a real browser, and what it complained of.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	faults []string
}

// newTab opens a tab of a browser of its own, or skips the test where no Chromium
// is found.
func newTab(t *testing.T) *tab {
	t.Helper()
	names := []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless_shell", "headless-shell"}
	found := slices.IndexFunc(names, func(name string) bool { _, err := exec.LookPath(name); return err == nil })
	if found < 0 {
		t.Skipf("the live page is not looked at in a browser: none of %s on the PATH (apt-get install chromium)", strings.Join(names, ", "))
	}
	limited, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(names[found]), chromedp.NoSandbox, chromedp.WindowSize(1200, 900))
	process, end := chromedp.NewExecAllocator(limited, options...)
	t.Cleanup(end)
	b := &tab{t: t}
	b.ctx, cancel = chromedp.NewContext(process)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Listen(b.ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.faults = append(b.faults, fmt.Sprint(e.ExceptionDetails.Text, " ", e.ExceptionDetails.Exception.Description))
		case *runtime.EventConsoleAPICalled:
			b.faults = append(b.faults, fmt.Sprintf("console.%s", e.Type))
		case *log.EventEntryAdded:
			b.faults = append(b.faults, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	}))
	return b
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		require.NoError(b.t, err, "console: %q", b.complaints())
	}
}

// tells is what an expression of the page says.
func tells[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	require.NoError(b.t, err, expression)
	return v
}

// until waits until an expression of the page is true.
func (b *tab) until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 40*time.Second)
	defer cancel()
	look := fmt.Sprintf(`new Promise(done => { const look = () => (%s) ? done(true) : setTimeout(look, 50); look(); })`, expression)
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](look, chromedp.EvalAwaitPromise)); err != nil {
		require.NoError(b.t, err, "%s\npage: %.3000s\nconsole: %q", expression, tells[string](b, "document.body.innerText"), b.complaints())
	}
}

// complaints are what the browser complained of since the last call.
func (b *tab) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.faults
	b.faults = nil
	return all
}

// keep puts a screenshot of the whole page where artifactsKey says.
func (b *tab) keep(name string, width int64, scheme string) {
	b.t.Helper()
	dir := os.Getenv(artifactsKey)
	if dir == "" {
		return
	}
	look := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, look)
	require.NoError(b.t, err)
	b.do(chromedp.EmulateViewport(width, 900))
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	require.NoError(b.t, err)
	b.do(chromedp.ResetViewport())
	require.NoError(b.t, os.MkdirAll(dir, 0o755))
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644))
}

// shows waits until the page has text somewhere.
func (b *tab) shows(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("[...document.querySelectorAll(%q)].some(e => e.textContent.includes(%q))", selector, text))
}

// recorded is a run's folder with steps 1 to n.
func recorded(t *testing.T, n int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "counting")
	require.NoError(t, os.Mkdir(dir, 0o755))
	m, err := report.OpenMetrics(filepath.Join(dir, report.MetricsFile), 0)
	require.NoError(t, err)
	for i := range n {
		require.NoError(t, m.Write(stepValues(i+1)))
	}
	require.NoError(t, m.Close())
	return dir
}

func stepValues(step int) report.Values {
	x := float64(step)
	return report.Values{"step": x, "time": 1.8e9 + x, "reward/mean": 1 - 1/x, "response_length/mean": 100 + x, "response_length/max": 200 - x,
		"idle/trainer": .2 + .1/x, "idle/instances": .5 - .1/x, "perf/tokens_per_second": 1000 + x, "timing_s/step": 1, "actor/entropy": 2 / x}
}

func twoInstances() *book {
	return &book{members: []Member{
		{ID: "instance 0", Kind: "embedded", State: "HEALTHY", Version: 7, Requests: 3, Responses: 24, Served: 1200, Tokens: 123456, Busy: 61.5},
		{ID: "http://10.0.0.7:8000", Kind: "easyrl", URL: "http://10.0.0.7:8000", State: "FAILED", Version: 6, Failed: 2, Fault: "connection refused"}}}
}

// away waits until the page says that nobody answers, and forgets what the browser
// says of calls that failed meanwhile.
func (b *tab) away() {
	b.t.Helper()
	b.until(`document.querySelector("#state").dataset.state === "away"`)
}

func TestLivePage(t *testing.T) {
	t.Parallel()
	b := newTab(t)
	dir := recorded(t, 3)
	fleet := twoInstances()
	c, err := New("127.0.0.1:0", "", dir)
	require.NoError(t, err)
	defer func() { c.Close() }()
	c.Serve(fleet)

	// It loads.
	b.do(chromedp.Navigate("http://" + c.Addr() + "/"))
	b.shows("#state", "Live")
	b.shows("h1", "counting")
	b.shows("[data-part=curves] figcaption", "Reward")
	b.shows("[data-part=configuration] h2", "Configuration")
	b.until(`document.querySelector("#ask").hidden && document.querySelectorAll("#instances tbody tr").length === 2`)

	// It hears of a step, a warning and an instance.
	c.Step(stepValues(4))
	b.shows("#extent", "4 steps")
	b.shows("#now dd", "0.75")
	b.shows("[data-part=curves] svg[aria-label]", "")
	b.until(`[...document.querySelectorAll("[data-part=curves] svg")].some(e => (e.getAttribute("aria-label") || "").includes("at step 4"))`)
	c.Warning(report.Warning{Step: 4, Kind: "idle", Text: "the trainer waits <b>60%</b>, expected 20%"})
	c.Instance(InstanceEvent{ID: "instance 0", From: "HEALTHY", To: "SUSPECT", Cause: "late"})
	b.shows("#entries li.warning", "after step 4: the trainer waits <b>60%</b>")
	b.shows("#entries li.instance", "instance 0: HEALTHY → SUSPECT (late)")

	// A click drains an instance, and two remove one.
	b.do(chromedp.Click(chromedp.CSS(`#instances button[aria-label="Drain instance 0"]`)))
	b.shows("#instances td", "DRAINING")
	b.until(`document.querySelector('#instances button[aria-label="Drain instance 0"]').disabled`)
	require.Equal(t, "DRAINING", fleet.List()[0].State)
	for _, label := range []string{"Remove", "Really remove?"} {
		require.Len(t, fleet.List(), 2)
		b.do(chromedp.Click(chromedp.CSS(fmt.Sprintf(`#instances button[aria-label="%s http://10.0.0.7:8000"]`, label))))
	}
	b.until(`document.querySelectorAll("#instances tbody tr").length === 1`)
	require.Len(t, fleet.List(), 1)
	require.Empty(t, b.complaints())
	b.keep("live-light", 1200, "light")

	// The trainer goes, and comes back at the same address with a step more.
	addr := c.Addr()
	c.Close()
	b.away()
	b.until(`document.title.startsWith("away") && [...document.querySelectorAll("#instances button")].every(b => b.disabled)`)
	b.keep("live-away", 1200, "dark")
	m, err := report.OpenMetrics(filepath.Join(dir, report.MetricsFile), 4)
	require.NoError(t, err)
	require.NoError(t, m.Write(stepValues(4)))
	require.NoError(t, m.Write(stepValues(5)))
	require.NoError(t, m.Close())
	c, err = New(addr, "", dir)
	require.NoError(t, err)
	c.Serve(twoInstances())
	b.shows("#state", "Live")
	b.shows("#extent", "5 steps")
	b.shows("#entries li", "the trainer was started again")
	b.shows("#entries li.warning", "after step 4") // what was said before stays
	b.until(`document.querySelectorAll("#instances tbody tr").length === 2`)
	for _, fault := range b.complaints() { // calls while nobody answered
		require.Regexp(t, `net::ERR_(CONNECTION_REFUSED|INCOMPLETE_CHUNKED_ENCODING|CONNECTION_RESET|EMPTY_RESPONSE)`, fault)
	}
	c.Step(stepValues(6))
	b.shows("#extent", "6 steps")
	require.Empty(t, b.complaints())
	b.keep("live-phone", 390, "dark")
	b.do(chromedp.EmulateViewport(390, 800))
	require.LessOrEqual(t, tells[int](b, "document.documentElement.scrollWidth"), 390, "the page is wider than a phone")
}

// Whoever has no token sees nothing of the run; with it the page works, and the
// token stays in the tab alone.
func TestLivePageWithToken(t *testing.T) {
	t.Parallel()
	b := newTab(t)
	fleet := twoInstances()
	c, err := New("127.0.0.1:0", "open sesame", recorded(t, 2))
	require.NoError(t, err)
	defer c.Close()
	c.Serve(fleet)
	b.do(chromedp.Navigate("http://"+c.Addr()+"/"), chromedp.WaitVisible(chromedp.CSS("#ask")))
	b.until(`document.querySelector("#shown").hidden && document.activeElement.id === "token"`)
	require.Empty(t, b.complaints())
	b.keep("live-token", 390, "light")
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), "wrong\r"))
	b.shows("#why", "That is not the control token")
	for _, fault := range b.complaints() {
		require.Contains(t, fault, "401")
	}
	b.do(chromedp.WaitVisible(chromedp.CSS("#ask")), chromedp.SendKeys(chromedp.CSS("#token"), "open sesame\r"))
	b.shows("h1", "counting")
	b.do(chromedp.Click(chromedp.CSS(`#instances button[aria-label="Drain instance 0"]`)))
	b.shows("#done", "done")
	require.Equal(t, "DRAINING", fleet.List()[0].State)
	b.do(chromedp.Reload())
	b.shows("#state", "Live") // without asking again
	require.Empty(t, b.complaints())
	kept := tells[string](b, "location.href + document.cookie + JSON.stringify(localStorage)")
	require.NotContains(t, kept, "sesame")
}
