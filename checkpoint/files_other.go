//go:build !unix

package checkpoint

import (
	"io"
	"os"
)

// mapOpen reads the whole of an open file; these systems do not map it.
func mapOpen(f *os.File) (mapping, error) {
	data, err := io.ReadAll(f)
	return inMemory(data), err
}

// syncDir does nothing: these systems cannot open a folder to sync it.
func syncDir(string) error { return nil }

// Lock always succeeds: these systems have no lock that ends with its process.
func Lock(*os.File) bool { return true }
