package browser

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// bad has every fault that the audit and the tour detect.
const bad = `<!doctype html><html><head><meta name="viewport" content="width=500, user-scalable=no">
<style>button{height:15px;padding:0} #seen:focus{outline:none}</style></head><body>
<h2>first</h2><h4>second</h4><h1>a</h1><h1>b</h1>
<p style="color:#888;background:#999" id="x">grey on grey</p><p id="x" style="font-size:8px">small</p>
<svg width="100" height="20"><text x="-20" y="15">cut off</text><text x="0" y="15">lies on it</text></svg>
<svg aria-hidden="true" width="50" height="15"><text x="0" y="12" style="fill:#fff;font-size:12px">white</text></svg>
<img src="data:,"><input><button id="seen"></button><button tabindex="-1">out of reach</button><a ` +
	`href="#nowhere">link</a>
<table><tr><th>head</th></tr></table><p aria-describedby="nothing" tabindex="3">third</p>
<div style="position:absolute;left:90vw;width:50vw">beyond</div>
<script>document.querySelector("a").addEventListener("focus", () => ` +
	`document.querySelector("input").focus())</script></body></html>`

func TestAuditFindsFaults(t *testing.T) {
	t.Parallel()
	b := New(t, "")
	path := filepath.Join(t.TempDir(), "bad.html")
	require.NoError(t, os.WriteFile(path, []byte(bad), 0o644))
	b.View(800, "light")
	b.Do(chromedp.Navigate("file://" + path))
	faults := strings.Join(b.audit(), "\n")
	for _, fault := range []string{"no lang", "no title", "no viewport", "it cannot be made larger",
		"2 of h1, expected 1", "0 of main", "a heading of level 2 after one of 0",
		"a heading of level 4 after one of 2", "a drawing without words", "a picture without words", "no name: <input>",
		"no name: <button #seen>",
		"a head of a table without scope", "the id x comes twice", "a link leads nowhere", "described by nothing",
		"its turn is not its place",
		"the page is 1120 wide in 800", `beyond the edge: <div> "beyond"`, "15 pixels high, expected 24: <button",
		`: <p #x> "grey on grey"`,
		"letters of 8.0 pixels, expected 11", `cut in "": <text> "cut off"`, `"lies on it" on another`,
		`contrast 1.00, expected 4.5: <text> "white"`} {
		require.Contains(t, faults, fault)
	}
	faults = strings.Join(b.tour(), "\n")
	for _, fault := range []string{"the focus is not seen: <button #seen>", "the focus came twice",
		"the tab key does not lead to <a>"} {
		require.Contains(t, faults, fault)
	}
}
