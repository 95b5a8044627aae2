//go:build !unix

package checkpoint

import (
	"io"
	"os"
)

// mapFile reads a file.
func mapFile(path string) (mapping, error) {
	data, err := os.ReadFile(path)
	return inMemory(data), err
}

// mapOpen reads an open file.
func mapOpen(f *os.File) (mapping, error) {
	data, err := io.ReadAll(f)
	return inMemory(data), err
}

// syncDir does nothing: these systems cannot open a folder to sync it.
func syncDir(string) error { return nil }
