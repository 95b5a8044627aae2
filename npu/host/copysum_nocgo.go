//go:build !cgo || !unix

package host

// isas names the instruction sets that copierOf accepts: none without cgo.
func isas() []string { return nil }

// copierOf is the one in plain Go: there are no others without cgo.
func copierOf(string) copier { return copyGo }
