package control

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/internal/plain"
	"github.com/easyrl/easyrl/internal/secret"
	"github.com/easyrl/easyrl/report"
)

const (
	// maxListeners limits the number of concurrent clients of /events.
	maxListeners = 64
	// maxUnsent limits the queue of unsent events for one listener. The server cuts off a listener whose
	// queue is full.
	maxUnsent = 256
	// eventsBeat is the interval between keep-alives to a listener.
	eventsBeat = 10 * time.Second
)

// InstanceEvent describes a change of an instance's state, including joining and
// leaving. An event without ID is about the whole fleet: with a Cause, too few instances serve; without
// one, enough serve again.
type InstanceEvent struct {
	ID string `json:"id,omitempty"`
	// From and To are states. From is empty if the instance joined, To if it left.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Cause is empty if unknown.
	Cause string `json:"cause,omitempty"`
}

// Instance sends an instance event to all listeners. It does not block.
func (c *Server) Instance(e InstanceEvent) {
	e.Cause = secret.Hide(e.Cause)
	c.publish("instance", secret.Hide(e.text()), e)
}

// Warning sends a warning to all listeners as event "warning". It does not block.
// Later listeners find warnings in the run's folder.
func (c *Server) Warning(w report.Warning) { c.publish("warning", warningText(w), w) }

// publish logs text and sends v to all listeners as an event.
func (c *Server) publish(name, text string, v any) {
	if c == nil {
		return
	}
	body, err := json.Marshal(v)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.journal.note(name, text)
	c.listeners.broadcast(name, body)
}

// listeners are the clients of /events, each a queue of unsent events. broadcast closes a queue when it
// cuts the listener off.
type listeners map[chan []byte]struct{}

// broadcast sends an event to all listeners and cuts off those that fall behind.
func (all listeners) broadcast(name string, body []byte) {
	text := event(name, body)
	for l := range all {
		select {
		case l <- text:
		default:
			delete(all, l)
			close(l)
		}
	}
}

// event returns a server-sent event.
func event(name string, body []byte) []byte {
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, plain.JSON(bytes.TrimSpace(body)))
}

// listen adds a listener and queues the last step for it. It returns nil if there are
// too many listeners or the run has ended.
func (c *Server) listen() chan []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.listeners) >= maxListeners || c.ctx.Err() != nil {
		return nil
	}
	l := make(chan []byte, maxUnsent)
	if c.last != nil {
		l <- event("step", c.last.Line())
	}
	c.listeners[l] = struct{}{}
	return l
}

// unlisten removes a listener.
func (c *Server) unlisten(l chan []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.listeners, l)
}

// serveEvents streams steps, warnings and instance events as server-sent events. The stream ends when the
// client leaves, when the server cuts it off or, after Close, when everything is sent.
func (c *Server) serveEvents(ctx *fasthttp.RequestCtx) {
	if !ctx.IsGet() {
		refuse(ctx, fasthttp.StatusMethodNotAllowed, "%s /events: expected GET", ctx.Method())
		return
	}
	l := c.listen()
	if l == nil {
		refuse(ctx, fasthttp.StatusServiceUnavailable, "too many listeners, expected at most %d", maxListeners)
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
		alive := []byte(": \n\n") // a comment, which clients ignore
		for next, open := alive, true; open && sendEvent(conn, w, next) == nil; {
			select {
			case next, open = <-l:
			case <-beat.C:
				next = alive
			case <-done:
				var unsent []byte
				for len(l) > 0 {
					unsent = append(unsent, <-l...)
				}
				_ = sendEvent(conn, w, unsent)
				return
			}
		}
	})
}

// sendEvent writes one event. Each event restarts the connection's write timeout.
func sendEvent(conn net.Conn, w *bufio.Writer, event []byte) error {
	if err := conn.SetWriteDeadline(time.Now().Add(controlWrite)); err != nil {
		return err
	}
	if _, err := w.Write(event); err != nil {
		return err
	}
	return w.Flush()
}
