package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// Prefixes of folders in a run's checkpoint root that do not have a checkpoint's final name.
const (
	tempPrefix     = ".tmp-"      // a folder that is being written or removed
	replacedPrefix = ".replaced-" // a checkpoint that Save is replacing
)

// asidePrefix is the prefix of folders that SetAside has renamed.
const asidePrefix = "failed-"

// Save creates the checkpoint root/name: write fills a new folder, which Save
// seals with a manifest and moves into place. It replaces a folder of that name. At any
// instant, even after a power cut, Latest finds either the previous checkpoint or the
// complete new one. Only one process at a time may save in a root.
func Save(root, name string, write func(dir string) error) (path string, err error) {
	path, err = save(root, name, write)
	if err != nil {
		return "", fmt.Errorf("save checkpoint %q in %s: %w", name, root, err)
	}
	return path, nil
}

func save(root, name string, write func(dir string) error) (string, error) {
	if name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") || !filepath.IsLocal(name) {
		return "", fmt.Errorf("name is %q, expected a plain folder name", name)
	}
	path := filepath.Join(root, name)
	if info, err := os.Lstat(path); err == nil && !info.IsDir() {
		return "", fmt.Errorf("already exists with mode %s, expected a folder or nothing", info.Mode())
	}
	temp, err := makeTemp(root, name)
	if err != nil {
		return "", err
	}
	err = write(temp)
	if err == nil {
		err = seal(temp)
	}
	if err == nil {
		err = publish(root, temp, name)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(temp))
	}
	return path, nil
}

// SetAside durably renames the checkpoint root/name, so that Latest and Prune ignore
// it, and returns its new path. It replaces a folder that has the new name. The error
// wraps fs.ErrNotExist if there is no such checkpoint.
func SetAside(root, name string) (path string, err error) {
	path = filepath.Join(root, asidePrefix+name)
	if _, err = os.Lstat(filepath.Join(root, name)); err == nil {
		err = os.RemoveAll(path)
	}
	if err == nil {
		err = os.Rename(filepath.Join(root, name), path)
	}
	if err == nil {
		err = syncDir(root)
	}
	if err != nil {
		return "", fmt.Errorf("set checkpoint %q aside in %s: %w", name, root, err)
	}
	return path, nil
}

// makeTemp creates a temporary folder for root/name, and root if needed. It returns its path.
func makeTemp(root, name string) (string, error) {
	if err := makeRoot(root); err != nil {
		return "", err
	}
	for {
		temp := filepath.Join(root, fmt.Sprintf("%s%s-%08x", tempPrefix, name, rand.Uint32()))
		if err := os.Mkdir(temp, 0o777); !errors.Is(err, fs.ErrExist) {
			return temp, err
		}
	}
}

// makeRoot durably creates a folder and its missing parents.
func makeRoot(root string) error {
	top := root // after the loop, the deepest folder that exists
	for {
		if _, err := os.Stat(top); !errors.Is(err, fs.ErrNotExist) || top == filepath.Dir(top) {
			break
		}
		top = filepath.Dir(top)
	}
	if err := os.MkdirAll(root, 0o777); err != nil {
		return err
	}
	for dir := root; dir != top; {
		dir = filepath.Dir(dir)
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// publish moves a sealed folder to its final name.
func publish(root, temp, name string) error {
	path := filepath.Join(root, name)
	_, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = os.Rename(temp, path)
	case err == nil:
		err = replace(root, temp, name, exchange)
	}
	if err == nil {
		err = syncDir(root)
	}
	return err
}

// replace swaps a sealed folder into the place of another. If the system cannot
// exchange the two atomically, the old folder waits under another name, where
// Latest finds it, until the new one is in place.
func replace(root, temp, name string, exchange func(a, b string) error) error {
	path, old := filepath.Join(root, name), filepath.Join(root, replacedPrefix+name)
	if exchange(temp, path) == nil {
		if err := syncDir(root); err != nil {
			return err
		}
		return os.RemoveAll(temp)
	}
	if err := discard(root, replacedPrefix+name); err != nil {
		return err
	}
	if err := os.Rename(path, old); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return errors.Join(err, os.Rename(old, path))
	}
	if err := syncDir(root); err != nil {
		return err
	}
	return discard(root, replacedPrefix+name)
}

// discard removes the folder root/name if it exists. It moves the folder into a temporary
// one first, so that Latest never sees a partly removed checkpoint.
func discard(root, name string) error {
	path := filepath.Join(root, name)
	if strings.HasPrefix(name, tempPrefix) {
		return os.RemoveAll(path)
	}
	temp, err := makeTemp(root, name)
	if err != nil {
		return err
	}
	if err := os.Rename(path, filepath.Join(temp, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, os.Remove(temp))
	}
	return os.RemoveAll(temp)
}
