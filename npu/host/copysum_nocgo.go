//go:build !cgo || !unix

package host

// isas returns the instruction sets that copierOf accepts: none without cgo.
func isas() []string { return nil }

// copierOf returns the pure-Go copier, the only one without cgo.
func copierOf(string) copier { return copyGo }
