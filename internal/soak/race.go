//go:build race

package soak

// Race reports whether the race detector is on. Tests then skip arithmetic of a single goroutine, which
// cannot race and takes ten times as long with the detector.
const Race = true
