package control

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/internal/plain"
	"github.com/easyrl/easyrl/internal/secret"
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
	// drawEvery is the minimum time between two drawings of a part.
	drawEvery = time.Second
	// drawShare is the pause after a drawing as a multiple of the time it took, so
	// that each part uses at most 2% of a core.
	drawShare = 50
	// maxEntries limits the event log of this process.
	maxEntries = 256
)

// livePolicy allows only the page's own script and calls, so that a model's answers
// cannot act. No other page may frame it.
const livePolicy = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; " +
	"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// part is a part of the page as last drawn.
type part struct {
	mu    sync.Mutex
	html  []byte
	added int       // steps added when it was drawn
	until time.Time // earliest time of the next drawing
}

// liveParts returns the parts that are redrawn during the run.
func liveParts() map[string]*part {
	return map[string]*part{"numbers": {}, "curves": {}, "timeline": {}, "answers": {}, "configuration": {}}
}

// entry is a line of the page's event log.
type entry struct {
	Number int    `json:"n"`              // counts within this process
	Time   int64  `json:"time,omitempty"` // Unix milliseconds; 0 if before this process
	Kind   string `json:"kind"`           // "warning" or "instance"
	Text   string `json:"text"`
}

// shell returns the live page without content. With needsToken, the page asks the user for the token.
func shell(needsToken bool) ([]byte, error) {
	view, err := template.New("live").Parse(liveSource)
	if err != nil {
		return nil, err
	}
	var html bytes.Buffer
	style := page.Style() + template.CSS(liveRules) //nolint:gosec // both come from this module
	err = view.Execute(&html, map[string]any{"Token": needsToken, "Style": style})
	return html.Bytes(), err
}

// isShell reports whether a request is for what a browser loads before it can send a
// token: the empty page and its script, which reveal nothing about the run.
func isShell(ctx *fasthttp.RequestCtx, path string) bool {
	return (path == "/" || path == "/page/live.js") && (ctx.IsGet() || ctx.IsHead())
}

func (c *Server) serveShell(ctx *fasthttp.RequestCtx, path string) {
	secure(ctx)
	if path == "/" {
		ctx.SetContentType("text/html; charset=utf-8")
		ctx.SetBody(c.shell)
		return
	}
	ctx.SetContentType("text/javascript; charset=utf-8")
	ctx.SetBody(liveScript)
}

// secure sets headers that keep the page from running, embedding or leaking anything else.
func secure(ctx *fasthttp.RequestCtx) {
	h := &ctx.Response.Header
	h.Set("Content-Security-Policy", livePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache, private")
}

// servePage serves the content of the live page: its state as JSON and its parts as
// HTML.
func (c *Server) servePage(ctx *fasthttp.RequestCtx, name string) {
	secure(ctx)
	if name == "state" {
		c.serveState(ctx)
		return
	}
	c.servePart(ctx, name)
}

// servePart serves a part of the page as HTML.
func (c *Server) servePart(ctx *fasthttp.RequestCtx, name string) {
	part := c.parts[name]
	if part == nil {
		const expected = "state, numbers, curves, timeline, answers or configuration"
		refuse(ctx, fasthttp.StatusNotFound, "/page/%s not found, expected %s", name, expected)
		return
	}
	html, added, err := c.draw(name, part)
	if err != nil {
		refuse(ctx, fasthttp.StatusServiceUnavailable, "%v", err)
		return
	}
	tag := strconv.Quote(c.boot + "-" + strconv.Itoa(added))
	ctx.Response.Header.Set("ETag", tag)
	if string(ctx.Request.Header.Peek("If-None-Match")) == tag {
		ctx.NotModified()
		ctx.Response.Header.Set("ETag", tag)
		return
	}
	ctx.SetContentType("text/html; charset=utf-8")
	ctx.SetBody(html)
}

// draw returns the HTML of a part and how many steps this process had added when the part was drawn. It
// redraws the part if it has new steps and part.until has passed.
func (c *Server) draw(name string, part *part) (html []byte, added int, err error) {
	part.mu.Lock()
	defer part.mu.Unlock()
	if time.Now().Before(part.until) {
		return part.html, part.added, nil
	}
	steps, added, err := c.history.all(c.dir)
	if err != nil {
		return nil, 0, err
	}
	if part.html != nil && part.added == added {
		return part.html, part.added, nil
	}
	begin := time.Now()
	if html, err = page.Part(name, c.dir, steps); err != nil {
		return nil, 0, err
	}
	took := time.Since(begin)
	part.html, part.added, part.until = plain.Page(html), added, begin.Add(took+max(drawEvery, drawShare*took))
	return part.html, added, nil
}

// serveState answers with the content of the page outside its parts.
func (c *Server) serveState(ctx *fasthttp.RequestCtx) {
	state, err := c.state()
	if err != nil {
		refuse(ctx, fasthttp.StatusServiceUnavailable, "%v", err)
		return
	}
	answer(ctx, fasthttp.StatusOK, state)
}

// state returns the content of the page outside its parts, by name.
func (c *Server) state() (map[string]any, error) {
	steps, added, err := c.history.all(c.dir)
	if err != nil {
		return nil, err
	}
	name, extent, err := page.Heading(c.dir, steps)
	if err != nil {
		return nil, err
	}
	about, err := page.About(c.dir)
	if err != nil {
		return nil, err
	}
	log, err := c.entries()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	instances, left := c.instances, c.left
	c.mu.Unlock()
	if left != "" {
		extent += "; " + left + " left"
	}
	var fleet []Instance // stays null without instances
	if instances != nil {
		fleet = list(instances)
	}
	return map[string]any{"boot": c.boot, "told": added, "name": name, "extent": extent, "about": about,
		"glance": page.Glance(steps), "instances": fleet, "log": log}, nil
}

// entries returns the event log: the earlier warnings in the run's folder, then the
// entries of this process.
func (c *Server) entries() ([]entry, error) {
	old, err := report.ReadWarnings(filepath.Join(c.dir, report.WarningsFile))
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []entry
	for _, w := range old {
		text := warningText(w)
		if !slices.ContainsFunc(c.journal.log, func(e entry) bool { return e.Text == text }) {
			all = append(all, entry{Kind: "warning", Text: text})
		}
	}
	return append(all, c.journal.log...), nil
}

// journal is the event log of this process.
type journal struct {
	log   []entry // the newest
	noted int     // entries logged so far
}

// note adds an entry.
func (j *journal) note(kind, text string) {
	j.noted++
	j.log = append(j.log, entry{j.noted, time.Now().UnixMilli(), kind, text})
	if len(j.log) > maxEntries {
		j.log = slices.Clone(j.log[len(j.log)-maxEntries:])
	}
}

// warningText describes a warning in words, with secrets hidden.
func warningText(w report.Warning) string {
	return fmt.Sprintf("after step %d: %s", w.Step, secret.Hide(w.Text))
}

// text describes an event in words.
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
		s = e.ID + " joined, " + e.To
	case e.To == "":
		s = e.ID + " left, was " + e.From
	default:
		s = e.ID + ": " + e.From + " → " + e.To
	}
	if e.Cause != "" {
		s += " (" + strings.ReplaceAll(e.Cause, "\n", "; ") + ")"
	}
	return s
}
