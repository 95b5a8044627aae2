package filetype

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrIrregular means that a path is a folder, a pipe, a device or a socket.
var ErrIrregular = errors.New("expected a regular file")

// maxRead bounds the files that Read reads, in bytes. The largest tokenizers take about 40 MB.
const maxRead = 1 << 30

// Open opens a regular file for reading and follows symbolic links. It refuses anything else
// without opening it, because opening a pipe blocks, opening a device may act, and reading either
// may never end.
func Open(path string) (*os.File, error) {
	if err := Check(path); err != nil {
		return nil, err
	}
	// With O_NONBLOCK the call returns even if a pipe has replaced the file since Check.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = irregular(path, info.Mode())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// OpenInput is Open for a file that the user names. It also opens the process's own file
// descriptors, which may be pipes: /dev/stdin, and /dev/fd/N, which a shell passes for <(…).
func OpenInput(path string) (*os.File, error) {
	if isDescriptor(path) {
		return os.Open(path)
	}
	return Open(path)
}

// isDescriptor reports whether path names a file descriptor of this process.
func isDescriptor(path string) bool {
	clean := filepath.ToSlash(filepath.Clean(path))
	return clean == "/dev/stdin" || strings.HasPrefix(clean, "/dev/fd/") || strings.HasPrefix(clean, "/proc/self/fd/")
}

// Read reads a regular file of at most 1 GiB. It opens the file with Open.
func Read(path string) ([]byte, error) { return readAll(path, Open, maxRead) }

// ReadLimited reads a regular file of at most limit bytes. It opens the file with Open.
func ReadLimited(path string, limit int64) ([]byte, error) { return readAll(path, Open, limit) }

// ReadInput reads a file of at most limit bytes. It opens the file with OpenInput.
func ReadInput(path string, limit int64) ([]byte, error) { return readAll(path, OpenInput, limit) }

func readAll(path string, open func(string) (*os.File, error), limit int64) ([]byte, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	var b bytes.Buffer
	if info, err := f.Stat(); err == nil {
		if info.Size() > limit {
			return nil, fmt.Errorf("%s has %d bytes, expected at most %d", path, info.Size(), limit)
		}
		b.Grow(int(info.Size()) + bytes.MinRead)
	}
	if _, err := b.ReadFrom(io.LimitReader(f, limit+1)); err != nil {
		return nil, err
	}
	if int64(b.Len()) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return b.Bytes(), nil
}

// Check returns an error if path exists and is not a regular file after following symbolic
// links. It does not open it.
func Check(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil //nolint:nilerr // opening it reports the error
	}
	return irregular(path, info.Mode())
}

// CheckFolder returns an error if an entry of a folder is neither a regular file nor a folder. It
// guards code that opens the folder's files itself, without Open.
func CheckFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			if err := irregular(path, info.Mode()); err != nil {
				return err
			}
		}
	}
	return nil
}

// irregular returns nil for the mode of a regular file, or else an error that says what path is.
func irregular(path string, mode fs.FileMode) error {
	what := "a special file"
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		what = "a folder"
	case mode&fs.ModeNamedPipe != 0:
		what = "a pipe"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	}
	return fmt.Errorf("%s is %s, %w", path, what, ErrIrregular)
}
