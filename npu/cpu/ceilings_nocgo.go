//go:build !cgo || !unix

package cpu

// loopsOf returns the pure-Go loops, the only ones without cgo.
func loopsOf(string) loops { return pureGoLoops() }
