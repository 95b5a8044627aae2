package main

import (
	"context"
	"net/url"

	api "github.com/easyrl/easyrl/inference/server"
	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/report/control/client"
	"github.com/easyrl/easyrl/run/serve"
)

func serveVerb(std streams) cli.Verb {
	v := cli.Verb{
		Name:    "serve",
		Summary: "Serve a model folder over HTTP in OpenAI's and vLLM's dialect, and take new weights from a trainer.",
		Example: `easyrl serve -model DIR
			easyrl serve -model DIR -listen 0.0.0.0:8000 -token-file token -join http://trainer:7000
			easyrl serve -simulate lengths=lognormal:500,0.6,tokens_per_second=125,slots=32,publish_seconds=2 -join http://127.0.0.1:7000`,
		Flags: cli.NewFlags(),
	}
	cfg := api.DefaultConfig()
	dir := v.Flags.String("model", "", "`DIR` of a Hugging Face folder")
	spec := v.Flags.String("simulate", "", "`SPEC` of an instance that takes a model's time and computes nothing, as key=value,…: lengths, "+
		"tokens_per_second, prefill_tokens_per_second, slots, publish_seconds, failures, vocab, context; with -model it has its tokenizer and sizes")
	listen := v.Flags.String("listen", cfg.Listen, "`HOST:PORT` to listen on; beyond loopback only with -token-file or -insecure")
	threads := v.Flags.Int("threads", 0, "`N` threads; 0 takes all cores")
	maxRunning := v.Flags.Int("max-running", 64, "`N` responses that are sampled at once")
	join := v.Flags.String("join", "", "`URL` of a trainer's control address, whose fleet the instance is a part of until it ends")
	tokenFile := v.Flags.String("token-file", "", "`FILE` with the bearer token that calls need, and that is given to the trainer")
	insecure := v.Flags.Bool("insecure", false, "listen beyond loopback without a token")
	drain := v.Flags.Duration("drain-timeout", cfg.DrainTimeout, "how long, such as 30s, requests that run may take after a signal")
	v.Run = func(ctx context.Context, args []string) error {
		if len(args) > 0 || *dir == "" && *spec == "" {
			return usage.Errorf("serve: expected -model DIR or -simulate SPEC and no other argument (see easyrl serve -h)")
		}
		if *maxRunning < 1 {
			return usage.Errorf("serve: -max-running is %d, expected at least 1", *maxRunning)
		}
		cfg.Listen, cfg.Insecure, cfg.DrainTimeout = *listen, *insecure, *drain
		s := serve.Config{Model: *dir, Simulate: *spec, Threads: *threads, MaxRunning: *maxRunning,
			Note: func(format string, args ...any) { cli.Printer{W: std.err}.Line("easyrl: "+format, args...) }}
		var err error
		if cfg.Token, err = readToken("-token-file", *tokenFile); err != nil {
			return err
		}
		if err := cfg.Validate(); err != nil {
			return usage.Wrap(oneLine(err))
		}
		if *join != "" {
			if s.Join, err = controlURL("-join", *join); err != nil {
				return err
			}
		}
		s.Server = cfg
		return serve.Run(ctx, s)
	}
	return v
}

// controlURL parses a trainer's control address. key is the flag that has it.
func controlURL(key, text string) (*url.URL, error) {
	u, err := client.Address(text)
	if err != nil {
		return nil, usage.Errorf("%s %w", key, err)
	}
	return u, nil
}
