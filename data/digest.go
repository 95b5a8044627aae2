package data

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/easyrl/easyrl/internal/filetype"
)

// Digest returns a checksum of the content of all files named by paths and
// patterns, in order: the SHA-256 of the files' SHA-256 sums, in hexadecimal. It does not
// depend on file names.
func Digest(paths []string) (string, error) {
	files, err := expand(paths)
	if err != nil {
		return "", err
	}
	all := sha256.New()
	for _, f := range files {
		content := sha256.New()
		if err := copyFile(content, f.path); err != nil {
			return "", fmt.Errorf("read prompts %s: %w", f.path, err)
		}
		all.Write(content.Sum(nil))
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}

// copyFile writes the content of a file to a writer.
func copyFile(to io.Writer, path string) error {
	f, err := filetype.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	_, err = io.Copy(to, f)
	return err
}
