//go:build !cgo || !unix

package far

import "testing"

// Library skips the test: only a build with cgo on Unix can load a library.
func Library(t testing.TB) string {
	t.Skip("no cgo")
	return ""
}

// Read returns zero counters.
func Read(string) Counters { return Counters{} }

// Use returns zero.
func Use(string) Memory { return Memory{} }

// Break does nothing.
func Break(string, int64) {}

// Reset does nothing.
func Reset(string) {}
