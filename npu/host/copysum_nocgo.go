//go:build !cgo || !unix

package host

// isas names the instruction sets that copierOf accepts: none without cgo.
func isas() []string { return nil }

// copierOf is the copier in pure Go, the only one without cgo.
func copierOf(string) copier { return copyGo }
