package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/easyrl/easyrl/inference"
)

// easyrl is an instance of easyrl serve. Every request says which weights it
// wants and every answer which it got.
type easyrl struct {
	*client
	loopback bool
}

var (
	_ Instance = (*easyrl)(nil)
	_ Instance = (*vllm)(nil)
	_ Instance = (*sglang)(nil)
	_ Instance = (*llama)(nil)
)

// held is the answer to GET and PUT /v1/weights.
type held struct {
	Version  *int64 `json:"version"`
	Checksum string `json:"checksum"`
	Capacity int    `json:"capacity"` // where the server says it
}

func newEasyrl(ctx context.Context, c *client) (*easyrl, error) {
	if err := c.readModel(ctx); err != nil {
		return nil, err
	}
	var h held
	if err := c.get(ctx, "/v1/weights", &h); err != nil {
		return nil, err
	}
	if c.capacity == 0 && h.Capacity > 0 {
		c.capacity = h.Capacity
	}
	u, err := url.Parse(c.url)
	if err != nil {
		return nil, err
	}
	ip := net.ParseIP(u.Hostname())
	return &easyrl{c, u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()}, nil
}

// Generate samples with the very tokens and log-probabilities that an embedded
// engine gives.
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
	body := newCompletionRequest(e.model, req, limit)
	body.SampleIndex = req.FirstIndex
	if req.Version != 0 {
		body.WeightVersion = &req.Version
	}
	var a completionAnswer
	if err := e.complete(ctx, &body, bodyLimit(req, limit), &a); err != nil {
		return nil, err
	}
	if a.WeightVersion == nil {
		return nil, errors.New("POST /v1/completions: no weight_version")
	}
	if req.Version != 0 && *a.WeightVersion != req.Version {
		return nil, fmt.Errorf("POST /v1/completions: weights of version %d, expected %d: %w", *a.WeightVersion, req.Version, inference.ErrStale)
	}
	out, err := decodeCompletions(&a, req, limit)
	if err != nil {
		return nil, fmt.Errorf("POST /v1/completions: %w", err)
	}
	for i := range out {
		if out[i].Finish == abort {
			return nil, fmt.Errorf("POST /v1/completions: response %d was broken off", i)
		}
		out[i].Version = *a.WeightVersion
	}
	return out, nil
}

// complete posts a completion request.
func (c *client) complete(ctx context.Context, body *completionRequest, limit int64, out *completionAnswer) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.do(ctx, call{method: http.MethodPost, path: "/v1/completions", body: data, limit: limit, long: true}, out)
}

// Publish sends w as a file's path where the server is on this machine and
// there is a store, and as a stream otherwise.
func (e *easyrl) Publish(ctx context.Context, w inference.Weights) (string, error) {
	var h held
	var err error
	sent := false
	if e.loopback && e.store != nil {
		var refused *statusError
		err = e.publishFile(ctx, w, &h)
		// A port of this machine may lead to another one.
		sent = !errors.As(err, &refused) || !errors.Is(err, inference.ErrInvalid) && refused.status != http.StatusForbidden
	}
	if !sent {
		err = e.publishStream(ctx, w, &h)
	}
	switch {
	case err != nil:
	case h.Version == nil || *h.Version != w.Version():
		err = fmt.Errorf("PUT /v1/weights: serves version %s, expected %d", printed(h.Version), w.Version())
	case h.Checksum != w.Checksum():
		err = fmt.Errorf("PUT /v1/weights: serves checksum %q, expected %s", h.Checksum, w.Checksum())
	}
	if err != nil {
		return "", fmt.Errorf("instance %s: %w", e.url, notData(err))
	}
	return h.Checksum, nil
}

func printed(v *int64) string {
	if v == nil {
		return "unknown"
	}
	return fmt.Sprint(*v)
}

// notData is err without the sentinels of requests: a refused publish is a
// fault of the server.
func notData(err error) error {
	if errors.Is(err, inference.ErrInvalid) || errors.Is(err, inference.ErrStale) {
		return errors.New(err.Error())
	}
	return err
}

func (e *easyrl) publishFile(ctx context.Context, w inference.Weights, h *held) error {
	folder, err := e.store.Put(ctx, w)
	if err != nil {
		return err
	}
	query := url.Values{"version": {fmt.Sprint(w.Version())}, "path": {filepath.Join(folder, file)}}
	return e.do(ctx, call{method: http.MethodPut, path: "/v1/weights?" + query.Encode(), body: []byte{}, long: true}, h)
}

// publishStream sends the file as it is written. Its checksum follows in a
// trailer, so that it is read only once.
func (e *easyrl) publishStream(ctx context.Context, w inference.Weights, h *held) error {
	r, pipe := io.Pipe()
	body := &summed{r: r, sum: xxhash.New(), trailer: http.Header{checksumHeader: nil}}
	done := make(chan error, 1)
	go func() {
		buffered := bufio.NewWriterSize(pipe, 1<<20)
		err := w.WriteSafetensors(buffered)
		if err == nil {
			err = buffered.Flush()
		}
		_ = pipe.CloseWithError(err)
		done <- err
	}()
	err := e.do(ctx, call{
		method: http.MethodPut, path: fmt.Sprintf("/v1/weights?version=%d", w.Version()), stream: body, long: true,
		prepare: func(req *http.Request) {
			req.Trailer = body.trailer
			req.Header.Set("Content-Type", "application/octet-stream")
			req.ContentLength = -1
		},
	}, h)
	_ = r.CloseWithError(io.ErrClosedPipe) // w is not read when Publish has returned
	if writeErr := <-done; writeErr != nil && !errors.Is(writeErr, io.ErrClosedPipe) && !strings.Contains(fmt.Sprint(err), writeErr.Error()) {
		return errors.Join(err, fmt.Errorf("write weights: %w", writeErr))
	}
	return err
}

const checksumHeader = "X-Checksum"

// summed puts the XXH64 of what is read into a trailer at the end.
type summed struct {
	r       io.Reader
	sum     *xxhash.Digest
	trailer http.Header
}

func (s *summed) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	_, _ = s.sum.Write(b[:n]) // never fails
	if err == io.EOF {        //nolint:errorlint // a pipe's end is this very value
		s.trailer.Set(checksumHeader, fmt.Sprintf("%016x", s.sum.Sum64()))
	}
	return n, err
}
