//go:build !cgo || !unix

package cpu

// loopsOf are the loops in plain Go: there are no others without cgo.
func loopsOf(string) loops { return pureGoLoops() }
