//go:build !linux

package checkpoint

import (
	"errors"
	"os"
)

// growMemory makes room for size bytes. Other processes cannot open them.
func growMemory(m *MemoryFile, size int) error {
	if size > len(m.room) {
		m.room = make([]byte, size)
	}
	return nil
}

// steady is always false: only Linux seals files.
func steady(*os.File) bool { return false }

// exchange is supported only on Linux.
func exchange(_, _ string) error { return errors.ErrUnsupported }
