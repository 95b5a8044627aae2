package checkpoint

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/easyrl/easyrl/internal/filetype"
)

// A Source is a tensor to write.
type Source struct {
	Name  string
	DType DType                     // F32 if empty, or BF16
	Shape []int                     // row-major; empty for a scalar
	Write func(dst []float32) error // fills dst, which is zeroed and has the shape's length
}

// Filled adapts fill, which cannot fail, to Source.Write.
func Filled(fill func(dst []float32)) func(dst []float32) error {
	return func(dst []float32) error {
		fill(dst)
		return nil
	}
}

// WriteSafetensors writes a safetensors file: tensors in name order, and metadata. It buffers
// one tensor at a time and calls each Write once.
func WriteSafetensors(w io.Writer, tensors []Source, metadata map[string]string) error {
	tensors = slices.Clone(tensors)
	slices.SortFunc(tensors, func(a, b Source) int { return strings.Compare(a.Name, b.Name) })
	for _, t := range tensors {
		if t.Write == nil {
			return fmt.Errorf("write tensor %q: no Write function", t.Name)
		}
	}
	head, err := Header(tensors, metadata, Align)
	if err != nil {
		return err
	}
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	var values []float32
	for _, t := range tensors {
		n := Tensor{Shape: t.Shape}.Len()
		values = slices.Grow(values[:0], n)[:n]
		clear(values)
		err := t.Write(values)
		if err == nil && t.DType == BF16 {
			err = writeBF16(w, values)
		} else if err == nil {
			err = WriteFloats(w, values)
		}
		if err != nil {
			return fmt.Errorf("write tensor %q: %w", t.Name, err)
		}
	}
	return nil
}

// Align is the alignment of the data in a written file, in bytes.
const Align = 8

// Header returns everything before the data of a safetensors file whose tensors
// are stored in name order. Its length is a multiple of align, which must be a positive
// multiple of Align. It rejects duplicate or invalid names, negative sizes, text that is not
// UTF-8, and headers beyond the format's limit.
func Header(tensors []Source, metadata map[string]string, align int) ([]byte, error) {
	tensors = slices.SortedFunc(slices.Values(tensors),
		func(a, b Source) int { return strings.Compare(a.Name, b.Name) })
	entries := make([]entry, len(tensors))
	end := 0 // of the data so far
	for i, t := range tensors {
		e, err := newEntry(t.Name, cmp.Or(t.DType, F32), t.Shape, end)
		if err != nil {
			return nil, fmt.Errorf("write tensor %q: %w", t.Name, err)
		}
		if i > 0 && entries[i-1].name == t.Name {
			return nil, fmt.Errorf("write tensor %q: duplicate name", t.Name)
		}
		entries[i] = e
		end = e.end
	}
	return formatHeader(entries, metadata, align)
}

// newEntry returns the entry of a tensor whose data starts at begin.
func newEntry(name string, d DType, shape []int, begin int) (entry, error) {
	if name == "" || name == metadataKey || !utf8.ValidString(name) {
		return entry{}, errors.New("invalid name, expected UTF-8 text, not empty and not " + metadataKey)
	}
	if slices.ContainsFunc(shape, func(n int) bool { return n < 0 }) {
		return entry{}, fmt.Errorf("shape is %v, expected no negative number", shape)
	}
	size, err := byteSize(d, shape)
	if err == nil && size > math.MaxInt-begin {
		err = fmt.Errorf("shape %v: more data than a file can hold", shape)
	}
	return entry{name, d, shape, begin, begin + size}, err
}

// formatHeader returns the length prefix, the header and padding spaces that
// align the data.
func formatHeader(entries []entry, metadata map[string]string, align int) ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, 8, 4096))
	b.WriteByte('{')
	comma := ""
	if len(metadata) > 0 {
		b.WriteString(quote(metadataKey) + ":{")
		for _, key := range slices.Sorted(maps.Keys(metadata)) {
			if !utf8.ValidString(key) || !utf8.ValidString(metadata[key]) {
				return nil, fmt.Errorf("write metadata %q: not UTF-8", key)
			}
			b.WriteString(comma + quote(key) + ":" + quote(metadata[key]))
			comma = ","
		}
		b.WriteByte('}')
		comma = ","
	}
	for _, e := range entries {
		shape := strings.ReplaceAll(strings.Trim(fmt.Sprint(e.shape), "[]"), " ", ",")
		fmt.Fprintf(b, `%s%s:{"dtype":%s,"shape":[%s],"data_offsets":[%d,%d]}`, comma, quote(e.name),
			quote(string(e.dtype)), shape, e.begin, e.end)
		comma = ","
	}
	b.WriteByte('}')
	for b.Len()%align != 0 {
		b.WriteByte(' ')
	}
	n := b.Len() - 8
	if n > maxHeader {
		return nil, fmt.Errorf("write header: %d bytes, expected at most %d", n, maxHeader)
	}
	binary.LittleEndian.PutUint64(b.Bytes(), uint64(n))
	return b.Bytes(), nil
}

// quote returns text as a JSON string without escaping <, > and &.
func quote(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // encoding a string into memory cannot fail
	return strings.TrimSuffix(b.String(), "\n")
}

// WriteFloats writes values in file format: little-endian float32.
func WriteFloats(w io.Writer, values []float32) error {
	return asLittle(values, func(b []byte) error {
		_, err := w.Write(b)
		return err
	})
}

// writeBF16 writes values that are bfloat16 as such.
func writeBF16(w io.Writer, values []float32) error {
	var chunk [1 << 12]byte
	for part := range slices.Chunk(values, len(chunk)/2) {
		for i, v := range part {
			bits := math.Float32bits(v)
			if bits<<16 != 0 {
				return fmt.Errorf("value is %v, expected a bfloat16", v)
			}
			binary.LittleEndian.PutUint16(chunk[2*i:], uint16(bits>>16))
		}
		if _, err := w.Write(chunk[:2*len(part)]); err != nil {
			return err
		}
	}
	return nil
}

// WriteFile writes tensors to a safetensors file, atomically and durably: the
// file appears complete or not at all. It replaces an existing file.
func WriteFile(path string, tensors []Source, metadata map[string]string) error {
	err := writeFile(path, 0o644, func(w io.Writer) error { return WriteSafetensors(w, tensors, metadata) })
	if err != nil {
		return fmt.Errorf("write weights %s: %w", path, err)
	}
	return nil
}

// WriteSecret replaces the content of path with data, atomically and durably. Only
// the owner may read the file.
func WriteSecret(path string, data []byte) error {
	return writeFile(path, 0o600, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// writeFile writes a temporary file next to path, syncs it, and renames it to path. The file
// gets the permissions perm less those that the umask removes.
func writeFile(path string, perm os.FileMode, write func(io.Writer) error) error {
	temp := path + ".part"
	if err := filetype.Check(temp); err != nil {
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	err = fill(f, write)
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return syncDir(filepath.Dir(path))
}

// fill writes, syncs and closes a file.
func fill(f *os.File, write func(io.Writer) error) error {
	w := bufio.NewWriterSize(f, 1<<16)
	err := write(w)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
