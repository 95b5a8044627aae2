//go:build !linux

package writable

// create writes a file to dir and removes it.
func create(dir string) error { return createNamed(dir) }
