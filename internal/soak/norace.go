//go:build !race

package soak

// Race reports whether the race detector is on.
const Race = false
