package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/internal/transport"
)

// client is the part that instances of all kinds share. Its fields do not change after
// Dial.
type client struct {
	cfg      Config
	url      string // cfg.URL
	http     *transport.Client
	kind     Kind
	model    string // name of the model to request
	context  int    // maximum number of positions of prompt and response; 0 if unknown
	capacity int    // number of responses that the server samples at once
	cores    int    // number of cores that sample; 0 if unknown
}

// newClient returns a client without the fields that open reads from the server.
func newClient(cfg Config) *client {
	return &client{
		cfg: cfg, url: cfg.URL, model: cfg.Model, capacity: cfg.Capacity,
		http: transport.New(transport.Config{URL: cfg.URL, Token: cfg.Token, Connect: cfg.Connect, Stall: cfg.Stall,
			Dial: cfg.dial}),
	}
}

// open detects the server's kind, or checks the configured one, and returns the instance of that
// kind.
func (c *client) open(ctx context.Context) (Server, error) {
	c.kind, _ = kindOf(c.cfg.Kind) // Validate has checked that it exists or is empty
	var err error
	if c.cfg.Kind == "" {
		c.kind, err = c.recognize(ctx)
	} else {
		err = c.confirm(ctx)
	}
	if err != nil {
		return nil, err
	}
	if c.cfg.Adapters && !c.kind.adapters {
		return nil, fmt.Errorf("instance %s: kind is %s, expected %s, which takes LoRA adapters without the model "+
			"(torch.publish = %q)", c.url, c.kind.Name, VLLM, "adapter")
	}
	inst, err := c.kind.open(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("instance %s: %w", c.url, err)
	}
	if c.context > 0 && c.context < c.cfg.Context {
		return nil, fmt.Errorf("instance %s: context has %d positions, "+
			"expected at least %d for a prompt and its response", c.url, c.context, c.cfg.Context)
	}
	if c.capacity == 0 {
		c.capacity = defaultCapacity
	}
	return inst, nil
}

// defaultCapacity is the capacity of a server that reports none.
const defaultCapacity = 64

// recognize detects the kind of the server by its marks. A server that cannot answer now is an error,
// because another kind's mark must not decide.
func (c *client) recognize(ctx context.Context) (Kind, error) {
	for _, m := range marks() {
		var body map[string]any
		err := c.http.Get(ctx, m.path, &body)
		if _, ok := body[m.field]; err == nil && ok {
			return m.kind, nil
		}
		var refused *transport.StatusError
		if err != nil && !errors.As(err, &refused) && !errors.Is(err, transport.ErrBody) {
			return Kind{}, fmt.Errorf("instance %s: %w", c.url, err)
		}
		// The server requires a token, is starting, or is a proxy without a backend.
		if refused != nil && (refused.Status == 401 || refused.Status == 403 || refused.Status >= 500) {
			return Kind{}, fmt.Errorf("instance %s: %w", c.url, err)
		}
	}
	return Kind{}, c.unknown(ctx)
}

// ID returns the server's address.
func (c *client) ID() string { return c.url }

// Kind returns the server's kind.
func (c *client) Kind() Kind { return c.kind }

// Capacity returns the number of responses that the server samples at once.
func (c *client) Capacity() int { return c.capacity }

// Cores implements inference.Hosted.
func (c *client) Cores() int { return c.cores }

// Probe checks that the server is healthy.
func (c *client) Probe(ctx context.Context) error {
	if err := c.http.Get(ctx, "/health", nil); err != nil {
		return fmt.Errorf("instance %s: %w", c.url, err)
	}
	return nil
}

// Close ends all calls with inference.ErrClosed. The server keeps running.
func (c *client) Close() error {
	c.http.Close(fmt.Errorf("instance %s: %w", c.url, inference.ErrClosed))
	return nil
}

// readModel reads the name of the model and its context from GET /v1/models.
func (c *client) readModel(ctx context.Context) error {
	list, err := c.listModels(ctx)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return errors.New("GET /v1/models: no models, expected at least 1")
	}
	for _, m := range list {
		if c.model == "" || c.model == m.ID {
			c.model, c.context = m.ID, m.MaxModelLen
			return nil
		}
	}
	return fmt.Errorf("GET /v1/models: no model %q; the first is %q", c.model, list[0].ID)
}

// servedModel is an entry of the answer to GET /v1/models.
type servedModel struct {
	ID          string `json:"id"`
	MaxModelLen int    `json:"max_model_len"`
}

// listModels returns the server's models, including its adapters.
func (c *client) listModels(ctx context.Context) ([]servedModel, error) {
	var list struct {
		Data []servedModel `json:"data"`
	}
	err := c.http.Get(ctx, "/v1/models", &list)
	return list.Data, err
}

// limit validates req and returns the maximum number of tokens of a response: req's, or what the
// prompt leaves of the model's context. Errors wrap inference.ErrInvalid.
func (c *client) limit(req *inference.Request) (int, error) {
	if err := req.Validate(); err != nil {
		return 0, err
	}
	if req.PromptTop > 0 {
		return 0, fmt.Errorf("%w: a server's client cannot report the likeliest tokens of the prompt",
			inference.ErrInvalid)
	}
	if c.context == 0 {
		return req.Sampling.MaxTokens, nil
	}
	left := c.context - len(req.PromptIDs)
	if left < 1 {
		return 0, fmt.Errorf("%w: prompt of %d tokens, expected fewer than the context of %d", inference.ErrInvalid,
			len(req.PromptIDs), c.context)
	}
	return min(req.Sampling.MaxTokens, left), nil
}

// forAll calls do for 0 to n-1 concurrently and waits for all calls. It returns the first error, which
// cancels the other calls, or the cause of ctx.
func forAll(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := do(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// complete posts a completion request once. each gets each answer as it arrives: one per choice if
// body asks for that, otherwise a single one. limit is the maximum size of all answers in bytes.
func (c *client) complete(
	ctx context.Context, body *completionRequest, limit int64,
	each func(a *completionAnswer) error,
) error {
	const path = "/v1/completions"
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	read := func(value []byte) error {
		var a struct {
			completionAnswer
			Status int `json:"status"` // of an error after the first answer; otherwise 0
		}
		if err := json.Unmarshal(value, &a); err != nil {
			return fmt.Errorf("POST %s: %w: %w", path, transport.ErrBody, err)
		}
		if a.Status != 0 {
			return transport.Refusal("POST "+path, a.Status, value)
		}
		return each(&a.completionAnswer)
	}
	call := transport.Call{Method: http.MethodPost, Path: path, Body: data, Limit: limit, Long: true}
	if body.StreamChoices {
		call.Each = read
		return c.http.Once(ctx, call, nil)
	}
	var answer json.RawMessage
	if err := c.http.Once(ctx, call, &answer); err != nil {
		return err
	}
	return read(answer)
}
