// Package soak sizes tests that can run for as long as one likes.
package soak

import "os"

// Long reports whether tests run their long versions, with EASYRL_SOAK=1 in the
// environment. Without it they try fewer cases, but some of every kind, and the same
// ones each time.
func Long() bool { return os.Getenv("EASYRL_SOAK") == "1" }

// Count returns how often a test repeats: usual times, or long times if Long. Under the
// race detector, which makes arithmetic ten times slower and examines only how
// goroutines share memory, it is the tenth part, at least 1.
func Count(usual, long int) int {
	if Long() {
		usual = long
	}
	if Race {
		return max(1, usual/10)
	}
	return usual
}
