//go:build unix

package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/parallel"
)

var (
	kills    = flag.Int("kills", 0, "TestRandomKills: times to kill rank 0, such as 100, which take some minutes")
	killSeed = flag.Uint64("kill-seed", rand.Uint64N(1e9), "TestRandomKills: seed of moments")
)

// patience is how long processes may outlive one that is killed before they are asked to end.
const patience = 15 * time.Second

// killTrainer starts all ranks in random order and kills rank 0 after a while. It waits for the others, which must
// name it, or end normally because the run is finished. Ranks that still wait for it to listen are terminated, as a
// launcher does it.
func (w *world) killTrainer(rng *rand.Rand, longest time.Duration) (said string) {
	w.t.Helper()
	ranks := make([]*process, w.mesh.Size())
	for _, i := range rng.Perm(len(ranks)) {
		ranks[i] = w.rank(i, nil, "-resume")
	}
	after := time.Duration(rng.Int64N(int64(longest)))
	<-time.After(after)
	ranks[0].signal(syscall.SIGKILL)
	var late atomic.Bool
	end := time.AfterFunc(patience, func() {
		late.Store(true)
		for _, p := range ranks {
			_ = p.cmd.Process.Signal(syscall.SIGTERM) // most have ended
		}
	})
	defer end.Stop()
	said = fmt.Sprintf("%s: killed after %v", w.mesh, after.Round(time.Millisecond))
	for i, p := range ranks {
		code, errs := p.end()
		if i == 0 || code == exitDone {
			continue
		}
		if late.Load() && code == exitStopped {
			require.Regexp(w.t, "(?m)^stopped before step 1: join world at .*stopped by signal", errs, said)
			said += ", while rank " + strconv.Itoa(i) + " joined"
			continue
		}
		require.Equal(w.t, exitFailed, code, "%s: rank %d: %s", said, i, errs)
		require.Regexp(w.t, `(?m)^error: .*\brank 0 \(127\.0\.0\.1:\d+\): `, errs, said)
	}
	return said
}

// A run whose rank 0 is killed at random moments, and resumed, ends in the bits of an undisturbed one.
func TestRandomKills(t *testing.T) {
	t.Parallel()
	if *kills == 0 {
		t.Skip("-kills is 0")
	}
	t.Logf("-kill-seed %d", *killSeed)
	rng := rand.New(rand.NewPCG(*killSeed, 0))
	const steps = 6
	dir := meshRun(t, "qwen2")
	settings := []string{fmt.Sprintf("run.steps=%d", steps), "train.minibatches=2", "train.micro_batch_tokens=10",
		"loss.beta=0.1", "loss.old_policy=previous-step"}
	want := trainTiny(t, dir, "one", settings...)
	meshes := []parallel.Mesh{{DP: 1, TP: 2, PP: 1}, {DP: 1, TP: 1, PP: 3}, {DP: 2, TP: 2, PP: 1},
		{DP: 2, TP: 1, PP: 1}, {DP: 1, TP: 2, PP: 2}, {DP: 3, TP: 1, PP: 1}}
	for run, killed := 0, 0; killed < *kills; run++ {
		m := meshes[run%len(meshes)]
		began := time.Now()
		newWorld(t, dir, fmt.Sprint("measured-", run), m, settings...).run()
		longest := time.Since(began)
		w := newWorld(t, dir, fmt.Sprint("killed-", run), m, append([]string{meshWith(m, run)}, settings...)...)
		for range min(4, *kills-killed) {
			killed++
			t.Log(w.killTrainer(rng, longest))
		}
		w.run("-resume")
		requireSameBits(t, want, w.out, steps)
	}
}
