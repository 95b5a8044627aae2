// Package checkpoint reads and writes safetensors weights and the state that
// makes a run resumable.
package checkpoint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/easyrl/easyrl/internal/filetype"
)

// ErrNotFound reports that no checkpoint or weights were found.
var ErrNotFound = errors.New("not found")

const (
	modelName = "model.safetensors"
	indexName = "model.safetensors.index.json"
	maxIndex  = 1 << 28 // maximum size of an index in bytes, far above those of real models
)

// WeightFiles gives access to the weights of a model folder, mapped into memory.
// Reading a tensor releases its pages afterwards. Its methods may be called
// concurrently.
type WeightFiles struct {
	files    []*file
	tensors  map[string]Tensor // by name
	metadata map[string]string // __metadata__ of all files
}

// file is one open safetensors file.
type file struct {
	path   string
	header *header

	// mu is read-locked while the mapping is read, and locked to close it. data is nil once the
	// file is closed.
	mu sync.RWMutex
	mapping
}

// mapping is a file's content in memory.
type mapping struct {
	data  []byte
	unmap func() error // invalidates data
	// release frees the memory of the pages from the page of begin up to the page of end,
	// exclusive. The pages stay readable: the next access reads them from the file.
	release func(begin, end int)
}

// inMemory returns a mapping of data on the heap.
func inMemory(data []byte) mapping {
	return mapping{data: data, unmap: func() error { return nil }, release: func(int, int) {}}
}

// A Tensor describes one tensor of WeightFiles or of a Stream. Float32s and ReadAt fail for a
// tensor of a Stream.
type Tensor struct {
	Name  string
	DType DType
	Shape []int // row-major; empty for a scalar

	file       *file // nil for a tensor of a Stream
	begin, end int   // byte range in the file
}

// OpenFolder opens the weights of a Hugging Face model folder: model.safetensors,
// or else the shards listed in model.safetensors.index.json. The error wraps
// ErrNotFound if the folder has neither file or does not exist.
func OpenFolder(dir string) (*WeightFiles, error) {
	f, err := openFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("open weights %s: %w", dir, err)
	}
	return f, nil
}

// OpenFile opens one safetensors file.
func OpenFile(path string) (*WeightFiles, error) {
	f := newWeightFiles()
	if err := f.openAll(path); err != nil {
		return nil, fmt.Errorf("open weights %s: %w", path, err)
	}
	return f, nil
}

func newWeightFiles() *WeightFiles {
	return &WeightFiles{tensors: make(map[string]Tensor), metadata: make(map[string]string)}
}

func openFolder(dir string) (*WeightFiles, error) {
	f := newWeightFiles()
	path := filepath.Join(dir, modelName)
	if _, err := os.Stat(path); err == nil {
		if err := f.openAll(path); err != nil {
			return nil, fmt.Errorf("%s: %w", modelName, err)
		}
		return f, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	text, err := filetype.ReadLimited(filepath.Join(dir, indexName), maxIndex)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", indexName, err)
	}
	shards, err := parseIndex(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", indexName, err)
	}
	if err := f.openShards(dir, shards); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// missing returns the error for a folder without weights.
func missing(dir string) error {
	if info, err := os.Stat(dir); err != nil {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	} else if !info.IsDir() {
		return errors.New("path is a file, expected a folder")
	}
	return fmt.Errorf("%w: no %s or %s", ErrNotFound, modelName, indexName)
}

// parseIndex parses a model.safetensors.index.json. It returns the names of the tensors by
// shard.
func parseIndex(text []byte) (map[string][]string, error) {
	shards := make(map[string][]string)
	found := false
	err := object(text, func(key string, value json.RawMessage) error {
		if key != "weight_map" {
			return nil
		}
		found = true
		return object(value, func(tensor string, value json.RawMessage) error {
			var name string
			if err := json.Unmarshal(value, &name); err != nil || name == "" {
				return fmt.Errorf("weight_map: tensor %q maps to %.40s, expected a shard name", tensor, value)
			}
			if !filepath.IsLocal(name) {
				return fmt.Errorf("weight_map: tensor %q: shard %q is outside the folder", tensor, name)
			}
			shards[name] = append(shards[name], tensor)
			return nil
		})
	})
	if err == nil && !found {
		err = errors.New("no weight_map")
	}
	return shards, err
}

// openShards opens shards and exposes the tensors that the index places there. After an
// error, f holds the shards opened so far.
func (f *WeightFiles) openShards(dir string, shards map[string][]string) error {
	for _, name := range slices.Sorted(maps.Keys(shards)) {
		s, err := openFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("shard %s with %d tensors (%s …): %w", name, len(shards[name]), shards[name][0], err)
		}
		f.files = append(f.files, s)
		tensors := s.tensors()
		for _, tensor := range shards[name] {
			t, ok := tensors[tensor]
			if !ok {
				return fmt.Errorf("tensor %q: not in shard %s, where %s places it", tensor, name, indexName)
			}
			f.tensors[tensor] = t
		}
		maps.Copy(f.metadata, s.header.metadata)
	}
	return nil
}

// openAll opens the only file and exposes all its tensors.
func (f *WeightFiles) openAll(path string) error {
	s, err := openFile(path)
	if err != nil {
		return err
	}
	f.files, f.tensors = []*file{s}, s.tensors()
	maps.Copy(f.metadata, s.header.metadata)
	return nil
}

func openFile(path string) (*file, error) {
	f, err := filetype.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read; the mapping outlives f
	m, err := mapOpen(f)
	if err != nil {
		return nil, err
	}
	s, err := newFile(path, m)
	if err != nil {
		return nil, errors.Join(err, m.unmap())
	}
	return s, nil
}

// newFile parses the header of a mapped file. After an error, the caller must unmap it.
func newFile(path string, m mapping) (*file, error) {
	var h *header
	var fault error
	if err := guard(func() { h, fault = parseHeader(m.data) }); err != nil {
		return nil, err
	}
	if fault != nil {
		return nil, cmp.Or(filetype.Explain(m.data, "safetensors", "a safetensors file", "binary data"), fault)
	}
	m.release(0, h.size)
	return &file{path: path, mapping: m, header: h}, nil
}

func (s *file) tensors() map[string]Tensor {
	all := make(map[string]Tensor, len(s.header.entries))
	for _, e := range s.header.entries {
		all[e.name] = Tensor{Name: e.name, DType: e.dtype, Shape: e.shape, file: s,
			begin: s.header.size + e.begin, end: s.header.size + e.end}
	}
	return all
}

// Names returns the tensors' names in ascending order.
func (f *WeightFiles) Names() []string { return slices.Sorted(maps.Keys(f.tensors)) }

// Tensor returns the named tensor. It reads no data.
func (f *WeightFiles) Tensor(name string) (Tensor, bool) {
	t, ok := f.tensors[name]
	return t, ok
}

// Metadata returns the __metadata__ entries of the files.
func (f *WeightFiles) Metadata() map[string]string { return maps.Clone(f.metadata) }

// Close releases the files. Reading a tensor afterwards fails.
func (f *WeightFiles) Close() error {
	var errs []error
	for _, s := range f.files {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

// read passes bytes [begin, end) of the file to use, which must not keep them, and then
// releases their memory. It keeps the page that contains end, for the next sequential read.
func (s *file) read(begin, end int, use func(src []byte)) (err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.data == nil {
		return errors.New("file is closed")
	}
	if err := guard(func() { use(s.data[begin:end]) }); err != nil {
		return err
	}
	s.release(begin, end)
	return nil
}

// guard turns a memory fault during read into an error. Reading a mapping faults if the file
// is shorter than the mapping or cannot be read.
func guard(read func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // sets it now and restores it later
	defer func() {
		fault := recover()
		if _, ok := fault.(interface{ Addr() uintptr }); ok {
			err = errors.New("read failed: the file was truncated while open, or the disk failed")
		} else if fault != nil {
			panic(fault)
		}
	}()
	read()
	return nil
}

func (s *file) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.data == nil {
		return nil
	}
	s.data = nil
	if err := s.unmap(); err != nil {
		return fmt.Errorf("close weights %s: %w", s.path, err)
	}
	return nil
}
