package trainer

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/internal/filetype"
)

// lockFile is the file in a run's folder that its process keeps locked.
const lockFile = "lock"

// Lock keeps other processes out of a run's folder until unlock is called or the process
// ends, however it ends. Without create it locks only if the lock file exists, and creates
// nothing; locked reports whether it locked. On file systems without locks, no process is
// kept out.
func Lock(dir string, create bool) (unlock func(), locked bool, err error) {
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE
	}
	if err := filetype.Check(filepath.Join(dir, lockFile)); err != nil {
		return nil, false, err
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), flags, 0o644)
	if err != nil && !create {
		return func() {}, false, nil // a missing or unwritable folder is reported later
	}
	if err != nil {
		return nil, false, err
	}
	if !checkpoint.Lock(f) {
		_ = f.Close() // opened only to try the lock
		return nil, false, fmt.Errorf("run.dir %q is %w. Wait for it to exit, or set another run.dir", dir, ErrLocked)
	}
	return func() { _ = f.Close() }, true, nil
}
