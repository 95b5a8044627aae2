package sharded

import (
	"context"
	"errors"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/report/trace"
)

// Follow runs a rank whose trainer is in the process of rank 0, until the trainer ends it, and closes t. It does
// not close dev. It returns nil after a complete run, ErrStopped or ErrFailed if the trainer stopped the run
// early or failed, and otherwise the error with which this rank failed.
func Follow(ctx context.Context, dev npu.Device, t parallel.Transport, track trace.Track) error {
	commands, values, err := trainerGroups(t)
	if err != nil {
		return err
	}
	err = runWorker(ctx, dev, t, wire[answer, command]{commands, 0}, newSnapshots(dev), values, track)
	return errors.Join(err, t.Close())
}

// noLimit makes calls of a group wait until their context ends. A rank may wait for another one as long
// as a pass takes. The transport itself detects a rank that has died or hangs.
const noLimit = 0

// trainerGroups returns two groups of all ranks: one for commands and answers, and one on which the
// trainer's process reads snapshots of other processes. Snapshots have a group of their own because
// goroutines other than the trainer's read them.
func trainerGroups(t parallel.Transport) (commands, values *parallel.Group, err error) {
	all := firstRanks(t.Size())
	if commands, err = parallel.NewGroup(t, "trainer", all, noLimit); err != nil {
		return nil, nil, err
	}
	values, err = parallel.NewGroup(t, "values", all, noLimit)
	return commands, values, err
}

// firstRanks returns the ranks 0 to n-1.
func firstRanks(n int) []int {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	return ranks
}
