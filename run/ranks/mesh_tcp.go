//go:build !mpi

package ranks

import (
	"context"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/parallel"
)

// withMPI says whether this binary can use MPI.
const withMPI = false

// join connects the processes of a run.
func join(ctx context.Context, cfg *configs.Config, p parallel.Process, peers Peers) (parallel.Transport, error) {
	return joinTCP(ctx, cfg, p, peers)
}
