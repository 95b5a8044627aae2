package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// slack is the number of bytes that a file in memory may grow in place. A new version of
// the weights changes only the metadata, so its header grows slightly.
const slack = 1 << 20

// growMemory makes room for size bytes in a mapped memfd. It reuses the file if size is at
// least the old size and at most slack larger than its first; a seal forbids shrinking, which
// keeps other processes' mappings valid. Otherwise it makes a new file. The old one stays
// mapped for its readers until the process ends. growMemory first clears the header's
// length, so that readers notice the rewrite.
func growMemory(m *MemoryFile, size int) error {
	if m.file != nil {
		// An atomic operation: other processes see it before the writes that follow.
		atomic.SwapUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(m.room))), 0)
	}
	if m.file != nil && size >= m.size && size <= len(m.room) {
		return m.file.Truncate(int64(size))
	}
	fd, err := unix.MemfdCreate("easyrl-weights", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd))
	if err := file.Truncate(int64(size)); err != nil {
		return errors.Join(err, file.Close())
	}
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		return errors.Join(os.NewSyscallError("fcntl", err), file.Close())
	}
	room, err := unix.Mmap(fd, 0, size+slack, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return errors.Join(os.NewSyscallError("mmap", err), file.Close())
	}
	m.file, m.room, m.path = file, room, file.Name()
	return nil
}

// unshrinkable reports whether f is sealed against shrinking, so that reading its mapping
// cannot fault.
func unshrinkable(f *os.File) bool {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	return err == nil && seals&unix.F_SEAL_SHRINK != 0
}

// exchange atomically swaps two paths. It fails on file systems without this operation.
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}
