//go:build !unix

package checkpoint

import (
	"io"
	"os"
)

// mapOpen reads an open file into memory. Files are mapped only on Unix.
func mapOpen(f *os.File) (mapping, error) {
	data, err := io.ReadAll(f)
	return inMemory(data), err
}

// syncDir does nothing: syncing a folder works only on Unix.
func syncDir(string) error { return nil }

// Lock takes no lock and always succeeds. Locks are implemented only on Unix.
func Lock(*os.File) bool { return true }
