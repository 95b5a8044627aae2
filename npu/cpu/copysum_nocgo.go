//go:build !cgo || !unix

package cpu

// copierOf is the one in plain Go: there are no others without cgo.
func copierOf(string) copier { return copyTwin }
