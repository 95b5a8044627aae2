package control

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/page"
)

//go:embed live.html.tmpl
var liveSource string

//go:embed live.css
var liveRules string

//go:embed live.js
var liveScript []byte

const (
	// drawEvery is the least time between two drawings of a part of the page.
	drawEvery = time.Second
	// drawShare is how many times as long as a drawing took its part is left as it
	// is: a page takes 2% of a core at most for each of its parts.
	drawShare = 50
	// mostEntries of the log of events are kept.
	mostEntries = 256
)

// livePolicy allows the page its own script and calls and nothing else: what a
// model answered is shown, and must not act. No other page may frame it.
const livePolicy = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// part is a part of the page as it was last drawn.
type part struct {
	mu    sync.Mutex
	html  []byte
	told  int       // steps when it was drawn
	until time.Time // it is not drawn again before
}

// liveParts are the parts that are drawn anew as the run goes.
func liveParts() map[string]*part {
	return map[string]*part{"numbers": {}, "curves": {}, "timeline": {}, "answers": {}, "configuration": {}}
}

// entry is a line of the page's log.
type entry struct {
	Number int    `json:"n"`              // of this process
	Time   int64  `json:"time,omitempty"` // Unix, in milliseconds; 0 where it was before this process
	Kind   string `json:"kind"`           // warning or instance
	Text   string `json:"text"`
}

// shell is the page without what it shows.
func shell(needsToken bool) ([]byte, error) {
	view, err := template.New("live").Parse(liveSource)
	if err != nil {
		return nil, err
	}
	var html bytes.Buffer
	err = view.Execute(&html, map[string]any{"Token": needsToken, "Style": page.Style() + template.CSS(liveRules)}) //nolint:gosec // both are this module's
	return html.Bytes(), err
}

// serveShell answers for what a browser loads before it can show a token: the
// page and its script, which say nothing of the run. It reports whether the path
// was theirs.
func (c *Server) serveShell(ctx *fasthttp.RequestCtx, path string) bool {
	if path != "/" && path != "/page/live.js" || !ctx.IsGet() && !ctx.IsHead() {
		return false
	}
	secure(ctx)
	if path == "/" {
		ctx.SetContentType("text/html; charset=utf-8")
		ctx.SetBody(c.shell)
		return true
	}
	ctx.SetContentType("text/javascript; charset=utf-8")
	ctx.SetBody(liveScript)
	return true
}

func secure(ctx *fasthttp.RequestCtx) {
	h := &ctx.Response.Header
	h.Set("Content-Security-Policy", livePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache, private")
}

// servePage answers for what the page shows: its state as JSON, and its parts as
// HTML.
func (c *Server) servePage(ctx *fasthttp.RequestCtx, name string) {
	secure(ctx)
	if name == "state" {
		c.serveState(ctx)
		return
	}
	p := c.parts[name]
	if p == nil {
		refuse(ctx, fasthttp.StatusNotFound, "/page/%s: expected state, numbers, curves, timeline, answers or configuration", name)
		return
	}
	html, told, err := c.draw(name, p)
	if err != nil {
		refuse(ctx, fasthttp.StatusServiceUnavailable, "%v", err)
		return
	}
	tag := strconv.Quote(c.boot + "-" + strconv.Itoa(told))
	ctx.Response.Header.Set("ETag", tag)
	if string(ctx.Request.Header.Peek("If-None-Match")) == tag {
		ctx.NotModified()
		ctx.Response.Header.Set("ETag", tag)
		return
	}
	ctx.SetContentType("text/html; charset=utf-8")
	ctx.SetBody(html)
}

// draw is a part of the page, drawn anew where steps came since and it is time,
// and the steps that had been told when it was.
func (c *Server) draw(name string, p *part) (html []byte, told int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().Before(p.until) {
		return p.html, p.told, nil
	}
	steps, told, err := c.history.all(c.dir)
	if err != nil {
		return nil, 0, err
	}
	if p.html != nil && p.told == told {
		return p.html, p.told, nil
	}
	begin := time.Now()
	if html, err = page.Part(name, c.dir, steps); err != nil {
		return nil, 0, err
	}
	took := time.Since(begin)
	p.html, p.told, p.until = html, told, begin.Add(took+max(drawEvery, drawShare*took))
	return html, told, nil
}

// serveState tells what the page shows beside its parts.
func (c *Server) serveState(ctx *fasthttp.RequestCtx) {
	steps, told, err := c.history.all(c.dir)
	if err != nil {
		refuse(ctx, fasthttp.StatusServiceUnavailable, "%v", err)
		return
	}
	name, extent, err := page.Heading(c.dir, steps)
	if err != nil {
		refuse(ctx, fasthttp.StatusServiceUnavailable, "%v", err)
		return
	}
	log, err := c.entries()
	if err != nil {
		refuse(ctx, fasthttp.StatusServiceUnavailable, "%v", err)
		return
	}
	c.mu.Lock()
	instances, left := c.instances, c.left
	c.mu.Unlock()
	if left != "" {
		extent += "; " + left + " left"
	}
	var fleet []Instance // null where there is none
	if instances != nil {
		fleet = append([]Instance{}, instances.List()...)
	}
	answer(ctx, fasthttp.StatusOK, map[string]any{"boot": c.boot, "told": told, "name": name, "extent": extent, "glance": page.Glance(steps), "instances": fleet, "log": log})
}

// entries are the log: the warnings of the run's folder that were given before,
// and what was told since.
func (c *Server) entries() ([]entry, error) {
	old, err := report.ReadWarnings(c.file(report.WarningsFile))
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []entry
	for _, w := range old {
		text := warningText(w)
		if !slices.ContainsFunc(c.log, func(e entry) bool { return e.Text == text }) {
			all = append(all, entry{Kind: "warning", Text: text})
		}
	}
	return append(all, c.log...), nil
}

// note adds a line to the log. c.mu is held.
func (c *Server) note(kind, text string) {
	c.noted++
	c.log = append(c.log, entry{c.noted, time.Now().UnixMilli(), kind, text})
	if len(c.log) > mostEntries {
		c.log = slices.Clone(c.log[len(c.log)-mostEntries:])
	}
}

func warningText(w report.Warning) string { return fmt.Sprintf("after step %d: %s", w.Step, w.Text) }

// text is an event in words.
func (e InstanceEvent) text() string {
	var s string
	switch {
	case e.ID == "" && e.Cause == "":
		s = "enough instances serve again"
	case e.ID == "":
		return e.Cause
	case e.From == "" && e.To == "":
		s = e.ID
	case e.From == "":
		s = e.ID + " came, " + e.To
	case e.To == "":
		s = e.ID + " went, " + e.From + " before"
	default:
		s = e.ID + ": " + e.From + " → " + e.To
	}
	if e.Cause != "" {
		s += " (" + strings.ReplaceAll(e.Cause, "\n", "; ") + ")"
	}
	return s
}
