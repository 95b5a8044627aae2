package data

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/easyrl/easyrl/data/parquet"
	"github.com/easyrl/easyrl/internal/filetype"
)

// record is one object of a file.
type record struct {
	fields map[string]json.RawMessage
	line   int // line of the file, or row of a Parquet file, from 1
	number int // number in the record's ID: the line or row, or in an array the element, from 1
}

// records iterates over the objects of one file.
type records struct {
	path     string
	explicit []string           // keys in the options
	yield    func(record) error // called for each object in order; an error ends the iteration
	// accepts reports whether an object is a record rather than a wrapper of records.
	accepts func(fields map[string]json.RawMessage) bool
	count   int // number of objects so far
}

// fault returns an error about a line.
func (d *records) fault(line int, err error) error {
	return fmt.Errorf("read prompts %s:%d: %w", d.path, line, err)
}

// open reads the file and calls yield for its objects. The errors of yield are returned as
// they are; all others name the file.
func (d *records) open() error {
	f, err := filetype.Open(d.path)
	if err != nil {
		return fmt.Errorf("read prompts: %w", err)
	}
	err = d.file(f)
	if e := f.Close(); err == nil && e != nil {
		err = fmt.Errorf("read prompts %s: %w", d.path, e)
	}
	return err
}

// file reads an open file in the format that its first bytes show.
func (d *records) file(f *os.File) error {
	var start [4]byte
	if n, _ := f.ReadAt(start[:], 0); !parquet.Is(start[:n]) {
		return d.json(f)
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read prompts %s: %w", d.path, err)
	}
	return d.parquet(f, info.Size())
}

// parquet reads the rows of a Parquet file: the columns that may be needed, and the other
// columns with nil values, so that errors can name them.
func (d *records) parquet(r io.ReaderAt, size int64) error {
	p, err := parquet.Open(r, size)
	if err != nil {
		return fmt.Errorf("read prompts %s: %w", d.path, err)
	}
	names := wanted(p.Names(), d.explicit...)
	others := slices.DeleteFunc(p.Names(), func(name string) bool { return slices.Contains(names, name) })
	var failed error // error from yield, which already names the place
	err = p.Rows(names, func(row int, fields map[string]json.RawMessage) error {
		for _, name := range others {
			fields[name] = nil
		}
		d.count++
		unfold(fields)
		failed = d.yield(record{fields, row, row})
		return failed
	})
	if err != nil && failed == nil {
		err = fmt.Errorf("read prompts %s: %w", d.path, err)
	}
	if err == nil && d.count == 0 {
		err = d.empty()
	}
	return err
}

// empty returns the error about a file without objects.
func (d *records) empty() error {
	return fmt.Errorf("read prompts %s: no prompts, expected at least one JSON object", d.path)
}

// json reads the objects of a JSON or JSON lines file.
func (d *records) json(r io.Reader) error {
	in := bufio.NewReaderSize(r, 1<<16)
	if mark, err := in.Peek(3); err == nil && string(mark) == "\ufeff" { // a byte order mark
		_, _ = in.Discard(3) // cannot fail after Peek
	}
	array, line, err := opensArray(in)
	if err != nil {
		return fmt.Errorf("read prompts %s: %w", d.path, err)
	}
	if !array {
		err = d.explain(d.lines(in, line))
	} else if text, e := io.ReadAll(in); e != nil {
		err = fmt.Errorf("read prompts %s: %w", d.path, e)
	} else {
		err = d.explain(d.array(text, line))
	}
	if err == nil && d.count == 0 {
		err = d.empty()
	}
	return err
}

// formats names the formats that are read.
const formats = "JSON lines, JSON or Parquet"

// explain says what the file is instead of err, if not even its first record can be read.
func (d *records) explain(err error) error {
	if err == nil || d.count > 0 {
		return err
	}
	if other := filetype.ExplainFile(d.path, formats, "a JSON array", "Parquet"); other != nil {
		return fmt.Errorf("read prompts %s: %w", d.path, other)
	}
	return err
}

// opensArray skips white space and reports whether an array follows, and on which
// line. End of file is not an error.
func opensArray(in *bufio.Reader) (array bool, line int, err error) {
	for line = 1; ; {
		b, err := in.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return false, line, nil
		case err != nil:
			return false, line, err
		case b == '\n':
			line++
		case b == ' ' || b == '\t' || b == '\r':
		default:
			return b == '[', line, in.UnreadByte()
		}
	}
}

// lines reads one object per line and skips empty lines. A .json file may also be
// one object spanning several lines.
func (d *records) lines(in *bufio.Reader, line int) error {
	for first := true; ; line++ {
		text, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return d.fault(line, err)
		}
		if first && err == nil && !json.Valid(text) && strings.EqualFold(filepath.Ext(d.path), ".json") {
			rest, err := io.ReadAll(in)
			if err != nil {
				return d.fault(line, err)
			}
			if all := append(bytes.Clone(text), rest...); json.Valid(all) {
				return d.object(all, line, line, true)
			}
			in = bufio.NewReader(bytes.NewReader(rest))
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			_, e := in.Peek(1)
			if err := d.object(text, line, line, first && errors.Is(e, io.EOF)); err != nil {
				return err
			}
			first = false
		}
		if err != nil {
			return nil
		}
	}
}

// array reads the objects of one array that starts on the given line.
func (d *records) array(text []byte, line int) error {
	var elements []json.RawMessage
	if err := json.Unmarshal(text, &elements); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			line += bytes.Count(text[:max(0, syntax.Offset-1)], []byte("\n"))
		}
		return d.fault(line, fmt.Errorf("not a JSON array: %w", err))
	}
	for i, object := range elements {
		at := bytes.Index(text, object) // only white space and a comma precede it
		line += bytes.Count(text[:at], []byte("\n"))
		if err := d.object(object, line, i+1, false); err != nil {
			return err
		}
		line += bytes.Count(object, []byte("\n"))
		text = text[at+len(object):]
	}
	return nil
}

// object reads one object. alone means that the file has no other, so that it may wrap a list
// of records.
func (d *records) object(text []byte, line, number int, alone bool) error {
	if !utf8.Valid(text) {
		return d.fault(line, errors.New("not valid UTF-8"))
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil || fields == nil {
		var mismatch *json.UnmarshalTypeError
		if err == nil || errors.As(err, &mismatch) {
			return d.fault(line, fmt.Errorf("found %s, expected a JSON object", kindOf(text)))
		}
		return d.fault(line, fmt.Errorf("not a JSON object: %w", err))
	}
	unfold(fields)
	if alone && !d.accepts(fields) {
		if list, ok := inner(fields); ok {
			return d.array(list, line+bytes.Count(text[:bytes.Index(text, list)], []byte("\n")))
		}
	}
	d.count++
	return d.yield(record{fields, line, number})
}

// ID returns the text of an "id" field, which must be a non-empty string or an integer of at
// most 64 bits.
func ID(raw json.RawMessage) (string, error) {
	var id string
	if kindOf(raw) == "a string" {
		if err := json.Unmarshal(raw, &id); err != nil {
			return "", fmt.Errorf("id: %w", err)
		}
	} else if _, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		id = string(raw)
	}
	if id == "" {
		return "", fmt.Errorf("key \"id\" is %s, expected a non-empty string or an integer", clip(raw))
	}
	return id, nil
}
