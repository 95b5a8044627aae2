//go:build unix

package checkpoint

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// How long a lock is asked for: that of a process that was killed may live on for
// an instant in a child that it was about to start.
const (
	lockPatience = time.Second
	lockPause    = 10 * time.Millisecond
)

// Lock takes the lock of a file, which no two processes hold, until the file is
// closed or the process ends, however it ends. It reports whether it got it. On
// file systems that cannot lock everyone does.
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
