//go:build mpi

package ranks

import (
	"bytes"
	"context"
	"errors"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/parallel/mpi"
)

// withMPI says whether this binary can use MPI.
const withMPI = true

// join connects the processes of a run: over MPI if mpirun started them, else over TCP.
func join(ctx context.Context, cfg *configs.Config, p parallel.Process, peers Peers) (parallel.Transport, error) {
	if !p.MPI {
		return joinTCP(ctx, cfg, p, peers)
	}
	end, err := mpi.Open()
	if err != nil {
		return nil, err
	}
	if err := sameNumerics(ctx, end, cfg.Identity().String()); err != nil {
		return nil, errors.Join(err, end.Close())
	}
	return end, nil
}

// sameNumerics returns an error on all ranks if they do not compute in the same numerics. own are this rank's.
func sameNumerics(ctx context.Context, end parallel.Transport, own string) error {
	const size = 64 // bytes of a name
	all := make([]int, end.Size())
	counts := make([]int, end.Size())
	for i := range all {
		all[i], counts[i] = i, size
	}
	group, err := parallel.NewGroup(end, "numerics", all, 0)
	if err != nil {
		return err
	}
	names := make([]byte, size*end.Size())
	copy(names[size*end.Rank():][:size], own)
	if err := parallel.AllGather(ctx, group, names, counts); err != nil {
		return err
	}
	name := func(rank int) string { return string(bytes.TrimRight(names[size*rank:][:size], "\x00")) }
	for _, rank := range all {
		if name(rank) != name(0) {
			return usage.Errorf("rank %d computes in %q, expected %q, as rank 0", rank, name(rank), name(0))
		}
	}
	return nil
}
