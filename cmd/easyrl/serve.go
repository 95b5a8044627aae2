package main

import (
	"context"
	"net/url"

	api "github.com/easyrl/easyrl/inference/server"
	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/internal/notice"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/report/control/client"
	"github.com/easyrl/easyrl/run/serve"
)

func serveVerb(std streams) cli.Verb {
	v := cli.Verb{
		Name:    "serve",
		Summary: "Serve a model over HTTP with OpenAI's and vLLM's API, and accept new weights from a trainer.",
		Example: `easyrl serve -model DIR
			easyrl serve -model DIR -listen 0.0.0.0:8000 -token-file token -join http://trainer:7000
			easyrl serve -simulate lengths=lognormal:500,0.6,tokens_per_second=125,slots=32,publish_seconds=2 ` +
			`-join http://127.0.0.1:7000`,
		Flags: cli.NewFlags(),
	}
	cfg := api.DefaultConfig()
	dir := v.Flags.String("model", "", "`DIR` Hugging Face model folder")
	spec := v.Flags.String("simulate", "",
		"`SPEC` simulate an instance's timing without computing anything; key=value,… with the keys lengths, "+
			"tokens_per_second, prefill_tokens_per_second, slots, publish_seconds, failures, vocab, context; with "+
			"-model it uses that model's tokenizer and sizes")
	listen := v.Flags.String("listen", cfg.Listen,
		"`HOST:PORT` address to listen on; beyond loopback it needs -token-file or -insecure")
	threads := v.Flags.Int("threads", 0, "`N` CPU threads; 0 uses all cores")
	device, numerics := deviceFlags(v.Flags)
	maxRunning := v.Flags.Int("max-running", 64, "`N` maximum responses sampled at once")
	join := v.Flags.String("join", "",
		"`URL` control address of a trainer whose fleet the instance joins until it exits")
	tokenFile := v.Flags.String("token-file", "",
		"`FILE` file with the bearer token that clients must send; also sent to the trainer")
	insecure := v.Flags.Bool("insecure", false, "listen beyond loopback without a token")
	drain := v.Flags.Duration("drain-timeout", cfg.DrainTimeout,
		"`DURATION` how long running requests may take after a signal, such as 30s")
	v.Run = func(ctx context.Context, args []string) error {
		if len(args) > 0 || *dir == "" && *spec == "" {
			return usage.Errorf(
				"serve: expected -model DIR or -simulate SPEC and no other argument (see easyrl serve -h)")
		}
		if *maxRunning < 1 {
			return usage.Errorf("serve: -max-running is %d, expected at least 1", *maxRunning)
		}
		cfg.Listen, cfg.Insecure, cfg.DrainTimeout = *listen, *insecure, *drain
		s := serve.Config{Model: *dir, Simulate: *spec, Device: *device, Numerics: *numerics, Threads: *threads,
			MaxRunning: *maxRunning, Say: func(kind notice.Kind, format string, args ...any) {
				notice.Print(std.err, kind, format, args...)
			}}
		var err error
		if cfg.Token, err = readToken("-token-file", *tokenFile); err != nil {
			return err
		}
		if err := cfg.Validate(); err != nil {
			return usage.Wrap(usage.OneLine(err))
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

// controlURL parses a trainer's control address. key names the flag in errors.
func controlURL(key, text string) (*url.URL, error) {
	u, err := client.Address(text)
	if err != nil {
		return nil, usage.Errorf("%s %w", key, err)
	}
	return u, nil
}
