package fleet

import (
	"time"

	"github.com/easyrl/easyrl/inference/fleet/state"
)

// rest tells the machine of f when an instance has rested. It returns early if f is closed.
func rest(f *Fleet, r state.Rest) {
	t := time.NewTimer(r.For)
	defer t.Stop()
	select {
	case <-t.C:
	case <-f.ctx.Done():
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Rested(time.Now(), r.Instance)
	f.apply()
}
