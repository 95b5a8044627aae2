package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"

	"github.com/sourcegraph/conc"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/internal/transport"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/npu"
)

// easyrl is an instance of easyrl serve. A request may name the version of the weights that must
// answer it, and every answer names the version and checksum of the weights that did.
type easyrl struct {
	*client
	loopback bool            // the URL leads to this machine
	exact    bool            // see inference.Exact
	layout   string          // layout that the server accepts besides rows; may be empty
	latest   *publish.Latest // the store's, or the instance's own
	claimed  atomic.Bool     // the last claim or renewal succeeded
	renewals conc.WaitGroup  // the goroutine that renews the claim
	stop     func()          // ends renewals; nil before Claim
}

// EasyRL is the name of the kind of easyrl serve.
const EasyRL = "easyrl"

// easyrlKind returns the kind of easyrl serve.
func easyrlKind() Kind {
	return Kind{Name: EasyRL, Title: "easyrl", Exact: true, marks: []mark{{"/v1/weights", "boot"}}, open: newEasyrl}
}

// heldWeights is the answer to GET and PUT /v1/weights: the weights that a server holds.
type heldWeights struct {
	Version  *int64 `json:"version"`
	Checksum string `json:"checksum"`
	Config   string `json:"config"`   // fingerprint of the computation; may be empty
	Capacity int    `json:"capacity"` // 0 if not reported
	Cores    int    `json:"cores"`    // 0 if not reported
	Layout   string `json:"layout"`   // layout accepted besides rows; may be empty
	// Numerics and NumericsVersion are the arithmetic of the server. A server without them computes in float32.
	Numerics        string `json:"numerics"`
	NumericsVersion int    `json:"numerics_version"`
	// Simulated is set by servers that compute nothing, so their log-probabilities are arbitrary.
	Simulated bool `json:"simulated"`
}

// newEasyrl connects to easyrl serve; see Kind.open.
func newEasyrl(ctx context.Context, c *client) (Server, error) {
	if err := c.readModel(ctx); err != nil {
		return nil, err
	}
	var h heldWeights
	if err := c.http.Get(ctx, "/v1/weights", &h); err != nil {
		return nil, err
	}
	if err := h.check(&c.cfg); err != nil {
		return nil, err
	}
	if c.capacity == 0 && h.Capacity > 0 {
		c.capacity = h.Capacity
	}
	c.cores = max(0, h.Cores)
	u, err := url.Parse(c.url)
	if err != nil {
		return nil, err
	}
	ip := net.ParseIP(u.Hostname())
	e := &easyrl{client: c, layout: h.Layout, exact: !h.Simulated,
		loopback: u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()}
	if c.cfg.Store != nil {
		e.latest = c.cfg.Store.Latest()
	} else {
		e.latest = publish.NewLatest()
	}
	if err := e.checkClaim(ctx); err != nil {
		return nil, publish.ServerError(err)
	}
	return e, nil
}

// Exact implements inference.Exact.
func (e *easyrl) Exact() bool { return e.exact }

// Generate implements inference.Instance. Unless the server is simulated, the tokens and
// log-probabilities are bitwise equal to those of an engine in this process.
func (e *easyrl) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
	out, err := e.generate(ctx, &req)
	if err != nil {
		return nil, fmt.Errorf("instance %s: %w", e.url, err)
	}
	return out, nil
}

// generate is Generate without the instance's name in errors.
func (e *easyrl) generate(ctx context.Context, req *inference.Request) ([]inference.Completion, error) {
	limit, err := e.limit(req)
	if err != nil {
		return nil, err
	}
	body := newCompletionRequest("", req, limit) // the server has only one model
	body.SampleIndex = req.FirstIndex
	if req.Version != 0 {
		body.WeightVersion = &req.Version
	}
	body.StreamChoices = req.Ended != nil
	decoder := newAnswerDecoder(req, limit)
	var weights *completionAnswer // the first answer, which names the weights
	err = e.complete(ctx, &body, bodyLimit(req, limit), func(a *completionAnswer) error {
		if weights == nil {
			weights = a
		}
		err := sameWeights(a, weights, req.Version)
		if err == nil {
			err = decoder.add(a, func(index int, c inference.Completion) {
				if req.Ended != nil && c.Finish != finishAbort {
					c.Version, c.Checksum = *a.WeightVersion, a.Checksum
					req.Ended(index, c)
				}
			})
		}
		if err != nil {
			err = fmt.Errorf("POST /v1/completions: %w", err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	out, err := decoder.completions()
	if err != nil {
		return nil, fmt.Errorf("POST /v1/completions: %w", err)
	}
	for i := range out {
		if out[i].Finish == finishAbort {
			return nil, fmt.Errorf("POST /v1/completions: response %d was aborted", i)
		}
		out[i].Version, out[i].Checksum = *weights.WeightVersion, weights.Checksum
	}
	return out, nil
}

// sameWeights returns an error unless a comes from the same weights as the first answer, and from the
// requested version unless that is 0.
func sameWeights(a, first *completionAnswer, version int64) error {
	switch {
	case a.WeightVersion == nil:
		return errors.New("no weight_version")
	case a.Checksum == "":
		return errors.New("no weight_checksum")
	case version != 0 && *a.WeightVersion != version:
		return fmt.Errorf("server has version %d, expected %d: %w", *a.WeightVersion, version, inference.ErrStale)
	case *a.WeightVersion != *first.WeightVersion || a.Checksum != first.Checksum:
		return fmt.Errorf("weights of version %d were replaced during the answer: %w", *first.WeightVersion,
			inference.ErrStale)
	}
	return nil
}

// Publish sends w as the path of a file if the server runs on this machine and there is a store, and
// as a stream otherwise. It uses the in-memory layout of w if the server accepts it, and rows
// otherwise. All forms contain their checksum.
func (e *easyrl) Publish(ctx context.Context, w inference.Weights) (string, error) {
	var h heldWeights
	var err error
	if e.cfg.Trainer.ID != "" {
		err = e.renewClaim(ctx)
	}
	if err == nil {
		err = e.send(ctx, w, &h)
	}
	if err == nil {
		err = h.check(&e.cfg)
	}
	switch {
	case err != nil:
	case h.Version == nil || *h.Version != w.Version():
		err = fmt.Errorf("PUT /v1/weights: server has version %s, expected %d", printed(h.Version), w.Version())
	case h.Checksum != w.Checksum():
		err = fmt.Errorf("PUT /v1/weights: server has checksum %q, expected %s", h.Checksum, w.Checksum())
	}
	if err != nil {
		return "", fmt.Errorf("instance %s: %w", e.url, publish.ServerError(err))
	}
	return h.Checksum, nil
}

// send sends w in the in-memory layout if the server should accept that, and in rows if it does not.
// The server may refuse what it announced, because it may have been replaced since Dial.
func (e *easyrl) send(ctx context.Context, w inference.Weights, h *heldWeights) error {
	layouts := []string{""}
	if p, ok := w.(publish.Packed); ok && e.layout != "" && p.Layout() == e.layout {
		layouts = []string{e.layout, ""}
	}
	var err error
	for _, layout := range layouts {
		err = e.sendIn(ctx, w, layout, h)
		if !refusesForm(err) {
			return err
		}
	}
	return err
}

// refusesForm reports whether a server refused the form in which weights were sent.
func refusesForm(err error) bool {
	var refused *transport.StatusError
	return errors.As(err, &refused) && (errors.Is(err, inference.ErrInvalid) || refused.Status == http.StatusForbidden)
}

// sendIn sends w in a layout, which is that of publish.Latest.Put.
func (e *easyrl) sendIn(ctx context.Context, w inference.Weights, layout string, h *heldWeights) error {
	query := url.Values{"version": {fmt.Sprint(w.Version())}}
	if e.cfg.Trainer.ID != "" {
		query.Set("trainer", e.cfg.Trainer.ID)
	}
	if n := e.cfg.Numerics; n != (npu.Identity{}) {
		query.Set("numerics", n.Name)
		query.Set("numerics_version", strconv.Itoa(n.Version))
	}
	streamed := "/v1/weights?" + query.Encode()
	if sized, ok := w.(publish.Sized); ok {
		return e.sendSized(ctx, w, sized, streamed, h)
	}
	path, file, err := e.latest.Put(ctx, w, layout)
	if err != nil {
		return err
	}
	if e.loopback && e.cfg.Store != nil && path != "" {
		query.Set("path", path)
		err := e.http.Do(ctx, transport.Call{Method: http.MethodPut, Path: "/v1/weights?" + query.Encode(),
			Body: []byte{}, Long: true}, h)
		if !refusesForm(err) {
			return err
		}
		// A loopback port may lead to another machine, or to a server of another user.
	}
	return e.stream(ctx, streamed, file, file.Size(), h)
}

// sendSized streams w to the server while WriteSafetensors computes or reads it.
func (e *easyrl) sendSized(
	ctx context.Context, w inference.Weights, sized publish.Sized, path string, h *heldWeights,
) error {
	size, err := sized.Size()
	if err != nil {
		return err
	}
	from, to := io.Pipe()
	var writing conc.WaitGroup
	defer writing.Wait()
	var writeErr error // may be read after writing.Wait
	writing.Go(func() {
		writeErr = w.WriteSafetensors(to)
		_ = to.CloseWithError(writeErr) // never fails
	})
	stop := context.AfterFunc(ctx, func() { _ = from.CloseWithError(context.Cause(ctx)) }) // never fails
	defer stop()
	err = e.stream(ctx, path, from, size, h)
	_ = from.CloseWithError(io.ErrClosedPipe) // ends the writer; never fails
	writing.Wait()
	if writeErr != nil && !errors.Is(writeErr, io.ErrClosedPipe) { // the cause of err
		return fmt.Errorf("read weights: %w", writeErr)
	}
	return err
}

// stream sends a file of size bytes to path. file is not read after stream has returned.
func (e *easyrl) stream(ctx context.Context, path string, file io.Reader, size int64, h *heldWeights) error {
	body := &transport.Revocable{From: file}
	defer body.Revoke()
	return e.http.Do(ctx, transport.Call{
		Method: http.MethodPut, Path: path, Stream: body, Long: true,
		Prepare: func(req *http.Request) {
			req.Header.Set("Content-Type", "application/octet-stream")
			req.ContentLength = size
		},
	}, h)
}

// check returns an error if the server computes another function of the weights than the trainer, or with other
// numerics.
func (h *heldWeights) check(cfg *Config) error {
	if cfg.Computes != "" && h.Config != "" && h.Config != cfg.Computes {
		return fmt.Errorf("/v1/weights: config.json describes another model (%.40q, expected %q)", h.Config,
			cfg.Computes)
	}
	want := cfg.Numerics
	if want == (npu.Identity{}) || h.Simulated {
		return nil
	}
	got := npu.Identity{Name: h.Numerics, Version: h.NumericsVersion}
	if got == (npu.Identity{}) { // a server older than these fields
		got = npu.Identity{Name: npu.FP32.String(), Version: want.Version}
	}
	if got != want {
		return fmt.Errorf("/v1/weights: the server computes in %.60q, expected %q, as the trainer", got, want)
	}
	return nil
}

// printed returns a version for error messages.
func printed(v *int64) string {
	if v == nil {
		return "unknown"
	}
	return fmt.Sprint(*v)
}
