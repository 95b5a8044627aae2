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
	"github.com/easyrl/easyrl/inference/remote/publish"
)

// Config says where a server is and how to bear with it.
type Config struct {
	URL   string // http://host:port or https://…, which also names the instance
	Kind  string // the name of a kind; empty asks the server
	Token string // bearer token of all calls, where set
	// Model is the name to ask for; empty takes the first that the server lists.
	Model string
	// Capacity is the number of responses that the server samples at once; 0
	// takes what it says, or 64 where it says nothing.
	Capacity int
	// Store is where weights are written for servers that read them from files:
	// vLLM, SGLang, and easyrl on this machine. The same store serves several
	// instances. Without one vLLM and SGLang take no weights.
	Store *publish.Store
	// Context is how many positions a prompt and a response may need together, and
	// Computes what an easyrl server's model must say that it computes; 0 and empty
	// ask for nothing.
	Context  int
	Computes string
	// Trainer is who publishes, where that is known: an easyrl server that has another
	// one is refused, and takes no weights of another while it is held.
	Trainer Trainer
	// Canary, where set, is asked after each publish to vLLM and SGLang.
	Canary *publish.Canary
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
	if _, ok := kindOf(c.Kind); !ok && c.Kind != "" {
		faults = append(faults, fmt.Errorf("instance %s: kind %q, expected %s", c.URL, c.Kind, join(names(kinds()), "or")))
	}
	if c.Capacity < 0 {
		faults = append(faults, fmt.Errorf("instance %s: capacity %d, expected 0 or more", c.URL, c.Capacity))
	}
	if c.Connect < 0 || c.Stall < 0 {
		faults = append(faults, fmt.Errorf("instance %s: deadlines %v and %v, expected 0 or more", c.URL, c.Connect, c.Stall))
	}
	if c.Canary != nil {
		faults = append(faults, c.Canary.Validate())
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
	inst, err := c.open(ctx)
	if h, ok := inst.(holder); ok && err == nil {
		err = h.hold(ctx)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return inst, nil
}

// holder is an instance of a server that serves one trainer at a time.
type holder interface {
	// hold makes the server the trainer's, until Close.
	hold(ctx context.Context) error
}
