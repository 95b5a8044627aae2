//go:build unix

package evaluate

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lock keeps other processes from a record until it is closed, or the process
// ends. On file systems that cannot lock, none is kept out.
func lock(f *os.File) error {
	if errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return fmt.Errorf("%w: another process writes it", ErrRecord)
	}
	return nil
}
