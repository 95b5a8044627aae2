package run

import (
	"context"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/run/mesh"
)

// follow runs a rank other than 0 of a run whose processes a launcher started, until rank 0 ends. A
// check only tries what such a rank needs. follow returns false in the process of rank 0, which
// does everything else.
func follow(ctx context.Context, cfg *configs.Config, opts *Options, checks bool) (follows bool, err error) {
	if follows, err = mesh.Follows(cfg); err != nil || !follows {
		return false, err
	}
	dev, err := OpenDevice(cfg.Device.Kind, mesh.Threads(cfg))
	if err != nil {
		return true, err
	}
	defer dev.Close() //nolint:errcheck // Follow reports failures
	if checks {
		return true, mesh.CheckJoin(cfg)
	}
	said := notes{log: opts.Log}
	return true, mesh.Follow(ctx, cfg, dev, mesh.Peers{Silence: opts.Silence, Note: said.note})
}
