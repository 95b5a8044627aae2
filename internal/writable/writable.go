// Package writable tests whether a program could write to a place, without leaving a
// trace there.
package writable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/easyrl/easyrl/internal/filetype"
)

// Folder returns an error unless files could be written to dir, which need not exist yet.
// It does not create dir, and leaves nothing behind in it.
func Folder(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	case err == nil:
		return create(dir)
	case !errors.Is(err, fs.ErrNotExist):
		return &fs.PathError{Op: "mkdir", Path: dir, Err: cause(err)}
	}
	if _, err := os.Lstat(dir); err == nil { // a dangling link
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.EEXIST}
	}
	if len(filepath.Base(dir)) > longestName {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENAMETOOLONG}
	}
	return Folder(filepath.Dir(dir))
}

// longestName is the maximum length of a file name in common file systems, in bytes. They
// themselves report a longer one only in a folder that exists.
const longestName = 255

// checkFile returns an error if a file exists at path that is not a regular one or cannot be opened
// for writing.
func checkFile(path string) error {
	if err := filetype.Check(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// Refused reports whether err is permanent: this process cannot write to the place as it is. Other errors,
// such as a full disk, may be temporary.
func Refused(err error) bool {
	for _, refusal := range []error{filetype.ErrIrregular, fs.ErrPermission, fs.ErrNotExist, fs.ErrExist, syscall.EROFS,
		syscall.ENOTDIR, syscall.EISDIR,
		syscall.ELOOP, syscall.EINVAL, syscall.ENAMETOOLONG, syscall.ENOTSUP} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// trialContent returns the content of a trial file, enough for a full disk to refuse it.
func trialContent() []byte { return make([]byte, 4096) }

// createNamed writes a file to dir and removes it.
func createNamed(dir string) error {
	f, err := os.CreateTemp(dir, ".easyrl-")
	if err != nil {
		return &fs.PathError{Op: "write to", Path: dir, Err: cause(err)}
	}
	_, err = f.Write(trialContent())
	err = errors.Join(err, f.Close())
	_ = os.Remove(f.Name()) // err says more
	if err != nil {
		return &fs.PathError{Op: "write to", Path: dir, Err: cause(err)}
	}
	return nil
}

// cause returns the system's error number in err, without the path, or err if it has none.
func cause(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number
	}
	return err
}

// Contents returns an error unless files could be written to dir and to the named folders in
// it, and unless the named files in it could be written. None of them need exist.
func Contents(dir string, folders, files []string) error {
	err := Folder(dir)
	for _, name := range folders {
		if err == nil {
			err = Folder(filepath.Join(dir, name))
		}
	}
	for _, name := range files {
		if err == nil {
			err = checkFile(filepath.Join(dir, name))
		}
	}
	return err
}

// Among reports whether path is the same file as one of files, even by another path. It
// follows links.
func Among(path string, files []string) bool {
	target, err := os.Stat(path)
	return err == nil && slices.ContainsFunc(files, func(file string) bool {
		info, err := os.Stat(file)
		return err == nil && os.SameFile(info, target)
	})
}
