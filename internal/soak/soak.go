// Package soak scales tests.
package soak

import "os"

// Long reports whether tests run their long versions, with EASYRL_SOAK=1 in the
// environment. Without it they try fewer cases, but some of every kind, and the same
// ones each time. Where Race is true, tests skip arithmetic of a single goroutine: it
// takes ten times as long there and cannot race.
func Long() bool { return os.Getenv("EASYRL_SOAK") == "1" }
