package membership

import (
	"context"
	"os"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/inference/remote/publish"
)

// Client is the client of an inference server.
type Client interface {
	inference.Instance
	inference.Pulser
	// Probe returns an error if the server does not answer.
	Probe(ctx context.Context) error
	// Claim reserves the server for the run until Close.
	Claim(ctx context.Context) error
}

// Dialer connects to the server of an endpoint, without claiming it, and returns its client
// and kind.
type Dialer func(ctx context.Context, e remote.Endpoint) (c Client, kind string, err error)

// newDialer returns a Dialer over HTTP. cleanup removes the folder of weights written for
// servers, if cfg.RemoveWeights is set.
func newDialer(cfg *Config) (dial Dialer, cleanup func() error, err error) {
	store, err := publish.NewStore(cfg.WeightsDir)
	if err != nil {
		return nil, nil, err
	}
	cleanup = func() error { return nil }
	if cfg.RemoveWeights {
		cleanup = func() error { return os.RemoveAll(cfg.WeightsDir) }
	}
	base := cfg.Client
	base.Store = store
	return func(ctx context.Context, e remote.Endpoint) (Client, string, error) {
		rc := base
		rc.URL, rc.Kind = e.URL, e.Kind
		c, err := remote.Dial(ctx, rc)
		if err != nil {
			return nil, "", err
		}
		return c, c.Kind().Name, nil
	}, cleanup, nil
}
