package control

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/report"
)

const (
	// mostListeners of /events at once.
	mostListeners = 64
	// eventsBehind is how many events a listener may be behind before it is cut
	// off.
	eventsBehind = 256
	// eventsBeat is how often a listener hears that the run is there.
	eventsBeat = 10 * time.Second
)

// InstanceEvent is a change of an instance's state, or its coming or going.
// Without ID it is of all of them: Cause says that too few serve, none that
// enough do again.
type InstanceEvent struct {
	ID string `json:"id,omitempty"`
	// From and To are states; From is empty where it came, To where it went.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Cause, where one is known.
	Cause string `json:"cause,omitempty"`
}

// Instance tells those who listen of an instance. It does not block.
func (c *Server) Instance(e InstanceEvent) {
	if c == nil {
		return
	}
	body, err := json.Marshal(e)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("instance", e.text())
	c.tell("instance", body)
}

// Warning tells those who listen of a warning, as event "warning". It does not
// block. Those who come later find it in the run's folder.
func (c *Server) Warning(w report.Warning) {
	if c == nil {
		return
	}
	body, err := json.Marshal(w)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("warning", warningText(w))
	c.tell("warning", body)
}

// tell sends an event to all listeners and cuts off those that do not keep up.
// c.mu is held.
func (c *Server) tell(name string, body []byte) {
	event := fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, bytes.TrimSpace(body))
	for l := range c.listeners {
		select {
		case l <- event:
		default:
			delete(c.listeners, l)
			close(l)
		}
	}
}

// listen adds a listener, which hears of the last step first, or returns nil
// where there are too many.
func (c *Server) listen() chan []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.listeners) >= mostListeners || c.ctx.Err() != nil {
		return nil
	}
	l := make(chan []byte, eventsBehind)
	if c.last != nil {
		l <- fmt.Appendf(nil, "event: step\ndata: %s\n\n", bytes.TrimSpace(c.last.Line()))
	}
	c.listeners[l] = struct{}{}
	return l
}

func (c *Server) unlisten(l chan []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.listeners, l)
}

// serveEvents sends steps and what happens to instances, as server-sent events,
// until the client goes, or the run and all has been sent.
func (c *Server) serveEvents(ctx *fasthttp.RequestCtx) {
	if !ctx.IsGet() {
		refuse(ctx, fasthttp.StatusMethodNotAllowed, "%s /events: expected GET", ctx.Method())
		return
	}
	l := c.listen()
	if l == nil {
		refuse(ctx, fasthttp.StatusServiceUnavailable, "too many listeners, expected %d at most", mostListeners)
		return
	}
	ctx.SetContentType("text/event-stream")
	ctx.Response.Header.Set("Cache-Control", "no-store")
	ctx.Response.ImmediateHeaderFlush = true
	conn, done := ctx.Conn(), c.ctx.Done()
	ctx.SetBodyStreamWriter(func(w *bufio.Writer) {
		defer c.unlisten(l)
		beat := time.NewTicker(eventsBeat)
		defer beat.Stop()
		for sendEvent(conn, w, []byte(": \n\n")) == nil {
			for quiet := true; quiet; {
				select {
				case event, ok := <-l:
					if !ok || sendEvent(conn, w, event) != nil {
						return
					}
				case <-beat.C:
					quiet = false
				case <-done:
					var left []byte
					for len(l) > 0 {
						left = append(left, <-l...)
					}
					_ = sendEvent(conn, w, left)
					return
				}
			}
		}
	})
}

// sendEvent writes one event; the time that a connection has to take a response
// starts anew with each.
func sendEvent(conn net.Conn, w *bufio.Writer, event []byte) error {
	if err := conn.SetWriteDeadline(time.Now().Add(controlWrite)); err != nil {
		return err
	}
	if _, err := w.Write(event); err != nil {
		return err
	}
	return w.Flush()
}
