package membership

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference/canary"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/report/control"
)

// newDialer calls servers as a configuration says. Those that read weights from
// files find them in its folder, which is made with the first; forget removes the
// one that a run makes unasked. run tells the run from others.
func newDialer(cfg *configs.Config, deps *Deps, c *canary.Reference, run string) (call Dialer, forget func() error, err error) {
	dir, forget := cfg.Inference.WeightsDir, func() error { return nil }
	if dir == "" {
		dir = filepath.Join(cfg.Run.Dir, "weights")
		forget = func() error { return os.RemoveAll(dir) }
	}
	store, err := remote.NewStore(dir)
	if err != nil {
		return nil, nil, err
	}
	trainer := remote.Trainer{ID: run, Name: nameOf(cfg)}
	seen := &remote.Canary{Prompt: c.Prompt(), Logprobs: c.Logprobs}
	return func(ctx context.Context, e remote.Endpoint) (Probed, string, error) {
		inst, err := remote.Dial(ctx, remote.Config{URL: e.URL, Kind: e.Kind, Token: deps.Token, Trainer: trainer, Store: store, Canary: seen,
			Context: Engine(cfg, "", deps.Shape).Context, Computes: deps.Computes})
		if err != nil {
			return nil, "", err
		}
		if inst.Kind() == remote.LlamaCpp {
			return nil, "", errors.Join(fmt.Errorf("instance %s %w: it is %s, which takes no weights, expected easyrl, vllm or sglang",
				e.URL, control.ErrInvalid, inst.Kind()), inst.Close())
		}
		return inst, string(inst.Kind()), nil
	}, forget, nil
}

// nameOf is how the servers of a run tell others of it.
func nameOf(cfg *configs.Config) string {
	dir, err := filepath.Abs(cfg.Run.Dir)
	if err != nil {
		dir = cfg.Run.Dir
	}
	name := fmt.Sprintf("run %s in %s", cfg.Run.Name, dir)
	if host, err := os.Hostname(); err == nil {
		name += " on " + host
	}
	return name
}
