// Package wire reads and writes the frames between the trainer and its PyTorch ranks.
//
// PROTOCOL.md in the folder above describes it.
//
// A frame is a prefix of 16 bytes (the magic, the version of the protocol, the lengths of
// header and arrays), a header in JSON, and arrays of 32-bit values. All numbers are little
// endian. A reader checks a frame before it allocates memory for it, and takes memory only
// for what has arrived.
package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

const (
	// Version is the version of the protocol.
	Version = 1
	// MaxHeader bounds a header, in bytes.
	MaxHeader = 1 << 20
	// MaxArrays bounds the arrays of a frame, in bytes.
	MaxArrays = 1 << 30

	magic     = "ERLT"
	prefix    = 16       // bytes of a prefix
	maxNames  = 64       // arrays of a frame
	chunk     = 64 << 10 // bytes that a reader allocates before it has received any
	valueSize = 4        // bytes of a value
)

// Types of an array's values.
const (
	I32 = "i32"
	F32 = "f32"
)

// ErrFrame is wrapped by the error of bytes that are not a frame.
var ErrFrame = errors.New("bad frame")

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrFrame, fmt.Errorf(format, args...))
}

// Array declares an array of a frame. In JSON it is a list of the three values.
type Array struct {
	Name  string
	Type  string // I32 or F32
	Count int
}

// MarshalJSON returns the list.
func (a Array) MarshalJSON() ([]byte, error) { return json.Marshal([]any{a.Name, a.Type, a.Count}) }

// UnmarshalJSON reads the list.
func (a *Array) UnmarshalJSON(text []byte) error {
	var fields []json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	if len(fields) != 3 {
		return fmt.Errorf("array has %d fields, expected 3: name, type and count", len(fields))
	}
	for i, to := range []any{&a.Name, &a.Type, &a.Count} {
		if err := json.Unmarshal(fields[i], to); err != nil {
			return err
		}
	}
	return nil
}

// Body holds the arrays of a frame, encoded. The zero Body has none.
type Body struct {
	Arrays []Array
	Data   []byte
}

// AddInt32s appends an array of n values.
func (b *Body) AddInt32s(name string, n int, value func(i int) int32) {
	b.Arrays = append(b.Arrays, Array{name, I32, n})
	for i := range n {
		b.Data = binary.LittleEndian.AppendUint32(b.Data, uint32(value(i)))
	}
}

// AddFloat32s appends an array.
func (b *Body) AddFloat32s(name string, values []float32) {
	b.Arrays = append(b.Arrays, Array{name, F32, len(values)})
	for _, v := range values {
		b.Data = binary.LittleEndian.AppendUint32(b.Data, math.Float32bits(v))
	}
}

// Send writes a message and its arrays as one frame, in one call of w.Write.
func Send(w io.Writer, m Message, body Body) error {
	frame, err := Encode(m, body)
	if err != nil {
		return err
	}
	_, err = w.Write(frame)
	return err
}

// Encode returns a message and its arrays as a frame. It fails if they exceed MaxHeader or MaxArrays.
func Encode(m Message, body Body) ([]byte, error) {
	header, err := encodeHeader(m, body.Arrays)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.Kind(), err)
	}
	if len(header) > MaxHeader || len(body.Data) > MaxArrays {
		return nil, fmt.Errorf("encode %s: header has %d bytes and arrays %d, expected at most %d and %d", m.Kind(),
			len(header), len(body.Data), MaxHeader, MaxArrays)
	}
	frame := make([]byte, 0, prefix+len(header)+len(body.Data))
	frame = append(frame, magic...)
	for _, n := range []int{Version, len(header), len(body.Data)} {
		frame = binary.LittleEndian.AppendUint32(frame, uint32(n))
	}
	return append(append(frame, header...), body.Data...), nil
}

// encodeHeader returns a JSON object with the fields "kind" and "arrays", followed by those of m.
func encodeHeader(m Message, arrays []Array) ([]byte, error) {
	head, err := json.Marshal(struct {
		Kind   string  `json:"kind"`
		Arrays []Array `json:"arrays,omitempty"`
	}{m.Kind(), arrays})
	if err != nil {
		return nil, err
	}
	fields, err := json.Marshal(m)
	if err != nil || len(fields) == len("{}") {
		return head, err
	}
	head[len(head)-1] = ','
	return append(head, fields[1:]...), nil
}

// Frame is a received frame.
type Frame struct {
	Kind   string  // kind of its message
	header []byte  // JSON
	arrays []Array // declarations of the arrays, whose values follow each other in data
	data   []byte
}

// Limit returns the number of bytes that the arrays of a frame may have. A reader calls it
// when the frame begins to arrive.
type Limit func() int

// AtMost returns a limit that does not change.
func AtMost(n int) Limit { return func() int { return n } }

// Read reads a frame. An error wraps ErrFrame if the bytes are not a frame within the limit,
// io.EOF if r ends between two frames, and io.ErrUnexpectedEOF if it ends within one.
func Read(r io.Reader, limit Limit) (Frame, error) {
	var start [prefix]byte
	if _, err := io.ReadFull(r, start[:]); err != nil {
		return Frame{}, err
	}
	maxData := min(limit(), MaxArrays)
	version := binary.LittleEndian.Uint32(start[4:])
	header := binary.LittleEndian.Uint32(start[8:])
	data := binary.LittleEndian.Uint32(start[12:])
	switch {
	case string(start[:4]) != magic:
		return Frame{}, bad("magic is %q, expected %q", start[:4], magic)
	case version != Version:
		return Frame{}, bad("version of the protocol is %d, expected %d", version, Version)
	case header > MaxHeader:
		return Frame{}, bad("header has %d bytes, expected at most %d", header, MaxHeader)
	case int64(data) > int64(maxData):
		return Frame{}, bad("arrays have %d bytes, expected at most %d", data, maxData)
	}
	var f Frame
	var err error
	if f.header, err = read(r, int(header)); err != nil {
		return Frame{}, err
	}
	if err := f.parse(int(data)); err != nil {
		return Frame{}, err
	}
	f.data, err = read(r, int(data))
	return f, err
}

// read reads n bytes. It takes memory as they arrive.
func read(r io.Reader, n int) ([]byte, error) {
	var b []byte
	for len(b) < n {
		at := len(b)
		b = append(b, make([]byte, min(n-at, max(chunk, at)))...)
		if _, err := io.ReadFull(r, b[at:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return b, nil
}

// parse reads what every header has. size is the length of the arrays in bytes.
func (f *Frame) parse(size int) error {
	if !bytes.HasPrefix(bytes.TrimSpace(f.header), []byte("{")) {
		return bad("header is not an object")
	}
	var head struct {
		Kind   string  `json:"kind"`
		Arrays []Array `json:"arrays"`
	}
	if err := json.Unmarshal(f.header, &head); err != nil {
		return bad("header: %w", err)
	}
	if head.Kind == "" {
		return bad("header has no kind")
	}
	if len(head.Arrays) > maxNames {
		return bad("%s has %d arrays, expected at most %d", Quote(head.Kind), len(head.Arrays), maxNames)
	}
	rest, names := size, map[string]bool{}
	for _, a := range head.Arrays {
		switch {
		case a.Type != I32 && a.Type != F32:
			return bad("array %s has type %s, expected %s or %s", Quote(a.Name), Quote(a.Type), I32, F32)
		case names[a.Name]:
			return bad("array %s is listed twice", Quote(a.Name))
		case a.Count < 0 || a.Count > rest/valueSize:
			return bad("array %s has %d values, expected at most the %d that follow", Quote(a.Name), a.Count,
				rest/valueSize)
		}
		names[a.Name] = true
		rest -= a.Count * valueSize
	}
	if rest != 0 {
		return bad("arrays have %d bytes, expected %d as listed", size, size-rest)
	}
	f.Kind, f.arrays = head.Kind, head.Arrays
	return nil
}

// Decode reads the fields of the frame's kind into m, and checks that it is m's kind.
func (f *Frame) Decode(m Message) error {
	if f.Kind != m.Kind() {
		return bad("kind is %s, expected %q", Quote(f.Kind), m.Kind())
	}
	if err := json.Unmarshal(f.header, m); err != nil {
		return bad("%s: %w", f.Kind, err)
	}
	return nil
}

// Empty reports whether the frame has no arrays.
func (f *Frame) Empty() bool { return len(f.data) == 0 }

// find returns the bytes of an array, or nil if there is no such array of this type.
func (f *Frame) find(name, kind string) []byte {
	at := 0
	for _, a := range f.arrays {
		end := at + a.Count*valueSize
		if a.Name == name && a.Type == kind {
			return f.data[at:end:end]
		}
		at = end
	}
	return nil
}

// Int32s returns a copy of an array, or nil if the frame has none of this name and type.
func (f *Frame) Int32s(name string) []int32 {
	b := f.find(name, I32)
	if b == nil {
		return nil
	}
	values := make([]int32, len(b)/valueSize)
	for i := range values {
		values[i] = int32(binary.LittleEndian.Uint32(b[i*valueSize:]))
	}
	return values
}

// Float32s returns a copy of an array, or nil if the frame has none of this name and type.
func (f *Frame) Float32s(name string) []float32 {
	b := f.find(name, F32)
	if b == nil {
		return nil
	}
	values := make([]float32, len(b)/valueSize)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[i*valueSize:]))
	}
	return values
}

// Quote quotes the first 60 characters of a text from another process, for an error.
func Quote(text string) string { return fmt.Sprintf("%.60q", text) }
