package filetype

import (
	"fmt"
	"io/fs"
	"os"
)

// Read reads a file of a model or data set. It refuses what is not a file on disk before
// it opens it, because a pipe or a device may block or never end.
func Read(path string) ([]byte, error) {
	if err := Check(path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// Check returns an error if path is a pipe, a device or a socket. It does not open it.
func Check(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil //nolint:nilerr // opening it reports the error
	}
	what := ""
	switch mode := info.Mode(); {
	case mode&fs.ModeNamedPipe != 0:
		what = "a pipe"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	default:
		return nil
	}
	return fmt.Errorf("%s is %s, expected a regular file", path, what)
}
