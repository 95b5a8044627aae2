//go:build unix

package limittest

import (
	"syscall"
	"time"
)

// busy returns the processor time that this process has used. Other load on the machine does
// not add to it.
func busy() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
