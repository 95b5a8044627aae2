package session

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/easyrl/easyrl/internal/filetype"
)

// NewFolder makes a folder in Config.Folder and returns its path. No earlier folder had its name, because a lost
// rank may still be writing to an earlier one.
func (s *Session[R]) NewFolder() (string, error) {
	s.folders++
	folder := filepath.Join(s.cfg.Folder, fmt.Sprintf("%06d-%d", s.updates, s.folders))
	return folder, os.MkdirAll(folder, 0o755)
}

// CopyTree copies the files below from to the folder to, as hard links where the file system
// supports them.
func CopyTree(to, from string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		switch {
		case entry.IsDir():
			return os.MkdirAll(target, 0o755)
		case os.Link(path, target) == nil:
			return nil
		}
		return copyFile(target, path)
	})
}

// copyFile copies the contents of a file.
func copyFile(to, from string) error {
	in, err := filetype.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
