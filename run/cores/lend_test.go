package cores

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/npu"
)

// limited is a device that records its thread limit.
type limited struct {
	npu.Device
	limit int
}

func (d *limited) Threads() int { return 4 }

func (d *limited) Limit(threads int) { d.limit = threads }

// Not parallel: a run changes GOMAXPROCS while it trains.
func TestIdleInstancesLendThreads(t *testing.T) {
	d := &limited{}
	cfg := configs.Default()
	cfg.Inference.Threads, cfg.Inference.Instances = 2, 2
	cfg.Device.Threads = 3
	require.Nil(t, UseIdleThreads(d, &cfg), "an explicit number of threads is kept")
	cfg.Device.Threads = 0
	rest := UseIdleThreads(d, &cfg)
	own := max(1, runtime.GOMAXPROCS(0)-4)
	require.Equal(t, own, d.limit)
	for _, c := range []struct {
		resting bool
		want    int
	}{{true, 2}, {true, 4}, {false, 2}, {true, 4}, {false, 2}, {false, 0}} {
		rest(c.resting)
		require.Equal(t, own+c.want, d.limit)
	}
}
