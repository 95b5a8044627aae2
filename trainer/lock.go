package trainer

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/easyrl/easyrl/checkpoint"
)

// lockFile is the file of a run's folder whose lock its process holds.
const lockFile = "lock"

// Lock keeps other processes out of a run's folder, until unlock or the end of
// the process, however it ends. Without create it holds only where a run has made
// the lock's file, and changes nothing elsewhere; held says whether it holds. On
// file systems that cannot lock, none is kept out.
func Lock(dir string, create bool) (unlock func(), held bool, err error) {
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), flags, 0o644)
	if err != nil && !create {
		return func() {}, false, nil // a folder that is not there, or cannot be written, is found later
	}
	if err != nil {
		return nil, false, err
	}
	if !checkpoint.Lock(f) {
		_ = f.Close() // was only opened to ask
		return nil, false, fmt.Errorf("run.dir is %q, where %w: wait for its end, or set another run.dir", dir, ErrLocked)
	}
	return func() { _ = f.Close() }, true, nil
}
