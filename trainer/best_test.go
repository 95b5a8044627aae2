package trainer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
)

// scored returns a trainer whose evaluation after a step has the score of that step.
func scored(s *script, scores []float64, change func(c *Config)) *Trainer {
	tr := s.trainer(len(scores)-1, func(c *Config) {
		c.EvalEvery, c.CheckpointEvery = 1, 1
		if change != nil {
			change(c)
		}
	})
	sampled(tr).Evaluate = func(_ context.Context, step int) (map[string]float64, float64, error) {
		return nil, scores[step], nil
	}
	return tr
}

// The link leads to the checkpoint with the best score, which keep never removes, and a
// resumed run moves it on.
func TestBestLink(t *testing.T) {
	s := newScript(t)
	root := CheckpointRoot(s.dir)
	link := filepath.Join(root, BestLink)
	// step 0 has no checkpoint
	tr := scored(s, []float64{9, .1, .3, .2, .2, .1}, func(c *Config) { c.CheckpointKeep = 1 })
	require.NoError(t, tr.Run(t.Context()))
	target, err := os.Readlink(link)
	require.NoError(t, err)
	require.Equal(t, "step-000002", target, "relative, so that the folder can move")
	state, err := ReadState(link)
	require.NoError(t, err)
	require.Equal(t, 2, state.Step)
	require.ElementsMatch(t, []string{BestLink, "step-000002", "step-000005"}, names(t, root))

	from, err := Claim(s.dir, true, t.Errorf)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(root, "step-000005"), from, "resume takes the newest checkpoint")
	state, err = ReadState(from)
	require.NoError(t, err)
	again := scored(s, []float64{0, 0, 0, 0, 0, 0, .4, .2}, func(c *Config) { c.CheckpointKeep = 1 })
	continueFrom(again, state)
	require.NoError(t, again.Run(t.Context()))
	target, err = os.Readlink(link)
	require.NoError(t, err)
	require.Equal(t, "step-000006", target)
	require.ElementsMatch(t, []string{BestLink, "step-000006", "step-000007"}, names(t, root))
}

// A run that resumes from an older checkpoint takes the link back.
func TestBestLinkFollowsState(t *testing.T) {
	s := newScript(t)
	root := CheckpointRoot(s.dir)
	require.NoError(t, scored(s, []float64{0, .3, .2, .9}, nil).Run(t.Context()))
	link := func() string {
		target, _ := os.Readlink(filepath.Join(root, BestLink))
		return target
	}
	require.Equal(t, "step-000003", link())
	c := checkpoints{root: root, warn: t.Errorf}
	c.markBest(1)
	require.Equal(t, "step-000001", link())
	c.markBest(0)
	require.Empty(t, link())
	c.markBest(0)
	require.NotContains(t, names(t, root), BestLink)
}

// A run without evaluations has no best checkpoint.
func TestNoBestLinkWithoutEvaluation(t *testing.T) {
	s := newScript(t)
	require.NoError(t, s.trainer(2, func(c *Config) { c.CheckpointEvery = 1 }).Run(t.Context()))
	require.ElementsMatch(t, []string{"step-000001", "step-000002"}, names(t, CheckpointRoot(s.dir)))
}

// A folder that already has the name stays, and the run continues.
func TestBestLinkKeepsOtherFolder(t *testing.T) {
	s := newScript(t)
	own := filepath.Join(CheckpointRoot(s.dir), BestLink, "mine")
	require.NoError(t, os.MkdirAll(own, 0o755))
	require.NoError(t, scored(s, []float64{0, .1, .2}, nil).Run(t.Context()))
	require.DirExists(t, own)
	require.Contains(t, strings.Join(s.events, "\n"), "best to the best checkpoint: ")
	require.DirExists(t, filepath.Join(CheckpointRoot(s.dir), "step-000002"))
}

// While the link moves back and forth, it always leads to a checkpoint.
func TestBestLinkIsAtomic(t *testing.T) {
	s := newScript(t)
	require.NoError(t, scored(s, []float64{0, .1, .2}, nil).Run(t.Context()))
	c := checkpoints{root: CheckpointRoot(s.dir), warn: t.Errorf}
	done := make(chan struct{})
	var mover sync.WaitGroup
	mover.Go(func() {
		defer close(done)
		for i := range 300 {
			c.markBest(1 + i%2)
		}
	})
	var faults []error
	for moving := true; moving; {
		select {
		case <-done:
			moving = false
		default:
		}
		if _, err := ReadState(filepath.Join(c.root, BestLink)); err != nil {
			faults = append(faults, err)
		}
	}
	mover.Wait()
	require.NoError(t, errors.Join(faults...))
	require.NoError(t, checkpoint.Verify(filepath.Join(c.root, BestLink)))
	require.ElementsMatch(t, []string{BestLink, "step-000001", "step-000002"}, names(t, c.root), "no leftovers")
}

// names returns the entries of a folder.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}
