//go:build unix

package checkpoint

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Lock retries for lockPatience: after a process was killed, a child that it was
// starting may briefly still hold its lock.
const (
	lockPatience = time.Second
	lockPause    = 10 * time.Millisecond
)

// Lock takes the exclusive lock of a file and holds it until the file is closed
// or the process ends. It reports whether it succeeded. On a file system without
// locks it always succeeds.
func Lock(f *os.File) bool {
	for began := time.Now(); ; time.Sleep(lockPause) {
		if !errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
			return true
		}
		if time.Since(began) > lockPatience {
			return false
		}
	}
}
