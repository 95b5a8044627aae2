//go:build !linux

package checkpoint

import (
	"errors"
	"os"
)

// growMemory makes room for size bytes on the heap, which other processes cannot open.
func growMemory(m *MemoryFile, size int) error {
	if size > len(m.room) {
		m.room = make([]byte, size)
	}
	return nil
}

// unshrinkable is always false: only Linux seals files.
func unshrinkable(*os.File) bool { return false }

// exchange always fails: an atomic swap of paths is implemented only on Linux.
func exchange(_, _ string) error { return errors.ErrUnsupported }
