//go:build unix

package checkpoint

import (
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// mapOpen maps an open file for reading.
func mapOpen(f *os.File) (mapping, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return mapping{}, err
	case !info.Mode().IsRegular():
		return mapping{}, fmt.Errorf("%s, expected a regular file", info.Mode().Type())
	case info.Size() == 0: // an empty file cannot be mapped
		return inMemory([]byte{}), nil
	case info.Size() > math.MaxInt:
		return mapping{}, fmt.Errorf("%d bytes, expected at most %d", info.Size(), math.MaxInt)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return mapping{}, fmt.Errorf("map %d bytes: %w", info.Size(), err)
	}
	_ = unix.Madvise(data, unix.MADV_SEQUENTIAL) // a hint; failure is harmless
	return mapping{
		data:  data,
		unmap: func() error { return unix.Munmap(data) },
		release: func(begin, end int) {
			page := os.Getpagesize()
			if begin, end = begin/page*page, end/page*page; begin < end {
				_ = unix.Madvise(data[begin:end], unix.MADV_DONTNEED) // a hint; failure is harmless
			}
		},
	}, nil
}

// syncDir makes the entries of a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
