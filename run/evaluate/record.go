package evaluate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/report"
)

// ErrRecord reports a file that is not a record, or a record with other settings. The file
// is unchanged.
var ErrRecord = errors.New("cannot continue this record")

// Record is a file of an evaluation's finished prompts, from which an interrupted
// evaluation continues. Its first line holds the settings. Each other line is a Result, in
// the order of completion until all prompts are done, then in prompt order. Its methods are
// safe for concurrent use and do nothing on nil.
type Record struct {
	path string

	mu   sync.Mutex // guards the fields below
	file *os.File
	size int64 // size of the file in bytes
	done map[place]line
}

// place identifies a prompt.
type place struct {
	set   string
	index int
}

// line is the part of the file that holds a Result.
type line struct {
	from, to int64 // byte offsets
	scores   *scores
}

// header is a record's first line.
type header struct {
	Settings map[string]string `json:"easyrl_eval"`
}

// maxHeader is the maximum length of the first line of a record in bytes, 1 MiB.
const maxHeader = 1 << 20

// OpenRecord creates a record at path, or continues the existing one. Its settings, values
// by name, must equal those given; the error names those that differ. OpenRecord drops a
// truncated last line. Only one process can have a record open. The caller closes it.
func OpenRecord(path string, settings map[string]string) (*Record, error) {
	r := &Record{path: path, done: map[place]line{}}
	if err := filetype.Check(path); err != nil {
		return nil, fmt.Errorf("open record: %w: %w", ErrRecord, err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if err = begin(path, settings); err == nil {
			file, err = os.OpenFile(path, os.O_RDWR, 0)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open record: %w", err)
	}
	r.file = file
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: not a regular file", ErrRecord) // reading it might never end
	}
	if err == nil && !checkpoint.Lock(file) {
		err = fmt.Errorf("%w: in use by another process", ErrRecord)
	}
	if err == nil {
		err = r.read(settings)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open record %s: %w", path, err), file.Close())
	}
	return r, nil
}

// begin atomically writes a record without results.
func begin(path string, settings map[string]string) error {
	first, err := encode(header{settings})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return report.Replace(path, func(w io.Writer) error {
		_, err := w.Write(first)
		return err
	})
}

// read reads the file, checks the settings and drops a truncated last line.
func (r *Record) read(settings map[string]string) error {
	in := bufio.NewReaderSize(r.file, maxHeader)
	first, err := in.ReadSlice('\n')
	var h header
	if err != nil || json.Unmarshal(first, &h) != nil || h.Settings == nil {
		if other := filetype.Explain(first, "a record of an evaluation"); other != nil {
			return fmt.Errorf("%w: %w", ErrRecord, other)
		}
		return fmt.Errorf("%w: line 1 does not hold an evaluation's settings", ErrRecord)
	}
	if d := differences(h.Settings, settings); d != "" {
		return fmt.Errorf("%w: %s; use the same settings or another file", ErrRecord, d)
	}
	r.size = int64(len(first))
	for number := 2; ; number++ {
		b, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break // without a newline: truncated
		}
		if err != nil {
			return err
		}
		var result Result
		if err := json.Unmarshal(b, &result); err != nil || len(result.Responses) == 0 {
			if _, more := in.Peek(1); errors.Is(more, io.EOF) {
				break
			}
			return fmt.Errorf("%w: line %d is not a prompt's result", ErrRecord, number)
		}
		r.add(&result, len(b))
	}
	return r.file.Truncate(r.size)
}

// add records a line at the end of the file.
func (r *Record) add(result *Result, length int) {
	r.done[place{result.Set, result.Index}] = line{r.size, r.size + int64(length), scoresOf(result)}
	r.size += int64(length)
}

// differences describes the settings that differ.
func differences(was, is map[string]string) string {
	var all []string
	names := slices.Concat(slices.Collect(maps.Keys(was)), slices.Collect(maps.Keys(is)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		before, had := was[name]
		now, has := is[name]
		switch {
		case !had:
			all = append(all, fmt.Sprintf("%s is %s and was unset", name, now))
		case !has:
			all = append(all, fmt.Sprintf("%s is unset and was %s", name, before))
		case before != now:
			all = append(all, fmt.Sprintf("%s changed from %s to %s", name, before, now))
		}
	}
	return strings.Join(all, ", ")
}

// Len returns the number of finished prompts.
func (r *Record) Len() int {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.done)
}

// Path returns the path of the file.
func (r *Record) Path() string { return r.path }

// Close closes the file.
func (r *Record) Close() error {
	if r == nil {
		return nil
	}
	return r.file.Close()
}

// scores returns the scores of a finished prompt, or nil.
func (r *Record) scores(set string, index int) *scores {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done[place{set, index}].scores
}

// write appends a finished prompt.
func (r *Record) write(result *Result) error {
	if r == nil {
		return nil
	}
	b, err := encode(result)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, err = r.file.WriteAt(b, r.size); err == nil {
			r.add(result, len(b))
		}
	}
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

// finish atomically rewrites the file with its lines in prompt order.
func (r *Record) finish() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	places := slices.SortedFunc(maps.Keys(r.done), func(a, b place) int {
		if d := strings.Compare(a.set, b.set); d != 0 {
			return d
		}
		return a.index - b.index
	})
	err := report.Replace(r.path, func(w io.Writer) error {
		first := r.size
		for _, p := range places {
			first = min(first, r.done[p].from)
		}
		copies := []line{{from: 0, to: first}}
		for _, p := range places {
			copies = append(copies, r.done[p])
		}
		for _, c := range copies {
			if _, err := io.Copy(w, io.NewSectionReader(r.file, c.from, c.to-c.from)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

// encode returns a line of JSON for people to read: <, > and & are not escaped.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}
