//go:build unix

package checkpoint

import (
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/easyrl/easyrl/internal/bytesize"
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
		return mapping{}, fmt.Errorf("map %s: %w", bytesize.Text(info.Size()), err)
	}
	_ = unix.Madvise(data, unix.MADV_SEQUENTIAL) // a hint; failure is harmless
	return mapping{
		data:  data,
		unmap: func() error { return unix.Munmap(data) },
		release: func(begin, end int) {
			page := os.Getpagesize()
			begin = begin / page * page
			end = end / page * page
			if begin < end {
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

// Lock retries for lockPatience. A lock belongs to the open file, which a child inherits
// between fork and exec; so a child may briefly hold the lock of a killed process.
const (
	lockPatience = time.Second
	lockPause    = 10 * time.Millisecond
)

// Lock takes the exclusive lock (flock) of a file and holds it until the file is closed
// or the process ends. It returns false if another open file holds the lock. On a file system
// without locks it always returns true.
func Lock(f *os.File) bool {
	for began := time.Now(); ; time.Sleep(lockPause) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) { // success, or a file system without locks
			return true
		}
		if time.Since(began) > lockPatience {
			return false
		}
	}
}
