package run

import (
	"context"
	"errors"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/run/ranks"
	"github.com/easyrl/easyrl/tri_model/sharded"
)

// follow returns false if this process runs rank 0 or all ranks. If a launcher started it for another rank, follow
// runs that rank until rank 0 ends and returns true. With checks it only checks what the rank needs. The error is
// a StoppedError if rank 0 stops, or if a signal arrives before all ranks have joined.
func follow(ctx context.Context, cfg *configs.Config, opts *Options, checks bool) (follows bool, err error) {
	if follows, err = ranks.Follows(cfg); err != nil || !follows {
		return false, err
	}
	dev, err := OpenDevice(cfg.Device.Kind, cfg.Device.Numerics, ranks.MeshThreads(cfg))
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
	case errors.As(err, new(*parallel.RankError)): // also if a signal came while this rank joined again
	case err != nil && errors.Is(err, context.Cause(ctx)): // a signal came before all ranks had joined
		err = StoppedError{Message: stoppedAfter(0) + ": " + err.Error()}
	}
	return true, err
}
