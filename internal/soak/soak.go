// Package soak sizes tests that can run for as long as one likes.
package soak

import "os"

// Long reports whether tests run their long versions, with EASYRL_SOAK=1 in the
// environment. Without it they try fewer cases, but some of every kind, and the same
// ones each time. Where Race is true, tests do little arithmetic of one goroutine: it
// takes ten times as long, and the race detector has nothing to find in it.
func Long() bool { return os.Getenv("EASYRL_SOAK") == "1" }
