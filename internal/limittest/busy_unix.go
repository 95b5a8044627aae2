//go:build unix

package limittest

import (
	"syscall"
	"time"
)

// busy returns the processor time of this process, so that other load on the
// machine fails no test.
func busy() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
