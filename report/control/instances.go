package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/internal/plain"
	"github.com/easyrl/easyrl/internal/secret"
)

// Instance describes an inference instance of a run.
type Instance struct {
	ID        string  `json:"id"`
	Kind      string  `json:"kind"`
	URL       string  `json:"url,omitempty"`   // empty for an instance in the run's process
	State     string  `json:"state"`           // in capitals, such as HEALTHY or UPDATING
	Version   int64   `json:"version"`         // last known weight version
	Capacity  int     `json:"capacity"`        // concurrent responses
	Requests  int     `json:"requests"`        // outstanding
	Responses int     `json:"responses"`       // outstanding
	Served    int64   `json:"served"`          // requests answered
	Failed    int64   `json:"failed"`          // requests failed
	Tokens    int64   `json:"tokens"`          // generated
	Busy      float64 `json:"busy_s"`          // seconds with at least one request outstanding
	Fault     string  `json:"fault,omitempty"` // why it lacks the current weights
}

// Errors of Instances that a client can correct.
var (
	// ErrNotFound means that no instance has the given ID.
	ErrNotFound = errors.New("no such instance")
	// ErrInvalid means that an instance cannot be added as requested.
	ErrInvalid = errors.New("cannot be added")
	// ErrEmbedded means that an engine of the run's process cannot be drained or removed.
	ErrEmbedded = errors.New("runs inside the trainer and cannot be drained or removed")
)

// Instances lists and changes a run's inference instances. Its methods may be called concurrently.
type Instances interface {
	List() []Instance
	// Add adds the server at url to the fleet. If the run has published weights, Add returns when the
	// server holds them or has failed to take them. If kind is empty, Add asks the server for it.
	Add(ctx context.Context, url, kind string) (Instance, error)
	// Drain stops sending work to an instance. It does not wait for requests in flight.
	Drain(id string) (Instance, error)
	// Remove takes an instance out of the fleet at once.
	Remove(ctx context.Context, id string) error
	// Evicted reports whether the run dropped an instance that did not answer. Such
	// an instance may join again.
	Evicted(id string) bool
	// Removed reports whether a user drained or removed an instance, before or after
	// the run was resumed, and it has not been added since.
	Removed(id string) bool
}

// Serve lets clients list and change instances. The server refuses such requests until Serve is called.
// states are the states that an instance can have. kinds are the kinds of server that clients can add,
// which refusals name.
func (c *Server) Serve(instances Instances, states []string, kinds ...string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instances, c.stateList, c.kinds = instances, states, kinds
}

// bodyOf describes the body of a request that adds an instance of one of kinds.
func bodyOf(kinds []string) string {
	list := `"` + strings.Join(kinds, `", "`) + `"`
	if last := strings.LastIndex(list, ", "); last >= 0 {
		list = list[:last] + " or" + list[last+1:]
	}
	return `{"url": "http://HOST:PORT", "kind": ` + list + `}`
}

// shown returns m with the secrets in its Fault hidden. ID and URL stay as they are, because clients name
// the instance by them. The URL of an instance never has a password.
func (m Instance) shown() Instance {
	m.Fault = secret.Hide(m.Fault)
	return m
}

// list returns all instances as clients see them.
func list(instances Instances) []Instance {
	all := []Instance{}
	for _, m := range instances.List() {
		all = append(all, m.shown())
	}
	return all
}

// refuse answers with one line of JSON that gives the reason.
func refuse(ctx *fasthttp.RequestCtx, status int, format string, args ...any) {
	message := strings.ReplaceAll(secret.Hide(fmt.Sprintf(format, args...)), "\n", "; ")
	answer(ctx, status, map[string]map[string]string{"error": {"message": message}})
}

// answer answers with v as one line of JSON.
func answer(ctx *fasthttp.RequestCtx, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		ctx.Error(err.Error(), fasthttp.StatusInternalServerError)
		return
	}
	ctx.SetStatusCode(status)
	ctx.SetContentType("application/json")
	ctx.SetBody(append(plain.JSON(body), '\n'))
}

// refuseError answers with the status that fits an error of Instances.
func refuseError(ctx *fasthttp.RequestCtx, err error) {
	status := fasthttp.StatusBadGateway
	switch {
	case errors.Is(err, ErrNotFound):
		status = fasthttp.StatusNotFound
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrEmbedded):
		status = fasthttp.StatusBadRequest
	}
	refuse(ctx, status, "%v", err)
}

// serveInstances answers requests for /instances and the paths below it. path is still escaped, so that an
// ID may contain any character.
func (c *Server) serveInstances(ctx *fasthttp.RequestCtx, path string) {
	c.mu.Lock()
	instances, kinds := c.instances, c.kinds
	c.mu.Unlock()
	if instances == nil {
		refuse(ctx, fasthttp.StatusServiceUnavailable, "the run has not started its instances yet")
		return
	}
	method := string(ctx.Method())
	rest := strings.TrimPrefix(path, "/instances")
	if rest == "" || rest == "/" {
		switch method {
		case fasthttp.MethodGet, fasthttp.MethodHead:
			c.listInstances(ctx, instances)
		case fasthttp.MethodPost:
			c.addInstance(ctx, instances, kinds)
		default:
			refuse(ctx, fasthttp.StatusMethodNotAllowed, "%s /instances: expected GET or POST", method)
		}
		return
	}
	name, action, _ := strings.Cut(rest[1:], "/")
	id, err := url.PathUnescape(name)
	switch {
	case err != nil || id == "":
		refuse(ctx, fasthttp.StatusBadRequest, "%s: expected /instances/ID", path)
	case method == fasthttp.MethodDelete && action == "":
		if err := instances.Remove(c.ctx, id); err != nil {
			refuseError(ctx, err)
			return
		}
		answer(ctx, fasthttp.StatusOK, map[string]string{"id": id})
	case method == fasthttp.MethodPost && action == "drain":
		m, err := instances.Drain(id)
		if err != nil {
			refuseError(ctx, err)
			return
		}
		answer(ctx, fasthttp.StatusOK, m.shown())
	case action != "" && action != "drain":
		refuse(ctx, fasthttp.StatusNotFound, "%s not found, expected /instances/ID or /instances/ID/drain", path)
	default:
		const expected = "DELETE /instances/ID or POST /instances/ID/drain"
		refuse(ctx, fasthttp.StatusMethodNotAllowed, "%s %s: expected %s", method, path, expected)
	}
}

// listInstances lists all instances, or only the one that the query's id names. The answer contains boot,
// by which an instance that joined notices that the run restarted without it. given_up means that the
// run dropped the named instance and that it may join again. taken_out means that a user drained
// or removed it and that it should not join again on its own.
func (c *Server) listInstances(ctx *fasthttp.RequestCtx, instances Instances) {
	all := list(instances)
	listing := map[string]any{"boot": c.boot}
	if args := ctx.QueryArgs(); args.Has("id") {
		id := string(args.Peek("id"))
		all = slices.DeleteFunc(all, func(m Instance) bool { return m.ID != id })
		if instances.Evicted(id) {
			listing["given_up"] = true
		}
		if instances.Removed(id) {
			listing["taken_out"] = true
		}
	}
	listing["instances"] = all
	answer(ctx, fasthttp.StatusOK, listing)
}

// addInstance reads {"url": …, "kind": …} and adds that server.
func (c *Server) addInstance(ctx *fasthttp.RequestCtx, instances Instances, kinds []string) {
	var asked struct {
		URL  string `json:"url"`
		Kind string `json:"kind"`
	}
	in := json.NewDecoder(bytes.NewReader(ctx.PostBody()))
	in.DisallowUnknownFields()
	if err := in.Decode(&asked); err != nil {
		refuse(ctx, fasthttp.StatusBadRequest, "body: %v, expected %s", err, bodyOf(kinds))
		return
	}
	if in.More() {
		refuse(ctx, fasthttp.StatusBadRequest, "body: more than one value, expected %s", bodyOf(kinds))
		return
	}
	u, err := url.Parse(asked.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		refuse(ctx, fasthttp.StatusBadRequest, "url is %q, expected %s", asked.URL, bodyOf(kinds))
		return
	}
	m, err := instances.Add(c.ctx, asked.URL, asked.Kind)
	if err != nil {
		refuseError(ctx, err)
		return
	}
	answer(ctx, fasthttp.StatusCreated, struct {
		Instance
		Boot string `json:"boot"`
	}{m.shown(), c.boot})
}
