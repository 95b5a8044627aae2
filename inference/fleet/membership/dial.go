package membership

import (
	"context"
	"os"

	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/inference/remote/publish"
)

// Dialer connects to the server of an endpoint, without claiming it.
type Dialer func(ctx context.Context, e remote.Endpoint) (remote.Server, error)

// newDialer returns a Dialer over HTTP. cleanup removes cfg.WeightsDir if cfg.RemoveWeights is set.
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
	return func(ctx context.Context, e remote.Endpoint) (remote.Server, error) {
		rc := base
		rc.URL, rc.Kind = e.URL, e.Kind
		return remote.Dial(ctx, rc)
	}, cleanup, nil
}
