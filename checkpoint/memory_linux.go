package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// slack is the number of bytes that a file in memory may grow in place. Its
// header grows slightly when its metadata does.
const slack = 1 << 20

// growMemory makes room for size bytes in a mapped memfd. The seal against
// shrinking keeps other processes' mappings of it valid. When a larger file
// replaces it, the old one stays mapped for its readers until the process ends.
// growMemory first clears the header's length, so that readers notice the rewrite.
func growMemory(m *MemoryFile, size int) error {
	if m.file != nil {
		// unlike a plain store, ordered before all that follow
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

// steady reports whether f is sealed against shrinking, so that all of a mapping
// can be read.
func steady(f *os.File) bool {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	return err == nil && seals&unix.F_SEAL_SHRINK != 0
}

// exchange swaps two names in one step.
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}
