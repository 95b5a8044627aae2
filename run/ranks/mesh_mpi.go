//go:build mpi

package ranks

import (
	"context"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/parallel/mpi"
)

// withMPI says whether this binary can use MPI.
const withMPI = true

// join connects the processes of a run: over MPI if mpirun started them, else over TCP.
func join(ctx context.Context, cfg *configs.Config, p parallel.Process, peers Peers) (parallel.Transport, error) {
	if p.MPI {
		return mpi.Open()
	}
	return joinTCP(ctx, cfg, p, peers)
}
