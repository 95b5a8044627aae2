// Package remote samples with inference servers over HTTP: easyrl serve, vLLM,
// SGLang and, for evaluation, llama.cpp.
//
// # What is verified
//
// An instance has taken new weights when it says so itself, never because it
// answered 200. easyrl reports version and checksum of what it serves. SGLang
// and vLLM are told a label made of both, and must report it, SGLang with each
// response and vLLM, through the worker extension in deploy/vllm, after each. A
// label is a claim, so a Canary may also compare the log-probabilities of a
// fixed prompt with the trainer's.
//
// # Deadlines
//
// A connection has Config.Connect, a body Config.Stall for each 64 KiB, and a
// call waits for its answer as long as its context does, but only while the
// server answers GET /health within Config.Stall.
//
// # Randomness
//
// easyrl honours a request's seed exactly; vLLM and llama.cpp repeat themselves
// as far as their batching does; SGLang looks at seeds only where it runs with
// --enable-deterministic-inference.
package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/easyrl/easyrl/inference"
)

// Kind is the dialect of a server.
type Kind string

// The kinds of servers.
const (
	Easyrl   Kind = "easyrl"
	VLLM     Kind = "vllm"
	SGLang   Kind = "sglang"
	LlamaCpp Kind = "llamacpp"
)

// Config says where a server is and how to bear with it.
type Config struct {
	URL   string // http://host:port or https://…, which also names the instance
	Kind  Kind   // empty asks the server
	Token string // bearer token of all calls, where set
	// Model is the name to ask for; empty takes the first that the server lists.
	Model string
	// Capacity is the number of responses that the server samples at once; 0
	// takes what it says, or 64 where it says nothing.
	Capacity int
	// Store is where weights are written for servers that read them from files:
	// vLLM, SGLang, and easyrl on this machine. The same store serves several
	// instances. Without one vLLM and SGLang take no weights.
	Store *Store
	// Context is how many positions a prompt and a response may need together, and
	// Computes what an easyrl server's model must say that it computes; 0 and empty
	// ask for nothing.
	Context  int
	Computes string
	// Trainer is who publishes, where that is known: an easyrl server that has another
	// one is refused, and takes no weights of another while it is held.
	Trainer Trainer
	// Canary, where set, is asked after each publish to vLLM and SGLang.
	Canary *Canary
	// Connect ends the set-up of a connection, 0 is 10 seconds; Stall a body
	// that does not move and a server that does not answer, 0 is 30 seconds.
	Connect, Stall time.Duration

	dial func(ctx context.Context, network, addr string) (net.Conn, error) // of tests
}

// Validate reports all faults of c.
func (c *Config) Validate() error {
	var faults []error
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		faults = append(faults, fmt.Errorf("instance: url: %w", err))
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		faults = append(faults, fmt.Errorf("instance: url %q, expected http://host:port", u.Redacted()))
	}
	switch c.Kind {
	case "", Easyrl, VLLM, SGLang, LlamaCpp:
	default:
		faults = append(faults, fmt.Errorf("instance %s: kind %q, expected easyrl, vllm, sglang or llamacpp", c.URL, c.Kind))
	}
	if c.Capacity < 0 {
		faults = append(faults, fmt.Errorf("instance %s: capacity %d, expected 0 or more", c.URL, c.Capacity))
	}
	if c.Connect < 0 || c.Stall < 0 {
		faults = append(faults, fmt.Errorf("instance %s: deadlines %v and %v, expected 0 or more", c.URL, c.Connect, c.Stall))
	}
	if c.Canary != nil {
		faults = append(faults, c.Canary.validate())
	}
	return errors.Join(faults...)
}

// Instance is a server as an inference.Instance.
type Instance interface {
	inference.Instance
	// Kind is what the server is.
	Kind() Kind
	// Probe asks the server whether it is well. It says nothing about the
	// weights.
	Probe(ctx context.Context) error
}

// Dial asks the server what it is and returns it. Nothing is sampled and no
// weights are sent.
func Dial(ctx context.Context, cfg Config) (Instance, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.URL = strings.TrimRight(cfg.URL, "/")
	if cfg.Connect == 0 {
		cfg.Connect = 10 * time.Second
	}
	if cfg.Stall == 0 {
		cfg.Stall = 30 * time.Second
	}
	c := newClient(cfg)
	inst, err := open(ctx, c)
	if e, ok := inst.(*easyrl); ok && err == nil {
		e.trainer = cfg.Trainer
		err = e.hold(ctx)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return inst, nil
}

func open(ctx context.Context, c *client) (Instance, error) {
	if c.kind == "" {
		kind, err := c.recognise(ctx)
		if err != nil {
			return nil, err
		}
		c.kind = kind
	}
	var inst Instance
	var err error
	switch c.kind {
	case Easyrl:
		inst, err = newEasyrl(ctx, c)
	case VLLM:
		inst, err = newVLLM(ctx, c)
	case SGLang:
		inst, err = newSGLang(ctx, c)
	default:
		inst, err = newLlama(ctx, c)
	}
	if err != nil {
		return nil, fmt.Errorf("instance %s: %w", c.url, err)
	}
	if c.context > 0 && c.context < c.needs {
		return nil, fmt.Errorf("instance %s: its context has %d positions, expected %d for a prompt and its response", c.url, c.context, c.needs)
	}
	if c.capacity == 0 {
		c.capacity = 64
	}
	return inst, nil
}

// recognise finds the kind of the server by what only one of them has.
func (c *client) recognise(ctx context.Context) (Kind, error) {
	tests := []struct {
		path, field string
		kind        Kind
	}{
		{"/v1/weights", "boot", Easyrl},
		{"/model_info", "model_path", SGLang},
		{"/get_model_info", "model_path", SGLang},
		{"/props", "total_slots", LlamaCpp},
		{"/version", "version", VLLM},
	}
	for _, test := range tests {
		var body map[string]any
		err := c.get(ctx, test.path, &body)
		if _, ok := body[test.field]; err == nil && ok {
			return test.kind, nil
		}
		var refused *statusError
		if err != nil && !errors.As(err, &refused) && !errors.Is(err, errBody) {
			return "", fmt.Errorf("instance %s: %w", c.url, err)
		}
		if refused != nil && (refused.status == 401 || refused.status == 403) {
			return "", fmt.Errorf("instance %s: GET %s: status %d, expected the server's bearer token in inference.token_file", c.url, test.path, refused.status)
		}
		if refused != nil && refused.status >= 500 { // it starts, or a proxy stands before nothing
			return "", fmt.Errorf("instance %s: %w", c.url, err)
		}
	}
	return "", fmt.Errorf("instance %s: neither easyrl, vLLM, SGLang nor llama.cpp answers there", c.url)
}

// model reads the name of the model and its context from GET /v1/models.
func (c *client) readModel(ctx context.Context) error {
	var list struct {
		Data []struct {
			ID          string `json:"id"`
			MaxModelLen int    `json:"max_model_len"`
		} `json:"data"`
	}
	if err := c.get(ctx, "/v1/models", &list); err != nil {
		return err
	}
	if len(list.Data) == 0 {
		return errors.New("GET /v1/models: no model, expected at least 1")
	}
	for _, m := range list.Data {
		if c.model == "" || c.model == m.ID {
			c.model, c.context = m.ID, m.MaxModelLen
			return nil
		}
	}
	return fmt.Errorf("GET /v1/models: no model %q, the first is %q", c.model, list.Data[0].ID)
}

// limit is the number of response tokens that fit the model's context.
func (c *client) limit(req *inference.Request) (int, error) {
	if err := req.Validate(); err != nil {
		return 0, err
	}
	if c.context == 0 {
		return req.Sampling.MaxTokens, nil
	}
	left := c.context - len(req.PromptIDs)
	if left < 1 {
		return 0, fmt.Errorf("%w: prompt of %d tokens, expected fewer than the context of %d", inference.ErrInvalid, len(req.PromptIDs), c.context)
	}
	return min(req.Sampling.MaxTokens, left), nil
}
