//go:build unix

package report

import (
	"runtime"
	"syscall"
)

// PeakMemory returns the peak resident memory of the process, in bytes, or 0 if it is unknown.
func PeakMemory() int64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	peak := int64(usage.Maxrss) //nolint:unconvert // the type differs between systems
	// Apple's systems report bytes, others KiB.
	if runtime.GOOS != "darwin" && runtime.GOOS != "ios" {
		peak *= 1024
	}
	return peak
}
