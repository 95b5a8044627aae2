//go:build !unix

package report

import "runtime"

// PeakMemory returns the memory, in bytes, that the Go runtime has obtained from the system. It stands
// in for the peak resident memory, which this build does not ask the system for.
func PeakMemory() int64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.Sys)
}
