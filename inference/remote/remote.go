// Package remote samples with inference servers over HTTP: easyrl serve, vLLM and
// SGLang.
//
// # Verification
//
// An instance counts as updated only when it reports the new weights, not when it answers
// 200. easyrl reports the version and checksum that it serves. SGLang and vLLM get a
// label made of both and must report it: SGLang with each response, vLLM through the
// worker extension in deploy/vllm after each response. An adapter's name contains its
// label, and vLLM refuses a request for a name that it does not hold.
//
// A label proves nothing about the values. A Canary may therefore compare log-probabilities with the
// trainer's, first under perturbed weights and then under each version.
//
// # Deadlines
//
// Config.Connect limits the set-up of a connection and Config.Stall the time for each 64
// KiB of a body. A call waits for its answer until its context ends, provided that the server
// answers GET /health within Config.Stall.
//
// # Randomness
//
// easyrl samples the same tokens for the same seed. vLLM uses seeds, but its results also depend on
// which requests it batches together. SGLang uses seeds only with --enable-deterministic-inference.
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
	"github.com/easyrl/easyrl/npu"
)

// Config names a server and sets how to call it.
type Config struct {
	URL   string // http://host:port or https://…; also the instance's ID
	Kind  string // name of the kind; empty detects it
	Token string // bearer token of all calls; may be empty
	// Model is the name of the model to request. If it is empty, Dial takes the first
	// that the server lists.
	Model string
	// Capacity is the number of responses that the server samples at once. If it is 0,
	// Dial takes what the server reports, or 64 if it reports nothing.
	Capacity int
	// Store holds weights for servers that read them from files: vLLM, SGLang, and easyrl
	// on this machine. Several instances may share one. Without a store, vLLM and SGLang
	// accept no weights.
	Store *publish.Store
	// Context is the number of positions that the server's model must have, for a prompt and its
	// response; 0 requires nothing.
	Context int
	// Computes is the fingerprint that an easyrl server must report, if it reports one; empty
	// accepts any. See server.Info.Config.
	Computes string
	// Numerics are what an easyrl server must report as those in which it computes; zero accepts any. Published
	// weights carry them, so that a server of other numerics refuses the weights.
	Numerics npu.Identity
	// Trainer identifies the publisher, if set. Dial refuses an easyrl server that
	// another trainer holds. From Claim to Close the server accepts only this trainer's
	// weights.
	Trainer Trainer
	// Adapters means that the weights to publish are LoRA adapters (publish.Adapter) for the model
	// that the server holds. Dial refuses servers of kinds that take no adapters.
	Adapters bool
	// Canary, if set, verifies the weights of vLLM and SGLang.
	Canary *publish.Canary
	// Connect limits the set-up of a connection; 0 means 10 seconds.
	Connect time.Duration
	// Stall limits the time for 64 KiB of a body, and for an answer to a call that should be fast; 0
	// means 30 seconds.
	Stall time.Duration

	dial func(ctx context.Context, network, addr string) (net.Conn, error) // set by tests
}

// Validate reports all faults of c.
func (c *Config) Validate() error {
	var faults []error
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		faults = append(faults, fmt.Errorf("instance: url: %w", err))
	case !isAddress(u):
		faults = append(faults, fmt.Errorf("instance: url %q, expected http://host:port", u.Redacted()))
	}
	if _, ok := kindOf(c.Kind); !ok && c.Kind != "" {
		faults = append(faults, fmt.Errorf("instance %s: kind %q, expected %s", c.URL, c.Kind, Expected()))
	}
	if c.Capacity < 0 {
		faults = append(faults, fmt.Errorf("instance %s: capacity %d, expected 0 or more", c.URL, c.Capacity))
	}
	if c.Connect < 0 || c.Stall < 0 {
		faults = append(faults, fmt.Errorf("instance %s: deadlines %v (connect) and %v (stall), expected 0 or more",
			c.URL, c.Connect, c.Stall))
	}
	if c.Canary != nil {
		faults = append(faults, c.Canary.Validate())
	}
	return errors.Join(faults...)
}

// Server is a server as an inference.Instance.
type Server interface {
	inference.Instance
	inference.Pulser
	// Kind returns the server's kind.
	Kind() Kind
	// Probe checks that the server is healthy, regardless of its weights.
	Probe(ctx context.Context) error
	// Claim reserves the server for the trainer until Close, if its kind accepts one trainer
	// at a time. It must not be called concurrently.
	Claim(ctx context.Context) error
}

// Dial connects to a server and reads its kind and settings. It does not sample, send weights or
// claim the server.
func Dial(ctx context.Context, cfg Config) (Server, error) {
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
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return inst, nil
}
