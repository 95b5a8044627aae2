package report

import (
	"bufio"
	"crypto/rand"
	"errors"
	"io"
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

// Replace replaces the content of path with what write writes, atomically: readers see the
// old or the new content, even after a crash. A new file has the permissions that the umask
// leaves it; an existing one keeps its own.
func Replace(path string, write func(w io.Writer) error) error {
	temp, err := os.OpenFile(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) //nolint:errcheck // gone after the rename
	if old, statErr := os.Stat(path); statErr == nil {
		err = temp.Chmod(old.Mode().Perm())
	}
	out := bufio.NewWriter(temp)
	err = errors.Join(err, write(out), out.Flush(), temp.Sync(), temp.Close())
	if err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}
