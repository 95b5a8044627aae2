//go:build !linux

package checkpoint

import "os"

// growMemory makes room for size bytes that no other process can open.
func growMemory(m *Memory, size int) error {
	if size > len(m.room) {
		m.room = make([]byte, size)
	}
	return nil
}

// steady is Linux's alone.
func steady(*os.File) bool { return false }
