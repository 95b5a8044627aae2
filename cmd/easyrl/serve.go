package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/easyrl/easyrl/inference"
	api "github.com/easyrl/easyrl/inference/server"
)

// serving is what easyrl serve was asked for.
type serving struct {
	dir        string
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
			easyrl serve -model DIR -listen 0.0.0.0:8000 -token-file token -join http://trainer:7070`,
		flags: newFlags(),
	}
	cfg := api.DefaultConfig()
	dir := v.flags.String("model", "", "`DIR` of a Hugging Face folder")
	listen := v.flags.String("listen", cfg.Listen, "`HOST:PORT` to listen on; beyond loopback only with -token-file or -insecure")
	threads := v.flags.Int("threads", 0, "`N` threads; 0 takes all cores")
	maxRunning := v.flags.Int("max-running", 64, "`N` responses that are sampled at once")
	join := v.flags.String("join", "", "`URL` of a trainer's control address, whose fleet the instance is a part of until it ends")
	tokenFile := v.flags.String("token-file", "", "`FILE` with the bearer token that calls need, and that is given to the trainer")
	insecure := v.flags.Bool("insecure", false, "listen beyond loopback without a token")
	drain := v.flags.Duration("drain-timeout", cfg.DrainTimeout, "how long, such as 30s, requests that run may take after a signal")
	v.run = func(ctx context.Context, args []string) error {
		if len(args) > 0 || *dir == "" {
			return usagef("serve: expected -model DIR and no other argument (see easyrl serve -h)")
		}
		if *maxRunning < 1 {
			return usagef("serve: -max-running is %d, expected at least 1", *maxRunning)
		}
		cfg.Listen, cfg.Insecure, cfg.DrainTimeout = *listen, *insecure, *drain
		s := serving{dir: *dir, threads: *threads, maxRunning: *maxRunning}
		var err error
		if cfg.Token, err = readToken("-token-file", *tokenFile); err != nil {
			return err
		}
		if err := cfg.Validate(); err != nil {
			return usageError{oneLine(err)}
		}
		if s.join, err = controlURL(*join); err != nil {
			return err
		}
		s.server = cfg
		return s.run(ctx, printer{std.err})
	}
	return v
}

// controlURL is the address of a trainer, nil where text is empty.
func controlURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // to join nobody is no fault
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, usagef("-join is %q, expected http://HOST:PORT of a trainer", text)
	}
	return u, nil
}

// run serves until ctx ends, and then until the requests that run have ended.
func (s *serving) run(ctx context.Context, notes printer) (err error) {
	f, err := openFolder(s.dir)
	if err != nil {
		return err
	}
	name, err := filepath.Abs(s.dir)
	if err != nil {
		return usageError{err}
	}
	var text api.Text
	if f.tok != nil {
		text = spoken{f}
	}
	backend := &served{}
	srv, err := api.New(s.server, backend, text) // an address that is not to be had is told before the weights are read
	if err != nil {
		return usageError{oneLine(err)}
	}
	if err := backend.open(ctx, f, filepath.Base(name), s.threads, s.maxRunning); err != nil {
		return errors.Join(err, srv.Close())
	}
	defer func() { err = errors.Join(err, backend.Close()) }()
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve() }()
	notes.line("easyrl: serving %s at http://%s", backend.ID(), srv.Addr())
	if s.server.Insecure && s.server.Token == "" {
		notes.line("easyrl: insecure: whoever reaches %s may sample and change the weights", srv.Addr())
	}
	leave := s.enter(ctx, srv.Addr(), notes)
	select {
	case err = <-ended:
		return errors.Join(err, leave(), srv.Close())
	case <-ctx.Done():
	}
	notes.line("easyrl: no new requests; those that run have %v", s.server.DrainTimeout)
	err = srv.Drain(context.Background())
	err = errors.Join(err, leave(), srv.Close(), <-ended)
	if err != nil && errors.Is(err, inference.ErrClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return err
}

// enter joins the trainer, where there is one, in a goroutine that the returned
// function waits for: it takes the instance out again.
func (s *serving) enter(ctx context.Context, addr string, notes printer) (leave func() error) {
	if s.join == nil {
		return func() error { return nil }
	}
	m := &membership{trainer: s.join, client: &fleetClient{root: strings.TrimRight(s.join.String(), "/"), token: s.server.Token, http: &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}}},
		addr: addr, notes: notes, pause: time.Second}
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		m.join(ctx)
	}()
	return func() error {
		<-joined
		return m.leave()
	}
}
