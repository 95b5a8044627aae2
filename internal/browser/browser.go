// Package browser opens pages in a headless Chromium, for tests.
package browser

import (
	"context"
	_ "embed"
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
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// Artifacts is the environment variable with the folder for screenshots.
const Artifacts = "EASYRL_ARTIFACTS"

//go:embed audit.js
var audit string

// Tab is a browser tab that records the page's complaints and requests. Only the
// test's goroutine may use it.
type Tab struct {
	t   *testing.T
	ctx context.Context
	dir string // folder for screenshots; empty for none

	mu         sync.Mutex // guards the following, which the browser's events append to
	complaints []string
	requests   []string // URLs
}

// New opens a tab in a new browser, which closes when the test ends. It skips the test if no
// Chromium is installed. Host names that end in .example resolve to this machine. The tab saves
// screenshots to the folder dir, or nowhere if dir is "".
func New(t *testing.T, dir string) *Tab {
	t.Helper()
	names := []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless_shell",
		"headless-shell"}
	found := slices.IndexFunc(names, func(name string) bool { _, err := exec.LookPath(name); return err == nil })
	if found < 0 {
		t.Skipf("no browser to test the page in: none of %s is on the PATH (apt-get install chromium)",
			strings.Join(names, ", "))
	}
	limited, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(names[found]), chromedp.NoSandbox,
		chromedp.WindowSize(1200, 900),
		chromedp.Flag("host-resolver-rules", "MAP *.example 127.0.0.1"),
		chromedp.WSURLReadTimeout(2*time.Minute)) // the browser starts slowly on a busy machine
	process, end := chromedp.NewExecAllocator(limited, options...)
	t.Cleanup(end)
	b := &Tab{t: t, dir: dir}
	b.ctx, cancel = chromedp.NewContext(process)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Listen(b.ctx, b.record))
	return b
}

// record stores the complaint or request that a browser event reports.
func (b *Tab) record(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		d := e.ExceptionDetails
		b.complaints = append(b.complaints, fmt.Sprint(d.Text, " ", d.Exception.Description))
	case *runtime.EventConsoleAPICalled:
		b.complaints = append(b.complaints, fmt.Sprintf("console.%s", e.Type))
	case *log.EventEntryAdded:
		b.complaints = append(b.complaints, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, "data:") { // needs no network, and the browser opens some by itself
			b.requests = append(b.requests, e.Request.URL)
		}
	}
}

// Do performs actions on the page. Like the other methods, it fails the test on an error.
func (b *Tab) Do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		require.NoError(b.t, err, "console: %q", b.Complaints())
	}
}

// Tells evaluates a JavaScript expression in the page and returns its value. It awaits a promise.
func Tells[T any](b *Tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err, expression)
	return v
}

// Until waits until a JavaScript expression is true. It fails the test after three minutes.
func (b *Tab) Until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 3*time.Minute)
	defer cancel()
	poll := fmt.Sprintf(`new Promise(done => { const look = () => (%s) ? done(true) : setTimeout(look, 50); look(); })`,
		expression)
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](poll, chromedp.EvalAwaitPromise)); err != nil {
		require.NoError(b.t, err, "%s\npage: %.3000s\nconsole: %q", expression,
			Tells[string](b, "document.body.innerText"), b.Complaints())
	}
}

// Shows waits until an element that matches selector contains text.
func (b *Tab) Shows(selector, text string) {
	b.t.Helper()
	b.Until(fmt.Sprintf("[...document.querySelectorAll(%q)].some(e => e.textContent.includes(%q))", selector, text))
}

// Complaints returns the errors and console messages since the last call.
func (b *Tab) Complaints() []string { return b.take(&b.complaints) }

// Requests returns the URLs that the page requested since the last call.
func (b *Tab) Requests() []string { return b.take(&b.requests) }

// take empties from and returns what it held.
func (b *Tab) take(from *[]string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := *from
	*from = nil
	return all
}

// View sets the page's width in CSS pixels and its color scheme, "light" or
// "dark".
func (b *Tab) View(width int64, scheme string) {
	b.t.Helper()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme",
		Value: scheme}}}
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, media)
	require.NoError(b.t, err)
	b.Do(chromedp.EmulateViewport(width, 900))
}

// Keep saves a screenshot of the whole page as name.png, if New got a folder.
func (b *Tab) Keep(name string) {
	b.t.Helper()
	if b.dir == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	require.NoError(b.t, err)
	require.NoError(b.t, os.MkdirAll(b.dir, 0o755))
	require.NoError(b.t, os.WriteFile(filepath.Join(b.dir, name+".png"), picture, 0o644))
}

// Inspect opens all details elements and requires that the page passes audit.js
// at desktop, tablet and phone widths in both color schemes: that it is
// accessible to screen readers, by keyboard and visually. It saves a screenshot
// of each view and of the page under simulated color blindness.
func (b *Tab) Inspect(name string) {
	b.t.Helper()
	b.Do(chromedp.Evaluate[chromedp.Void](
		`document.querySelectorAll("details").forEach(d => { d.open = true; }); undefined`))
	for _, width := range []int64{1280, 768, 375} {
		for _, scheme := range []string{"light", "dark"} {
			b.View(width, scheme)
			view := fmt.Sprintf("%s-%d-%s", name, width, scheme)
			b.Keep(view)
			require.Empty(b.t, b.audit(), view)
		}
	}
	b.View(1280, "light")
	for _, deficiency := range []emulation.SetEmulatedVisionDeficiencyType{
		emulation.SetEmulatedVisionDeficiencyTypeDeuteranopia,
		emulation.SetEmulatedVisionDeficiencyTypeTritanopia, emulation.SetEmulatedVisionDeficiencyTypeAchromatopsia,
		emulation.SetEmulatedVisionDeficiencyTypeNone} { // None comes last and restores normal vision
		_, err := chromedp.Call(b.ctx, emulation.SetEmulatedVisionDeficiency,
			emulation.SetEmulatedVisionDeficiencyParams{Type: deficiency})
		require.NoError(b.t, err)
		if deficiency != emulation.SetEmulatedVisionDeficiencyTypeNone {
			b.Keep(name + "-" + string(deficiency))
		}
	}
}

// audit returns the faults that audit.js finds in the current view.
func (b *Tab) audit() []string { return Tells[[]string](b, audit+"\naudit()") }

// Tour requires that the Tab key reaches every interactive element from the top
// of the page, with visible focus.
func (b *Tab) Tour() {
	b.t.Helper()
	require.Empty(b.t, b.tour())
}

// tour returns the faults that Tour finds.
func (b *Tab) tour() (faults []string) {
	for range Tells[int](b, audit+"\nbeginTour()") {
		b.Do(chromedp.KeyEvent(kb.Tab))
		if fault := Tells[string](b, "tour()"); fault != "" {
			faults = append(faults, fault)
		}
	}
	return append(faults, Tells[[]string](b, "endTour()")...)
}
