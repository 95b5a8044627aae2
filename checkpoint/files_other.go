//go:build !unix

package checkpoint

import (
	"io"
	"os"
)

// mapOpen reads an open file into memory. Only on Unix are files mapped.
func mapOpen(f *os.File) (mapping, error) {
	data, err := io.ReadAll(f)
	return inMemory(data), err
}

// syncDir does nothing: syncing a folder is not portable beyond Unix.
func syncDir(string) error { return nil }

// Lock takes no lock and always succeeds. Locks are implemented only on Unix.
func Lock(*os.File) bool { return true }
