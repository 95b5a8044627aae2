package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"
)

// A safetensors file consists of the header's length (8 bytes, little-endian),
// the header (JSON: each tensor's dtype, shape and data offsets, and texts under
// __metadata__) and the tensors' data without holes.

// maxHeader is the format's limit, in bytes.
const maxHeader = 100_000_000

const metadataKey = "__metadata__"

// DType is the type of a tensor's elements, as named by safetensors.
type DType string

// The DTypes that Tensor and Stream convert to float32. Other types are only described.
const (
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
)

// bits returns the size of an element in bits, or 0 for an unknown type.
func (d DType) bits() int {
	switch d {
	case "F4":
		return 4
	case "F6_E2M3", "F6_E3M2":
		return 6
	case "BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E5M2FNUZ", "F8_E4M3FNUZ", "F8_E8M0":
		return 8
	case "I16", "U16", F16, BF16:
		return 16
	case "I32", "U32", F32:
		return 32
	case "I64", "U64", "F64", "C64":
		return 64
	}
	return 0
}

// entry is a tensor's record in the header.
type entry struct {
	name       string
	dtype      DType
	shape      []int
	begin, end int // relative to the start of the data
}

// header is everything before the data.
type header struct {
	entries  []entry // in data order
	metadata map[string]string
	size     int // number of bytes, including the length prefix: the offset of the data
}

// parseHeader reads and checks the header of a file, whose entire content is given.
func parseHeader(file []byte) (*header, error) {
	return readHeader(bytes.NewReader(file), int64(len(file)))
}

// readHeader reads and checks the header of a file of size bytes; -1 means
// unknown. Its allocations are proportional to the bytes received, not to the
// sizes claimed.
func readHeader(r io.Reader, size int64) (*header, error) {
	var length [8]byte
	if n, err := io.ReadFull(r, length[:]); err != nil {
		return nil, fmt.Errorf("%d bytes, expected at least 8 for the header's length: %w", n, noEOF(err))
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader {
		return nil, fmt.Errorf("header is %d bytes, expected at most %d", n, maxHeader)
	}
	if size >= 0 && int64(n) > size-8 {
		return nil, fmt.Errorf("header is %d bytes, but only %d follow its length: truncated", n, size-8)
	}
	var text bytes.Buffer
	if got, err := io.CopyN(&text, r, int64(n)); err != nil {
		return nil, fmt.Errorf("header ends after %d bytes, expected %d: %w", got, n, noEOF(err))
	}
	h, err := parseText(text.Bytes())
	if err != nil {
		return nil, err
	}
	data := 0 // size of the data; if unknown, place checks the tensors only against each other
	for _, e := range h.entries {
		data = max(data, e.end)
	}
	if size >= 0 {
		if size-int64(h.size) > math.MaxInt {
			return nil, fmt.Errorf("%d bytes, expected at most %d", size, math.MaxInt)
		}
		data = int(size) - h.size
	}
	return h, h.place(data)
}

// parseText reads the header's JSON.
func parseText(text []byte) (*header, error) {
	h := &header{size: 8 + len(text)}
	if !utf8.Valid(text) {
		return nil, errors.New("header: not UTF-8, expected JSON")
	}
	err := object(text, func(key string, value json.RawMessage) error {
		if key == metadataKey {
			return h.setMetadata(value)
		}
		e, err := parseEntry(key, value)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", key, err)
		}
		h.entries = append(h.entries, e)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	return h, nil
}

// object calls visit for each member of a JSON object. Unlike encoding/json, it
// rejects duplicate keys and does not fold case.
func object(text []byte, visit func(key string, value json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil {
		return fmt.Errorf("not JSON: %w", noEOF(err))
	} else if t != json.Delim('{') {
		return fmt.Errorf("%.40q, expected a JSON object", fmt.Sprint(t))
	}
	seen := make(map[string]bool)
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return fmt.Errorf("not JSON: %w", noEOF(err))
		}
		key, _ := t.(string)
		if seen[key] {
			return fmt.Errorf("duplicate key %q", key)
		}
		seen[key] = true
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return fmt.Errorf("not JSON: %w", noEOF(err))
		}
		if err := visit(key, value); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("not JSON: %w", noEOF(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected text after the JSON object")
	}
	return nil
}

// noEOF replaces io.EOF with io.ErrUnexpectedEOF.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (h *header) setMetadata(value json.RawMessage) error {
	h.metadata = make(map[string]string)
	err := object(value, func(key string, value json.RawMessage) error {
		var text *string
		if err := json.Unmarshal(value, &text); err != nil || text == nil {
			return fmt.Errorf("%q is %.40s, expected a string", key, value)
		}
		h.metadata[key] = *text
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", metadataKey, err)
	}
	return nil
}

// parseEntry parses and checks the description of one tensor.
func parseEntry(name string, value json.RawMessage) (entry, error) {
	e := entry{name: name, begin: -1} // -1: data_offsets are missing
	err := object(value, func(key string, value json.RawMessage) (err error) {
		switch key {
		case "dtype":
			var dtype *DType
			if err := json.Unmarshal(value, &dtype); err != nil || dtype == nil || dtype.bits() == 0 {
				return fmt.Errorf("unknown dtype %.40s", value)
			}
			e.dtype = *dtype
		case "shape":
			e.shape, err = naturals(value)
		case "data_offsets":
			var offsets []int
			if offsets, err = naturals(value); err == nil && len(offsets) != 2 {
				err = fmt.Errorf("%d numbers, expected 2", len(offsets))
			} else if err == nil {
				e.begin, e.end = offsets[0], offsets[1]
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	switch {
	case err != nil:
		return e, err
	case e.dtype == "" || e.shape == nil || e.begin < 0:
		return e, errors.New("expected dtype, shape and data_offsets")
	}
	size, err := byteSize(e.dtype, e.shape)
	if err == nil && (e.end < e.begin || e.end-e.begin != size) {
		err = fmt.Errorf("data_offsets [%d,%d] for %s %v, expected %d bytes", e.begin, e.end, e.dtype, e.shape, size)
	}
	return e, err
}

// naturals parses a list of non-negative integers.
func naturals(value json.RawMessage) ([]int, error) {
	var numbers []json.Number
	// json.Number also accepts a string.
	if err := json.Unmarshal(value, &numbers); err != nil || numbers == nil || bytes.IndexByte(value, '"') >= 0 {
		return nil, fmt.Errorf("%.40s, expected a list of whole numbers", value)
	}
	list := make([]int, len(numbers))
	for i, number := range numbers {
		n, err := strconv.ParseUint(number.String(), 10, 64)
		if err != nil || n > math.MaxInt {
			return nil, fmt.Errorf("%.40q, expected a whole number from 0 to %d", number, math.MaxInt)
		}
		list[i] = int(n)
	}
	return list, nil
}

// byteSize returns the size of a tensor in bytes. It fails if the size overflows an int or is
// not a whole number.
func byteSize(d DType, shape []int) (int, error) {
	n := uint64(d.bits())
	for _, s := range shape {
		over, low := bits.Mul64(n, uint64(s))
		if over != 0 || low > math.MaxInt {
			return 0, fmt.Errorf("shape %v: more elements than a file can hold", shape)
		}
		n = low
	}
	if n%8 != 0 {
		return 0, fmt.Errorf("shape %v of %s: %d bits, expected whole bytes", shape, d, n)
	}
	return int(n / 8), nil
}

// place sorts the entries by offset and checks that they cover the data, of the given number
// of bytes, without overlaps or holes.
func (h *header) place(data int) error {
	slices.SortFunc(h.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	at := 0
	for _, e := range h.entries {
		switch {
		case e.begin < at:
			return fmt.Errorf("tensor %q: data begins at %d, but the tensor before it ends at %d: overlap",
				e.name, e.begin, at)
		case e.begin > at:
			return fmt.Errorf("tensor %q: data begins at %d, expected %d: hole", e.name, e.begin, at)
		case e.end > data:
			return fmt.Errorf("tensor %q: data ends at %d, but the file has %d bytes of data: truncated",
				e.name, e.end, data)
		}
		at = e.end
	}
	if at != data {
		return fmt.Errorf("%d bytes of data, expected the tensors' %d", data, at)
	}
	return nil
}
