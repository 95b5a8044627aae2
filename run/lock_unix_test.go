//go:build unix

package run

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/trainer"
)

// Another process may claim the folder, or train in it, between the first check and the
// first write.
func TestLockRechecksClaim(t *testing.T) {
	dir := t.TempDir()
	claimed := errors.New("another process continued the run")
	r := &preparation{claimed: func() error { return claimed }}
	defer r.close()
	require.ErrorIs(t, r.lock(dir, true), claimed)
	r = &preparation{claimed: func() error { return nil }}
	require.ErrorIs(t, r.lock(dir, true), trainer.ErrLocked, "the first job holds the lock until it closes")
}
