package fleet

import (
	"time"

	"github.com/easyrl/easyrl/inference/fleet/state"
)

// rest tells the machine of f when an instance has rested. It returns early if f is closed.
func rest(f *Fleet, r state.Rest) {
	if sleep(f.ctx, r.For) != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Rested(time.Now(), r.Instance)
	f.apply()
}
