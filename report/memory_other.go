//go:build !unix

package report

import "runtime"

// PeakMemory is the memory, in bytes, that the Go heap and stacks have taken
// from the system.
func PeakMemory() int64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.Sys)
}
