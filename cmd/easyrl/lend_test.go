package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// limited is a device that remembers its limit.
type limited struct {
	npu.Device
	limit int
}

func (d *limited) Limit(threads int) { d.limit = threads }

func TestRestingInstancesLendTheirThreads(t *testing.T) {
	t.Parallel()
	d := &limited{}
	rest := lend(d, 3, 2)
	require.Equal(t, 3, d.limit)
	for _, c := range []struct {
		resting bool
		want    int
	}{{true, 5}, {true, 7}, {false, 5}, {true, 7}, {false, 5}, {false, 3}} {
		rest(c.resting)
		require.Equal(t, c.want, d.limit)
	}
}
