package report

import (
	"bufio"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ReplaceFile replaces the content of path with data as Replace does.
func ReplaceFile(path string, data []byte) error {
	return Replace(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Replace replaces the content of path with the data that write writes, atomically: readers see the
// old or the new content, even after a crash. A new file gets permissions 0644 less the umask;
// an existing file keeps its own.
func Replace(path string, write func(w io.Writer) error) error {
	mode := fs.FileMode(0)
	if old, err := os.Stat(path); err == nil {
		mode = old.Mode().Perm()
	}
	return replace(path, mode, write)
}

// ReplacePrivateFile replaces the content of path with data like ReplaceFile. The file gets permissions
// 0600.
func ReplacePrivateFile(path string, data []byte) error {
	return replace(path, 0o600, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// replace implements Replace. A mode of 0 leaves the permissions to the umask.
func replace(path string, mode fs.FileMode, write func(w io.Writer) error) error {
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text())
	perm := fs.FileMode(0o644)
	if mode != 0 {
		perm &= mode // never more than mode; Chmod sets the other bits
	}
	temp, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) //nolint:errcheck // gone after the rename
	if mode != 0 {
		err = temp.Chmod(mode)
	}
	out := bufio.NewWriter(temp)
	err = errors.Join(err, write(out), out.Flush(), temp.Sync(), temp.Close())
	if err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}
