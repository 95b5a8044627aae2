package writable

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// create writes to an unnamed file in dir (O_TMPFILE), which changes nothing in dir, not even
// its modification time. If the file system has no such files, it writes a named one.
func create(dir string) error {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	switch err { //nolint:errorlint // unix.Open returns a plain number
	case nil:
	case unix.EOPNOTSUPP, unix.EISDIR, unix.EINVAL, unix.ENOENT:
		return createNamed(dir)
	default:
		return &fs.PathError{Op: "write to", Path: dir, Err: err.(syscall.Errno)} //nolint:errorlint // as above
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close() //nolint:errcheck // the file is gone anyway
	if _, err := f.Write(trialContent()); err != nil {
		return &fs.PathError{Op: "write to", Path: dir, Err: cause(err)}
	}
	return nil
}
