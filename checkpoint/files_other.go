//go:build !unix

package checkpoint

import "os"

// mapFile reads a file.
func mapFile(path string) (data []byte, unmap func() error, err error) {
	data, err = os.ReadFile(path)
	return data, func() error { return nil }, err
}

// syncDir does nothing: these systems cannot open a folder to sync it.
func syncDir(string) error { return nil }
