package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"

	"github.com/easyrl/easyrl/inference/join"
	api "github.com/easyrl/easyrl/inference/server"
	"github.com/easyrl/easyrl/inference/simulate/backend"
	"github.com/easyrl/easyrl/report/control/client"
)

// serving is what easyrl serve was asked for.
type serving struct {
	dir        string // empty where an instance without a model is simulated
	simulate   string // what is simulated; empty for nothing
	threads    int
	maxRunning int
	join       *url.URL // nil where the instance joins nobody
	server     api.Config
}

func serveVerb(std streams) verb {
	v := verb{
		name:    "serve",
		summary: "Serve a model folder over HTTP in OpenAI's and vLLM's dialect, and take new weights from a trainer.",
		example: `easyrl serve -model DIR
			easyrl serve -model DIR -listen 0.0.0.0:8000 -token-file token -join http://trainer:7000
			easyrl serve -simulate lengths=lognormal:500,0.6,tokens_per_second=125,slots=32,publish_seconds=2 -join http://127.0.0.1:7000`,
		flags: newFlags(),
	}
	cfg := api.DefaultConfig()
	dir := v.flags.String("model", "", "`DIR` of a Hugging Face folder")
	spec := v.flags.String("simulate", "", "`SPEC` of an instance that takes a model's time and computes nothing, as key=value,…: lengths, "+
		"tokens_per_second, prefill_tokens_per_second, slots, publish_seconds, failures, vocab, context; with -model it has its tokenizer and sizes")
	listen := v.flags.String("listen", cfg.Listen, "`HOST:PORT` to listen on; beyond loopback only with -token-file or -insecure")
	threads := v.flags.Int("threads", 0, "`N` threads; 0 takes all cores")
	maxRunning := v.flags.Int("max-running", 64, "`N` responses that are sampled at once")
	join := v.flags.String("join", "", "`URL` of a trainer's control address, whose fleet the instance is a part of until it ends")
	tokenFile := v.flags.String("token-file", "", "`FILE` with the bearer token that calls need, and that is given to the trainer")
	insecure := v.flags.Bool("insecure", false, "listen beyond loopback without a token")
	drain := v.flags.Duration("drain-timeout", cfg.DrainTimeout, "how long, such as 30s, requests that run may take after a signal")
	v.run = func(ctx context.Context, args []string) error {
		if len(args) > 0 || *dir == "" && *spec == "" {
			return usagef("serve: expected -model DIR or -simulate SPEC and no other argument (see easyrl serve -h)")
		}
		if *maxRunning < 1 {
			return usagef("serve: -max-running is %d, expected at least 1", *maxRunning)
		}
		cfg.Listen, cfg.Insecure, cfg.DrainTimeout = *listen, *insecure, *drain
		s := serving{dir: *dir, simulate: *spec, threads: *threads, maxRunning: *maxRunning}
		var err error
		if cfg.Token, err = readToken("-token-file", *tokenFile); err != nil {
			return err
		}
		if err := cfg.Validate(); err != nil {
			return usageError{oneLine(err)}
		}
		if *join != "" {
			if s.join, err = controlURL("-join", *join); err != nil {
				return err
			}
		}
		s.server = cfg
		return s.run(ctx, printer{std.err})
	}
	return v
}

// controlURL is the address of a trainer, which key gives.
func controlURL(key, text string) (*url.URL, error) {
	u, err := client.Address(text)
	if err != nil {
		return nil, usagef("%s %w", key, err)
	}
	return u, nil
}

// backend is what is to be served, and its tokenizer where it has one. open
// reads its weights.
func (s *serving) backend(ctx context.Context) (b api.Backend, text api.Text, open func() error, err error) {
	var f *folder
	name := "simulated"
	if s.dir != "" {
		if f, err = openFolder(s.dir); err != nil {
			return nil, nil, nil, err
		}
		path, err := filepath.Abs(s.dir)
		if err != nil {
			return nil, nil, nil, usageError{err}
		}
		name = filepath.Base(path)
		if f.tok != nil {
			text = spoken{f}
		}
	}
	if s.simulate != "" {
		var m *backend.Model
		if f != nil {
			m = &backend.Model{Dir: f.dir, Vocab: f.shape.VocabSize, Positions: f.shape.MaxPositions}
			if f.tok != nil {
				m.Decode = f.tok.Decode
			}
		}
		b, err := backend.New(s.simulate, name, m)
		if err != nil {
			return nil, nil, nil, usageError{fmt.Errorf("-simulate: %w", oneLine(err))}
		}
		return b, text, func() error { return nil }, nil
	}
	real := &served{}
	return real, text, func() error { return real.open(ctx, f, name, s.threads, s.maxRunning) }, nil
}

// run serves until ctx ends, and then until the requests that run have ended.
func (s *serving) run(ctx context.Context, notes printer) (err error) {
	served, text, open, err := s.backend(ctx)
	if err != nil {
		return err
	}
	srv, err := api.New(s.server, served, text) // an address that is not to be had is told before the weights are read
	if err != nil {
		return usageError{oneLine(err)}
	}
	if err := open(); err != nil {
		return errors.Join(err, srv.Close())
	}
	defer func() { err = errors.Join(err, served.Close()) }()
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve() }()
	notes.line("easyrl: serving %s at http://%s", served.ID(), srv.Addr())
	if s.server.Insecure && s.server.Token == "" {
		notes.line("easyrl: insecure: whoever reaches %s may sample and change the weights", srv.Addr())
	}
	m := s.enter(ctx, srv, notes)
	select {
	case err = <-ended:
		m.Leave()
		return errors.Join(err, srv.Close())
	case <-ctx.Done():
	}
	m.Drain()
	notes.line("easyrl: no new requests; those that run have %v", s.server.DrainTimeout)
	err = srv.Drain(context.Background())
	m.Leave()
	return errors.Join(err, srv.Close(), <-ended)
}

// enter begins to be a part of the trainer's fleet, where there is one to join.
func (s *serving) enter(ctx context.Context, srv *api.Server, notes printer) *join.Member {
	if s.join == nil {
		return nil
	}
	return join.Begin(ctx, join.Config{Trainer: s.join, Call: client.New(s.join.String(), s.server.Token).Call, Addr: srv.Addr(), Running: srv.Running,
		Note: func(format string, args ...any) { notes.line("easyrl: "+format, args...) }})
}
