package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	var l attention.Layout
	root, leaves := l.AddGroup([]int32{1, 2, 3}, [][]int32{{4, 5}, {6}})
	l.AddResponse(leaves[0], []int32{7, 8})
	require.Zero(t, root)
	var stream bytes.Buffer
	require.NoError(t, Send(&stream, Forward{ID: 7}, Layout(&l)))
	var gradient Body
	gradient.AddFloat32s("gradient", []float32{0.5, -3, float32(math.Inf(1))})
	require.NoError(t, Send(&stream, Backward{ID: 7}, gradient))
	require.NoError(t, Send(&stream, Beat{}, Body{}))

	f, err := Read(&stream, AtMost(MaxArrays))
	require.NoError(t, err)
	var forward Forward
	require.NoError(t, f.Decode(&forward))
	require.Equal(t, Forward{ID: 7}, forward)
	got, err := f.Layout()
	require.NoError(t, err)
	require.Equal(t, l.Tokens, got.Tokens)
	require.Equal(t, l.Positions, got.Positions)
	require.Equal(t, l.Segments, got.Segments)
	require.Len(t, got.Targets, len(l.Targets))
	for i, target := range l.Targets {
		require.Equal(t, attention.Target{Row: target.Row, Token: target.Token}, got.Targets[i])
	}

	f, err = Read(&stream, AtMost(MaxArrays))
	require.NoError(t, err)
	require.ErrorContains(t, f.Decode(&forward), `kind is "backward", expected "forward"`)
	require.Equal(t, []float32{0.5, -3, float32(math.Inf(1))}, f.Float32s("gradient"))
	require.Nil(t, f.Float32s("other"))
	require.Nil(t, f.Int32s("gradient"), "another type")

	f, err = Read(&stream, AtMost(0))
	require.NoError(t, err)
	require.Equal(t, "beat", f.Kind)
	require.True(t, f.Empty())
	_, err = Read(&stream, AtMost(0))
	require.ErrorIs(t, err, io.EOF)
	require.NotErrorIs(t, err, io.ErrUnexpectedEOF)
}

// frame returns a frame with this header, of this many bytes of arrays.
func frame(header string, size int) []byte {
	b := []byte(magic)
	for _, n := range []int{Version, len(header), size} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return append(append(b, header...), make([]byte, size)...)
}

func TestRefused(t *testing.T) {
	t.Parallel()
	patch := func(at int, with string) []byte {
		b := frame(`{"kind":"x"}`, 0)
		copy(b[at:], with)
		return b
	}
	for _, test := range []struct {
		name  string
		bytes []byte
		want  string
	}{
		{"magic", patch(0, "HTTP"), `magic is "HTTP", expected "ERLT"`},
		{"version", patch(4, "\x02"), "version of the protocol is 2, expected 1"},
		{"long header", patch(8, "\x01\x00\x10\x00"), "header has 1048577 bytes, expected at most 1048576"},
		{"long arrays", patch(12, "\x65"), "arrays have 101 bytes, expected at most 100"},
		{"no object", frame(`["kind"]`, 0), "header is not an object"},
		{"empty header", frame("", 0), "header is not an object"},
		{"no JSON", frame(`{"kind":}`, 0), "header: invalid character"},
		{"no kind", frame(`{"id":1}`, 0), "header has no kind"},
		{"kind of another type", frame(`{"kind":3}`, 0), "header: json: cannot unmarshal number"},
		{"unlisted arrays", frame(`{"kind":"x"}`, 8), "arrays have 8 bytes, expected 0 as listed"},
		{"missing arrays", frame(`{"kind":"x","arrays":[["a","i32",1]]}`, 0),
			`array "a" has 1 values, expected at most the 0 that follow`},
		{"negative count", frame(`{"kind":"x","arrays":[["a","i32",-1]]}`, 0), `array "a" has -1 values`},
		{"huge count", frame(`{"kind":"x","arrays":[["a","i32",4611686018427387905]]}`, 4),
			`array "a" has 4611686018427387905 values`},
		{"type", frame(`{"kind":"x","arrays":[["a","f64",1]]}`, 4), `array "a" has type "f64", expected i32 or f32`},
		{"twice", frame(`{"kind":"x","arrays":[["a","i32",1],["a","i32",1]]}`, 8), `array "a" is listed twice`},
		{"odd length", frame(`{"kind":"x","arrays":[["a","i32",1]]}`, 5), "arrays have 5 bytes, expected 4 as listed"},
		{"two fields", frame(`{"kind":"x","arrays":[["a","i32"]]}`, 0), "array has 2 fields, expected 3"},
		{"many arrays", frame(`{"kind":"x","arrays":[["a","i32",0]`+strings.Repeat(`,["a","i32",0]`, maxNames)+`]}`, 0),
			`"x" has 65 arrays, expected at most 64`},
	} {
		_, err := Read(bytes.NewReader(test.bytes), AtMost(100))
		require.ErrorIs(t, err, ErrFrame, test.name)
		require.ErrorContains(t, err, test.want, test.name)
	}
}

func TestCutOff(t *testing.T) {
	t.Parallel()
	whole := frame(`{"kind":"x","arrays":[["a","i32",2]]}`, 8)
	for n := 1; n < len(whole); n++ {
		_, err := Read(bytes.NewReader(whole[:n]), AtMost(MaxArrays))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%d bytes", n)
	}
	broken := errors.New("broken")
	_, err := Read(io.MultiReader(bytes.NewReader(whole[:30]), failing{broken}), AtMost(MaxArrays))
	require.ErrorIs(t, err, broken)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestEncodeFails(t *testing.T) {
	t.Parallel()
	_, err := Encode(Step{Scale: math.NaN()}, Body{})
	require.ErrorContains(t, err, "encode step: json: unsupported value")
	_, err = Encode(Failed{Error: strings.Repeat("x", MaxHeader)}, Body{})
	require.ErrorContains(t, err, "encode failed: header has 10486")
}

func TestBadLayouts(t *testing.T) {
	t.Parallel()
	arrays := func(segments, rows, targets []int32) *Frame {
		var b Body
		for i, values := range [][]int32{{5, 6}, {0, 1}, segments, rows, targets} {
			b.AddInt32s([]string{"tokens", "positions", "segments", "rows", "targets"}[i], len(values),
				func(i int) int32 { return values[i] })
		}
		return &Frame{arrays: b.Arrays, data: b.Data}
	}
	for _, test := range []struct {
		frame *Frame
		want  string
	}{
		{arrays([]int32{0, 2}, nil, nil), "2 values of segments"},
		{arrays([]int32{0, 2, -1}, []int32{1}, nil), "1 rows and 0 targets"},
		{arrays([]int32{0, 3, -1}, nil, nil), "segment 0 has 3 rows"},
		{arrays([]int32{0, 2, -1}, []int32{2}, []int32{1}), "target 0 is token 1 in row 2, expected a row below 2"},
		{arrays([]int32{0, 2, -1}, []int32{1}, []int32{-1}), "target 0 is token -1"},
	} {
		_, err := test.frame.Layout()
		require.ErrorContains(t, err, test.want)
	}
}

// No bytes make a reader panic or take more memory than a few times their number, and
// what it accepts survives a round trip.
func FuzzFrame(f *testing.F) {
	f.Add([]byte("ERLT"))
	f.Add(frame(`{"kind":"logprobs","id":1,"arrays":[["policy","f32",1],["entropy","f32",1]]}`, 8))
	f.Add(frame(`{"kind":"hello","token":"x","rank":0,"world":2,"versions":{"torch":"2"}}`, 0))
	f.Add(frame(`{"kind":"forward","id":1,"arrays":[["tokens","i32",2],["positions","i32",2],["segments","i32",3]]}`,
		28))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		for {
			got, err := Read(r, AtMost(MaxArrays))
			if err != nil {
				return
			}
			require.NotEmpty(t, got.Kind)
			_, _ = got.Layout()
			for _, m := range []Message{&Hello{}, &Ready{}, &Logprobs{}, &Stepped{}, &Failed{}} {
				_ = got.Decode(m)
			}
			total := 0
			for _, a := range got.arrays {
				total += 4 * a.Count
				require.Len(t, append(got.Int32s(a.Name), make([]int32, len(got.Float32s(a.Name)))...), a.Count)
			}
			require.Len(t, got.data, total)
		}
	})
}
