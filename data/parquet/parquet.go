// Package parquet reads the records of Parquet files as JSON, in bounded memory.
//
// It reads what data set writers produce: nested columns, lists and maps, version
// 1 and 2 pages, all value encodings, and the codecs snappy, gzip, zstd and lz4.
// It holds one page per requested column at a time and checks a file's claims
// before it spends memory or time on them.
package parquet

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

const (
	magic     = "PAR1"
	maxFooter = 16 << 20 // bytes

	// The JSON of all records may have baseExpansion bytes, and maxExpansion more for each
	// byte of the file: columns compress well, but a small file must not claim to be huge.
	baseExpansion = 64 << 20
	maxExpansion  = 256
)

// errTooLarge reports that a file's records are out of proportion to its size.
var errTooLarge = errors.New("records are too large for a file of this size")

// Is reports whether a file starts like a Parquet file.
func Is(start []byte) bool { return len(start) >= 4 && string(start[:4]) == magic }

// File is an open Parquet file. It is not safe for concurrent use.
type File struct {
	r      io.ReaderAt
	size   int64
	root   *node   // schema
	leaves []*node // leaves of the schema in file order
	footer *footer
	live   int64 // bytes of pages held, at most maxLive
	budget int64 // bytes that the records still may have
	codecs decompressor
}

// Open reads the footer and schema of a file of size bytes from r.
func Open(r io.ReaderAt, size int64) (*File, error) {
	f := &File{r: r, size: size}
	var head [4]byte
	var tail [8]byte
	if size < 12 {
		return nil, fmt.Errorf("not a Parquet file: %d bytes", size)
	}
	if err := errors.Join(f.read(head[:], 0), f.read(tail[:], size-8)); err != nil {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	switch {
	case !Is(head[:]):
		return nil, fmt.Errorf("not a Parquet file: starts with %q, expected %q", head, magic)
	case string(tail[4:]) == "PARE":
		return nil, errors.New("encrypted files are not supported")
	case string(tail[4:]) != magic:
		return nil, fmt.Errorf("not a complete Parquet file: ends with %q, expected %q", tail[4:], magic)
	case n > size-12:
		return nil, fmt.Errorf("footer of %d bytes does not fit in a file of %d", n, size)
	case n > maxFooter:
		return nil, fmt.Errorf("footer of %d bytes, expected at most %d", n, maxFooter)
	}
	b := make([]byte, n)
	err := f.read(b, size-8-n)
	if err != nil {
		return nil, err
	}
	if f.footer, err = parseFooter(b); err != nil {
		return nil, fmt.Errorf("footer: %w", err)
	}
	if f.root, f.leaves, err = schemaOf(f.footer.schema); err != nil {
		return nil, err
	}
	for i, g := range f.footer.groups {
		if len(g.chunks) != len(f.leaves) || g.rows < 0 {
			return nil, fmt.Errorf("row group %d: %d rows of %d columns, expected %d columns", i, g.rows, len(g.chunks),
				len(f.leaves))
		}
	}
	return f, nil
}

// read fills b from an offset of the file.
func (f *File) read(b []byte, at int64) error {
	n, err := f.r.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	return fmt.Errorf("read %d bytes at byte %d: %w", len(b), at, err)
}

// spend charges n bytes to the budget of the file's records.
func (f *File) spend(n int64) error {
	if f.budget -= n; f.budget < 0 {
		return errTooLarge
	}
	return nil
}

// Names returns the names of the top-level columns in file order.
func (f *File) Names() []string {
	names := make([]string, len(f.root.children))
	for i, n := range f.root.children {
		names[i] = n.name
	}
	return names
}

// Rows calls yield with each record in order. It stops at the first error of
// yield and returns it. A record has the named columns, except names that the file lacks;
// null values are JSON null. Groups become objects, lists arrays, maps with
// text keys objects, times and dates ISO 8601 text, decimals numbers, non-text
// bytes base64, and NaN null. yield may keep the record's bytes. Errors name the
// row, from 1, and the column.
func (f *File) Rows(names []string, yield func(row int, record map[string]json.RawMessage) error) error {
	f.budget = baseExpansion + maxExpansion*f.size
	var wanted []*node
	for _, n := range f.root.children {
		if slices.Contains(names, n.name) {
			wanted = append(wanted, n)
		}
	}
	row := 0
	for i := range f.footer.groups {
		if err := f.group(&f.footer.groups[i], wanted, &row, yield); err != nil {
			return err
		}
	}
	return nil
}

// group calls yield with the records of a row group. row is the number of rows before, which
// group advances.
func (f *File) group(g *rowGroup, wanted []*node, row *int, yield func(int, map[string]json.RawMessage) error) error {
	if g.rows == 0 {
		return nil
	}
	a := assembler{file: f, columns: make([]*column, len(f.leaves))}
	defer a.close()
	for _, n := range wanted {
		if err := a.open(g, n); err != nil {
			return fmt.Errorf("row %d: %w", *row+1, err)
		}
	}
	for range g.rows {
		*row++
		record := make(map[string]json.RawMessage, len(wanted))
		for _, n := range wanted {
			text, err := a.field(n)
			if err != nil {
				return fmt.Errorf("row %d: column %q: %w", *row, n.name, err)
			}
			record[n.name] = text
		}
		if err := f.spend(64); err != nil { // a record without columns costs memory too
			return fmt.Errorf("row %d: %w", *row, err)
		}
		if err := yield(*row, record); err != nil {
			return err
		}
	}
	return nil
}
