//go:build unix

package run

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/trainer"
)

// A folder that became another process's, or that another process trained in,
// between the look at it and the first write.
func TestClaimIsLookedAtAgain(t *testing.T) {
	dir := t.TempDir()
	claimed := fmt.Errorf("another process went on")
	r := &job{claimed: func() error { return claimed }}
	defer r.close()
	require.ErrorIs(t, r.lock(dir, true), claimed)
	r = &job{claimed: func() error { return nil }}
	require.ErrorIs(t, r.lock(dir, true), trainer.ErrLocked, "the first has it until it ends")
}
