package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/easyrl/easyrl/internal/filetype"
)

// manifestName is the path of a checkpoint's manifest. Save writes it last, so a checkpoint
// without it is incomplete.
const manifestName = "trainer/manifest.json"

const (
	manifestVersion = 1
	maxManifest     = 1 << 24 // maximum size of a manifest in bytes
)

// manifest lists every other file of a checkpoint.
type manifest struct {
	Version int                   `json:"version"`
	Files   map[string]fileRecord `json:"files"` // by slash-separated path in the checkpoint
}

type fileRecord struct {
	Size   int64  `json:"size"`   // in bytes
	SHA256 string `json:"sha256"` // in lower-case hexadecimal
}

// Verify checks that a checkpoint is valid: it has a manifest, and every file that the
// manifest lists exists and has the recorded size and checksum. It reads all files. The
// error names the file and its expected and actual state.
func Verify(dir string) error {
	if err := verify(dir); err != nil {
		return fmt.Errorf("verify checkpoint %s: %w", dir, err)
	}
	return nil
}

func verify(dir string) error {
	text, err := filetype.ReadLimited(filepath.Join(dir, manifestName), maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no %s: the checkpoint is incomplete: %w", manifestName, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", manifestName, err)
	}
	m, err := parseManifest(text)
	if err != nil {
		return fmt.Errorf("%s: %w", manifestName, err)
	}
	names := slices.Sorted(maps.Keys(m.Files))
	for _, name := range names { // sizes first, because checking them is cheap
		info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%s: missing, expected %d bytes", name, m.Files[name].Size)
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s: %s, expected a regular file", name, info.Mode().Type())
		case info.Size() != m.Files[name].Size:
			return fmt.Errorf("%s: %d bytes, expected %d", name, info.Size(), m.Files[name].Size)
		}
	}
	for _, name := range names {
		got, err := record(filepath.Join(dir, filepath.FromSlash(name)), (*os.File).Close)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if got != m.Files[name] {
			return fmt.Errorf("%s: sha256 %s of %d bytes, expected %s of %d", name, got.SHA256, got.Size,
				m.Files[name].SHA256, m.Files[name].Size)
		}
	}
	return nil
}

// parseManifest parses and checks a manifest. A path in it that leads out of the checkpoint is
// an error.
func parseManifest(text []byte) (*manifest, error) {
	m := new(manifest)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, err
	}
	if m.Version != manifestVersion {
		return nil, fmt.Errorf("version is %d, expected %d", m.Version, manifestVersion)
	}
	if len(m.Files) == 0 {
		return nil, errors.New("the manifest lists no files")
	}
	for name, r := range m.Files {
		sum, err := hex.DecodeString(r.SHA256)
		switch {
		case !fs.ValidPath(name) || !filepath.IsLocal(filepath.FromSlash(name)) || name == "." || name == manifestName:
			return nil, fmt.Errorf("file %q is outside the checkpoint", name)
		case r.Size < 0 || err != nil || len(sum) != sha256.Size || hex.EncodeToString(sum) != r.SHA256:
			return nil, fmt.Errorf(
				"file %q: size %d and sha256 %.80q, expected a size and %d hexadecimal digits in lower case", name,
				r.Size, r.SHA256, 2*sha256.Size)
		}
	}
	return m, nil
}

// record returns the size and checksum of a file. It closes the file with the function done.
func record(path string, done func(*os.File) error) (fileRecord, error) {
	f, err := filetype.Open(path)
	if err != nil {
		return fileRecord{}, err
	}
	h := sha256.New()
	n, err := io.Copy(h, f)
	return fileRecord{n, hex.EncodeToString(h.Sum(nil))}, errors.Join(err, done(f))
}

// syncAndClose makes the content of a file durable and closes it.
func syncAndClose(f *os.File) error { return errors.Join(f.Sync(), f.Close()) }

// seal makes a new checkpoint valid: it syncs all files to disk and then writes the
// manifest.
func seal(dir string) error {
	m := manifest{manifestVersion, make(map[string]fileRecord)}
	if err := os.Mkdir(filepath.Join(dir, filepath.Dir(manifestName)), 0o755); err != nil &&
		!errors.Is(err, fs.ErrExist) {
		return err
	}
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		switch {
		case e.IsDir():
			dirs = append(dirs, path)
			return nil
		case !e.Type().IsRegular():
			return fmt.Errorf("%s: %s, expected files and folders only", name, e.Type())
		case name == manifestName:
			return fmt.Errorf("%s already exists, although only easyrl writes it", name)
		}
		m.Files[name], err = record(path, syncAndClose)
		return err
	})
	if err != nil {
		return err
	}
	if len(m.Files) == 0 {
		return errors.New("nothing was written")
	}
	err = writeFile(filepath.Join(dir, manifestName), 0o644, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(m)
	})
	for _, d := range slices.Backward(dirs) { // children before parents
		err = errors.Join(err, syncDir(d))
	}
	return err
}
