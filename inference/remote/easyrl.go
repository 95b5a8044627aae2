package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"

	"github.com/sourcegraph/conc"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/internal/transport"
	"github.com/easyrl/easyrl/inference/remote/publish"
)

// easyrl is an instance of easyrl serve. Every request names the weights that it wants,
// and every answer those that it got.
type easyrl struct {
	*client
	loopback bool
	exact    bool
	layout   string          // that the server accepts besides rows; may be empty
	latest   *publish.Latest // the store's, or the instance's own
	heard    atomic.Bool     // the last claim of the server succeeded
	beats    conc.WaitGroup
	stop     func() // ends beats; nil before they start
}

// EasyRL is the name of the kind of easyrl serve.
const EasyRL = "easyrl"

func easyrlKind() Kind {
	return Kind{Name: EasyRL, Title: "easyrl", Exact: true, marks: []mark{{"/v1/weights", "boot"}}, open: newEasyrl}
}

// held is the answer to GET and PUT /v1/weights.
type held struct {
	Version  *int64 `json:"version"`
	Checksum string `json:"checksum"`
	Config   string `json:"config"`   // model fingerprint; may be empty
	Capacity int    `json:"capacity"` // 0 if not reported
	Cores    int    `json:"cores"`    // 0 if not reported
	Layout   string `json:"layout"`   // of panels accepted besides rows; may be empty
	// Simulated servers compute nothing, so their log-probabilities are arbitrary.
	Simulated bool `json:"simulated"`
}

func newEasyrl(ctx context.Context, c *client) (Server, error) {
	if err := c.readModel(ctx); err != nil {
		return nil, err
	}
	var h held
	if err := c.http.Get(ctx, "/v1/weights", &h); err != nil {
		return nil, err
	}
	if err := h.check(c.cfg.Computes); err != nil {
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
	if err := e.try(ctx); err != nil {
		return nil, publish.Fault(err)
	}
	return e, nil
}

// Exact implements inference.Exact.
func (e *easyrl) Exact() bool { return e.exact }

// Generate samples exactly the tokens and log-probabilities that an embedded engine
// would.
func (e *easyrl) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
	out, err := e.generate(ctx, &req)
	if err != nil {
		return nil, fmt.Errorf("instance %s: %w", e.url, err)
	}
	return out, nil
}

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
	got := newAnswerDecoder(req, limit)
	var weights *completionAnswer // that the first answer names
	err = e.complete(ctx, &body, bodyLimit(req, limit), func(a *completionAnswer) error {
		if weights == nil {
			weights = a
		}
		err := sameWeights(a, weights, req.Version)
		if err == nil {
			err = got.add(a, func(index int, c inference.Completion) {
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
	out, err := got.completions()
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

// sameWeights returns an error unless a is of the first answer's weights and of the version
// asked for, if any.
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

// Publish sends w as a file's path if the server runs on this machine and there is a
// store, and as a stream otherwise. It uses the in-memory layout if the server accepts
// that, and rows otherwise. All files carry their checksum.
func (e *easyrl) Publish(ctx context.Context, w inference.Weights) (string, error) {
	var h held
	var err error
	if e.cfg.Trainer.ID != "" {
		err = e.take(ctx)
	}
	if err == nil {
		err = e.send(ctx, w, &h)
	}
	if err == nil {
		err = h.check(e.cfg.Computes)
	}
	switch {
	case err != nil:
	case h.Version == nil || *h.Version != w.Version():
		err = fmt.Errorf("PUT /v1/weights: server has version %s, expected %d", printed(h.Version), w.Version())
	case h.Checksum != w.Checksum():
		err = fmt.Errorf("PUT /v1/weights: server has checksum %q, expected %s", h.Checksum, w.Checksum())
	}
	if err != nil {
		return "", fmt.Errorf("instance %s: %w", e.url, publish.Fault(err))
	}
	return h.Checksum, nil
}

// send tries the forms that the server may refuse first. A loopback port may lead to
// another machine or another user's server, and the server may have been replaced.
func (e *easyrl) send(ctx context.Context, w inference.Weights, h *held) error {
	layouts := []string{""}
	if p, ok := w.(publish.Packed); ok && e.layout != "" && p.Layout() == e.layout {
		layouts = []string{e.layout, ""}
	}
	var err error
	for _, layout := range layouts {
		if err = e.sendIn(ctx, w, layout, h); !refuses(err) {
			return err
		}
	}
	return err
}

// refuses reports whether a server refused the form in which weights were sent.
func refuses(err error) bool {
	var refused *transport.StatusError
	return errors.As(err, &refused) && (errors.Is(err, inference.ErrInvalid) || refused.Status == http.StatusForbidden)
}

// sendIn sends w in a layout of publish.Latest.Put.
func (e *easyrl) sendIn(ctx context.Context, w inference.Weights, layout string, h *held) error {
	query := url.Values{"version": {fmt.Sprint(w.Version())}}
	if e.cfg.Trainer.ID != "" {
		query.Set("trainer", e.cfg.Trainer.ID)
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
		if !refuses(err) {
			return err
		}
	}
	return e.stream(ctx, streamed, file, file.Size(), h)
}

// sendSized streams w while it is being read.
func (e *easyrl) sendSized(ctx context.Context, w inference.Weights, sized publish.Sized, path string, h *held) error {
	size, err := sized.Size()
	if err != nil {
		return err
	}
	from, to := io.Pipe()
	var writing conc.WaitGroup
	defer writing.Wait()
	var failed error
	writing.Go(func() {
		failed = w.WriteSafetensors(to)
		_ = to.CloseWithError(failed) // never fails
	})
	stop := context.AfterFunc(ctx, func() { _ = from.CloseWithError(context.Cause(ctx)) }) // never fails
	defer stop()
	err = e.stream(ctx, path, from, size, h)
	_ = from.CloseWithError(io.ErrClosedPipe) // ends the writer; never fails
	writing.Wait()
	if failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
		return fmt.Errorf("read weights: %w", failed)
	}
	return err
}

// stream puts a file of size bytes.
func (e *easyrl) stream(ctx context.Context, path string, file io.Reader, size int64, h *held) error {
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

// check refuses a server that computes something else with the same weights.
func (h *held) check(computes string) error {
	if computes == "" || h.Config == "" || h.Config == computes {
		return nil
	}
	return fmt.Errorf("/v1/weights: config.json describes another model (%.40q, expected %q)", h.Config, computes)
}

func printed(v *int64) string {
	if v == nil {
		return "unknown"
	}
	return fmt.Sprint(*v)
}
