package publish

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/easyrl/easyrl/inference"
)

// Store is a folder for one run's weights that the trainer and the servers reach under the same path.
// It writes each version once, whatever the number of instances. Its methods may be called
// concurrently.
//
// For easyrl servers, a store also holds the newest version in memory; see Latest.
type Store struct {
	dir     string
	pattern *regexp.Regexp // names of the folders in dir that the store may remove
	latest  *Latest

	writing chan struct{} // semaphore of size 1, so that waiting can be canceled; full while Put runs
	kept    []string      // names of the last two put, newest last; guarded by writing
}

// NewStore returns a store in dir. The first Put creates dir if necessary.
func NewStore(dir string) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("weights folder %s: %w", dir, err)
	}
	return &Store{dir: abs, pattern: regexp.MustCompile(`^(\.writing-)?v\d+-[0-9A-Za-z]+$`), latest: NewLatest(),
		writing: make(chan struct{}, 1)}, nil
}

// Latest returns the store's in-memory copy of the newest weights.
func (s *Store) Latest() *Latest { return s.latest }

// Label returns the name of weights on the wire and in a store: version and checksum.
func Label(w inference.Weights) string { return fmt.Sprintf("v%d-%s", w.Version(), w.Checksum()) }

// Adapter is a LoRA adapter for weights that servers already hold. WriteSafetensors writes its
// tensors under the names that PEFT (Hugging Face's library for adapters) gives them.
type Adapter interface {
	inference.Weights
	// Config returns the content of AdapterConfig, PEFT's description of the adapter.
	Config() []byte
}

// AdapterFile and AdapterConfig are the files of PEFT's adapter folders.
const (
	AdapterFile   = "adapter_model.safetensors"
	AdapterConfig = "adapter_config.json"
)

// fileOf returns the name of the file that holds w in a version's folder.
func fileOf(w inference.Weights) string {
	if _, ok := w.(Adapter); ok {
		return AdapterFile
	}
	return "model.safetensors"
}

// Put writes w unless it has already been put, and returns its folder. The folder contains
// model.safetensors, or the two files of an adapter. It appears atomically and stays until two others
// have been put.
func (s *Store) Put(ctx context.Context, w inference.Weights) (string, error) {
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	name := Label(w)
	if !s.pattern.MatchString(name) {
		return "", fmt.Errorf("weights folder %s: checksum %q, expected letters and digits", s.dir, w.Checksum())
	}
	folder := filepath.Join(s.dir, name)
	info, err := os.Stat(filepath.Join(folder, fileOf(w)))
	if err != nil || !info.Mode().IsRegular() || !slices.Contains(s.kept, name) {
		if err := s.write(name, w); err != nil {
			return "", fmt.Errorf("weights folder %s: %w", s.dir, err)
		}
	}
	s.keep(name)
	return folder, nil
}

// write writes w to the folder called name, replacing one left by an earlier run.
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
	err := writeFile(filepath.Join(partial, fileOf(w)), w)
	if a, ok := w.(Adapter); ok && err == nil {
		err = os.WriteFile(filepath.Join(partial, AdapterConfig), a.Config(), 0o644)
	}
	if err != nil {
		_ = os.RemoveAll(partial)
		return err
	}
	final := filepath.Join(s.dir, name)
	if err := os.RemoveAll(final); err != nil {
		return err
	}
	return os.Rename(partial, final)
}

// writeFile writes w to a new file. It need not sync: nobody reads the file after a crash, and
// network file systems show a closed file in full to servers that open it later.
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

// keep records name as the newest folder and removes all others except the one put before, which
// another server may still be reading.
func (s *Store) keep(name string) {
	s.kept = append(slices.DeleteFunc(s.kept, func(n string) bool { return n == name }), name)
	s.kept = s.kept[max(0, len(s.kept)-2):]
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return // leftovers do no harm
	}
	for _, e := range entries {
		if s.pattern.MatchString(e.Name()) && e.Name() != name && e.Name() != s.kept[0] {
			_ = os.RemoveAll(filepath.Join(s.dir, e.Name()))
		}
	}
}

// ServerError returns an error with err's message that wraps neither ErrInvalid nor ErrStale. These
// would blame the request, but a refused publish is the server's fault.
func ServerError(err error) error {
	if errors.Is(err, inference.ErrInvalid) || errors.Is(err, inference.ErrStale) {
		return errors.New(err.Error())
	}
	return err
}
