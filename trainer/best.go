package trainer

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/easyrl/easyrl/checkpoint"
)

// BestLink is the name of the symbolic link in a run's checkpoint root that leads to the
// checkpoint with the best evaluation score.
const BestLink = "best"

// markBest links the best checkpoint, that of step, or removes the link if step is 0. It only warns if the file
// system has no links.
func (c *checkpoints) markBest(step int) { c.warnOfLink(c.linkBest(step)) }

func (c *checkpoints) warnOfLink(err error) {
	if err != nil {
		c.warn("cannot link %s to the best checkpoint: %v", filepath.Join(c.root, BestLink), err)
	}
}

// linkBest makes the link lead to the checkpoint of step, or removes the link if step is 0.
// Readers see the old link or the new one.
func (c *checkpoints) linkBest(step int) error {
	path, target := filepath.Join(c.root, BestLink), checkpoint.StepName(step)
	current, err := os.Readlink(path)
	isLink := err == nil
	switch {
	case step == 0 && isLink:
		return os.Remove(path)
	case step == 0 || isLink && current == target:
		return nil
	case !isLink && !errors.Is(err, fs.ErrNotExist):
		return err // something else has the name
	}
	// checkpoint.Prune removes a temporary link that a killed process leaves.
	temp := filepath.Join(c.root, fmt.Sprintf(".tmp-%s-%08x", BestLink, rand.Uint32()))
	err = os.Symlink(target, temp)
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp)
	}
	return err
}
