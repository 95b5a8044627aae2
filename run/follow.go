package run

import (
	"context"
	"errors"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/run/ranks"
	"github.com/easyrl/easyrl/tri_model/sharded"
)

// follow runs a rank other than 0 of a run whose processes a launcher started, until rank 0 ends. A
// check only tries what such a rank needs. If rank 0 stops, or a signal comes before all ranks have
// joined, the error is a StoppedError. follow returns false in the process of rank 0, which
// does everything else.
func follow(ctx context.Context, cfg *configs.Config, opts *Options, checks bool) (follows bool, err error) {
	if follows, err = ranks.Follows(cfg); err != nil || !follows {
		return false, err
	}
	dev, err := OpenDevice(cfg.Device.Kind, ranks.MeshThreads(cfg))
	if err != nil {
		return true, err
	}
	defer dev.Close() //nolint:errcheck // Follow reports failures
	if checks {
		return true, ranks.CheckJoin(cfg)
	}
	said := notes{log: opts.Log}
	err = ranks.Follow(ctx, cfg, dev, ranks.Peers{Silence: opts.Silence, Note: said.note, Joined: opts.Follows})
	switch {
	case errors.Is(err, sharded.ErrStopped):
		err = StoppedError{Message: err.Error()}
	case err != nil && errors.Is(err, context.Cause(ctx)): // a signal came before all ranks had joined
		err = StoppedError{Message: stoppedAfter(0) + ": " + err.Error()}
	}
	return true, err
}
