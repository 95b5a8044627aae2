package publish

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/easyrl/easyrl/inference"
)

// Store is a folder that trainer and servers both see, under the same path, and
// that one run has for itself. Each version of the weights is written to it
// once, whatever the number of instances. Its methods may be called
// concurrently.
//
// For easyrl servers a store also has the newest version in memory: see Latest.
type Store struct {
	dir     string
	pattern *regexp.Regexp
	latest  *Latest

	turn chan struct{} // holds a token while nobody writes
	have []string      // names of what was put last, newest last; of who has the turn
}

// NewStore is a store in dir, which is made with the first weights where there is
// none.
func NewStore(dir string) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("weights folder %s: %w", dir, err)
	}
	s := &Store{dir: abs, pattern: regexp.MustCompile(`^(\.writing-)?v\d+-[0-9A-Za-z]+$`), latest: NewLatest(), turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	return s, nil
}

// Latest is the newest version in memory.
func (s *Store) Latest() *Latest { return s.latest }

// Label names weights on the wire and in a store: version and checksum.
func Label(w inference.Weights) string { return fmt.Sprintf("v%d-%s", w.Version(), w.Checksum()) }

// file is the weights file of a version's folder.
const file = "model.safetensors"

// Put writes w where it is not there yet and returns its folder, which holds
// model.safetensors and appears at once or not at all. It stays until the
// second version after it is put.
func (s *Store) Put(ctx context.Context, w inference.Weights) (string, error) {
	select {
	case <-s.turn:
		defer func() { s.turn <- struct{}{} }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	name := Label(w)
	if !s.pattern.MatchString(name) {
		return "", fmt.Errorf("weights folder %s: checksum %q, expected letters and digits", s.dir, w.Checksum())
	}
	folder := filepath.Join(s.dir, name)
	if len(s.have) > 0 && s.have[len(s.have)-1] == name {
		if info, err := os.Stat(filepath.Join(folder, file)); err == nil && info.Mode().IsRegular() {
			return folder, nil
		}
	}
	if err := s.write(name, w); err != nil {
		return "", fmt.Errorf("weights folder %s: %w", s.dir, err)
	}
	s.keep(name)
	return folder, nil
}

// write makes name a folder with w in it. One of an earlier run is replaced.
func (s *Store) write(name string, w inference.Weights) error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	partial := filepath.Join(s.dir, ".writing-"+name)
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	if err := os.Mkdir(partial, 0o755); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(partial, file), w); err != nil {
		_ = os.RemoveAll(partial)
		return err
	}
	final := filepath.Join(s.dir, name)
	if err := os.RemoveAll(final); err != nil {
		return err
	}
	return os.Rename(partial, final)
}

// writeFile does not wait for the disk. Nobody needs the file after a crash, and
// servers of other machines see all of a file that was closed, as network file
// systems promise to who opens it afterwards.
func writeFile(path string, w inference.Weights) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if err := w.WriteSafetensors(f); err != nil {
		_ = f.Close()
		return fmt.Errorf("write %s: %w", path, err)
	}
	return f.Close()
}

// keep notes that name is the newest, and removes all versions but it and the
// one before it, which a late server may still read.
func (s *Store) keep(name string) {
	if len(s.have) == 0 || s.have[len(s.have)-1] != name {
		s.have = append(s.have, name)
	}
	s.have = s.have[max(0, len(s.have)-2):]
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return // what is left over does no harm
	}
	for _, e := range entries {
		if s.pattern.MatchString(e.Name()) && e.Name() != name && e.Name() != s.have[0] {
			_ = os.RemoveAll(filepath.Join(s.dir, e.Name()))
		}
	}
}

// Fault is err without the sentinels of requests: a publish that is refused is a
// fault of the server.
func Fault(err error) error {
	if errors.Is(err, inference.ErrInvalid) || errors.Is(err, inference.ErrStale) {
		return errors.New(err.Error())
	}
	return err
}
