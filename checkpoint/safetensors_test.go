package checkpoint

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// pack builds a safetensors file from a header and data.
func pack(head string, data ...byte) []byte {
	file := []byte{byte(len(head)), byte(len(head) >> 8), 0, 0, 0, 0, 0, 0}
	return append(append(file, head...), data...)
}

func writeBytes(t testing.TB, path string, data []byte) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, data, 0o644))
	return path
}

// conformanceRow is a line of safetensors_format.jsonl.
type conformanceRow struct {
	Name, Hex string
	OK        bool
	Error     string
	Golden    bool `json:"golden_writer_output"`
	Metadata  map[string]string
	Tensors   map[string]struct {
		DType DType `json:"dtype"`
		Shape []int
		Data  string `json:"data_hex"`
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	root := os.Getenv("EASYRL_TESTDATA")
	if root == "" {
		t.Skip("EASYRL_TESTDATA is not set: no conformance files to test with")
	}
	f, err := os.Open(filepath.Join(root, "conformance", "safetensors_format.jsonl"))
	require.NoError(t, err)
	defer f.Close()
	faults := map[string]string{ // by the reference implementation's error names
		"MetadataIncompleteBuffer": "bytes of data, expected", "HeaderTooLarge": "expected at most 100000000",
		"InvalidHeaderLength": "truncated", "InvalidHeaderDeserialization": "not JSON",
		"TensorInvalidInfo":  "data_offsets [0,4] for I32 [2 2], expected 16 bytes",
		"ValidationOverflow": "more elements",
	}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var row conformanceRow
		require.NoError(t, json.Unmarshal(lines.Bytes(), &row))
		t.Run(row.Name, func(t *testing.T) {
			data, err := hex.DecodeString(row.Hex)
			require.NoError(t, err)
			h, err := parseHeader(data)
			if !row.OK {
				require.ErrorContains(t, err, faults[row.Error])
				require.NotEmpty(t, faults[row.Error])
				return
			}
			require.NoError(t, err)
			checkRow(t, &row, h, data)
		})
	}
}

func checkRow(t *testing.T, row *conformanceRow, h *header, data []byte) {
	t.Helper()
	require.Len(t, h.entries, len(row.Tensors))
	if row.Metadata != nil {
		require.Equal(t, row.Metadata, h.metadata)
	}
	for _, e := range h.entries {
		want := row.Tensors[e.name]
		require.Equal(t, want.DType, e.dtype)
		require.Equal(t, want.Shape, e.shape)
		require.Equal(t, want.Data, hex.EncodeToString(data[h.size+e.begin:h.size+e.end]))
	}
	if row.Golden {
		head, err := formatHeader(h.entries, row.Metadata, Align)
		require.NoError(t, err)
		require.Equal(t, data[:h.size], head)
	}
	f, err := OpenFile(writeBytes(t, filepath.Join(t.TempDir(), "x"), data))
	require.NoError(t, err)
	defer f.Close()
	var sources []Source
	for _, name := range f.Names() {
		tensor, _ := f.Tensor(name)
		if tensor.DType != F32 {
			return
		}
		sources = append(sources, Source{Name: name, Shape: tensor.Shape, Write: tensor.Float32s})
	}
	if row.Golden {
		var b bytes.Buffer
		require.NoError(t, WriteSafetensors(&b, sources, row.Metadata))
		require.Equal(t, data, b.Bytes())
	}
}

func TestHeaderFaults(t *testing.T) {
	t.Parallel()
	tensor := func(name, dtype, shape, offsets string) string {
		return `"` + name + `":{"dtype":"` + dtype + `","shape":` + shape + `,"data_offsets":` + offsets + `}`
	}
	eight := make([]byte, 8)
	for _, c := range []struct {
		name string
		file []byte
		want string
	}{
		{"empty", nil, "0 bytes, expected at least 8"},
		{"short", []byte{1, 2}, "2 bytes, expected"},
		{"2^60 bytes claimed", []byte{0, 0, 0, 0, 0, 0, 0, 0x10, '{', '}'},
			"header is 1152921504606846976 bytes, expected at most"},
		{"all bits set", bytes.Repeat([]byte{0xff}, 16), "expected at most"},
		{"cut header", pack(`{"a":`)[:11], "but only 3 follow its length: truncated"},
		{"no header", pack(""), "not JSON: unexpected EOF"},
		{"not UTF-8", pack("{\"\xff\":{}}"), "not UTF-8"},
		{"list", pack("[]"), "expected a JSON object"},
		{"number", pack("12"), "expected a JSON object"},
		{"broken", pack(`{"a":}`), "not JSON"},
		{"cut", pack(`{"a":{`), "not JSON: unexpected EOF"},
		{"tail", pack(`{}x`), "unexpected text after the JSON object"},
		{"tail object", pack(`{} {}`), "unexpected text after the JSON object"},
		{"name twice", pack("{" + tensor("a", "F32", "[0]", "[0,0]") + "," + tensor("a", "F32", "[0]", "[0,0]") + "}"),
			`duplicate key "a"`},
		{"field twice", pack(`{"a":{"dtype":"F32","dtype":"F32"}}`), `tensor "a": duplicate key "dtype"`},
		{"case", pack(`{"a":{"DTYPE":"F32","shape":[],"data_offsets":[0,4]}}`, 0, 0, 0, 0),
			"expected dtype, shape and data_offsets"},
		{"tensor form", pack(`{"a":5}`), `tensor "a": "5", expected a JSON object`},
		{"dtype", pack("{"+tensor("a", "F33", "[1]", "[0,4]")+"}", 0, 0, 0, 0), `tensor "a": unknown dtype "F33"`},
		{"shape form", pack("{" + tensor("a", "F32", "5", "[0,4]") + "}"), `tensor "a": shape: 5, expected a list`},
		{"shape null", pack("{" + tensor("a", "F32", "null", "[0,4]") + "}"), "shape: null, expected a list"},
		{"negative", pack("{" + tensor("a", "F32", "[-1]", "[0,4]") + "}"), `"-1", expected a whole number`},
		{"fraction", pack("{" + tensor("a", "F32", "[1.0]", "[0,4]") + "}"), `"1.0", expected a whole number`},
		{"text", pack("{" + tensor("a", "F32", `["1"]`, "[0,4]") + "}"), "expected a list of whole numbers"},
		{"too large", pack("{" + tensor("a", "F32", "[18446744073709551616]", "[0,4]") + "}"),
			"expected a whole number"},
		{"overflow", pack("{" + tensor("a", "F32", "[4294967296,4294967296]", "[0,4]") + "}"), "more elements"},
		{"offsets", pack("{" + tensor("a", "F32", "[1]", "[0,4,8]") + "}"), "data_offsets: 3 numbers, expected 2"},
		{"backwards", pack("{" + tensor("a", "F32", "[1]", "[4,0]") + "}"),
			"data_offsets [4,0] for F32 [1], expected 4 bytes"},
		{"bits", pack("{" + tensor("a", "F4", "[3]", "[0,2]") + "}"), "expected whole bytes"},
		{"overlap", pack("{"+tensor("a", "F32", "[1]", "[0,4]")+","+tensor("b", "F32", "[1]", "[2,6]")+"}", eight...),
			`tensor "b": data begins at 2, but the tensor before it ends at `},
		{"same place", pack("{"+tensor("a", "F32", "[1]", "[0,4]")+","+tensor("b", "F32", "[1]", "[0,4]")+"}",
			eight[:4]...), "overlap"},
		{"hole", pack("{"+tensor("a", "F32", "[1]", "[0,4]")+","+tensor("b", "U8", "[2]", "[6,8]")+"}", eight...),
			`tensor "b": data begins at 6, expected 4: hole`},
		{"hole in front", pack("{"+tensor("a", "F32", "[1]", "[4,8]")+"}", eight...), "hole"},
		{"cut data", pack("{"+tensor("a", "F32", "[2]", "[0,8]")+"}", eight[:7]...),
			`data ends at 8, but the file has 7 bytes of data: truncated`},
		{"more data", pack("{"+tensor("a", "F32", "[1]", "[0,4]")+"}", eight...),
			"8 bytes of data, expected the tensors' 4"},
		{"metadata", pack(`{"__metadata__":{"a":1}}`), `__metadata__: "a" is 1, expected a string`},
		{"metadata form", pack(`{"__metadata__":"x"}`), "__metadata__"},
	} {
		_, err := parseHeader(c.file)
		require.ErrorContains(t, err, c.want, c.name)
	}
	for _, ok := range []string{
		"{}", " {} \n", "{" + tensor("a", "F32", "[0]", "[0,0]") + "," + tensor("b", "F32", "[0,9]", "[0,0]") + "}",
		`{"a":{"dtype":"F4","shape":[2,0],"data_offsets":[0,0],"later":{"x":1}}}`, `{"__metadata__":{}}`,
	} {
		_, err := parseHeader(pack(ok))
		require.NoError(t, err, ok)
	}
}

func TestConversion(t *testing.T) {
	t.Parallel()
	bits := func(b ...uint32) (values []float32) {
		for _, v := range b {
			values = append(values, math.Float32frombits(v))
		}
		return values
	}
	inf := math.Float32bits(float32(math.Inf(1)))
	for _, c := range []struct {
		dtype DType
		data  []byte
		want  []float32
	}{
		{F32, []byte{0, 0, 0x80, 0x3f, 1, 0, 0, 0x80}, bits(0x3f800000, 0x80000001)},
		{BF16, []byte{0x80, 0x3f, 0x80, 0xff, 0xc1, 0x7f, 1, 0}, bits(0x3f800000, inf|1<<31, 0x7fc10000, 0x10000)},
		{F16, []byte{0, 0x3c, 0, 0xc0, 0xff, 0x7b, 0x55, 0x35}, []float32{1, -2, 65504, 0.333251953125}},
		{F16, []byte{0, 0, 0, 0x80, 1, 0, 0xff, 0x83, 0, 4}, append(bits(0, 1<<31), 0x1p-24, -1023*0x1p-24, 0x1p-14)},
		{F16, []byte{0, 0x7c, 0, 0xfc, 1, 0x7e}, bits(inf, inf|1<<31, 0x7fc02000)},
	} {
		dtypeSize := c.dtype.bits() / 8
		head, err := json.Marshal(
			map[string]any{"x": map[string]any{"dtype": c.dtype, "shape": []int{len(c.want)},
				"data_offsets": []int{0, dtypeSize * len(c.want)}}})
		require.NoError(t, err)
		f, err := OpenFile(writeBytes(t, filepath.Join(t.TempDir(), "x"), pack(string(head), c.data...)))
		require.NoError(t, err)
		x, ok := f.Tensor("x")
		require.True(t, ok)
		require.Equal(t, len(c.want), x.Len())
		got := make([]float32, len(c.want))
		require.NoError(t, x.Float32s(got))
		for i := range got {
			require.Equal(t, math.Float32bits(c.want[i]), math.Float32bits(got[i]), "%s %d", c.dtype, i)
		}
		require.ErrorContains(t, x.Float32s(make([]float32, 1)),
			`read tensor "x" of `+f.files[0].path+": destination holds 1 elements, expected")
		require.NoError(t, f.Close())
		require.NoError(t, f.Close(), "again")
		require.ErrorContains(t, x.Float32s(got), "file is closed")
	}
	require.Error(t, Tensor{}.Float32s(nil))
	f, err := OpenFile(writeBytes(t, filepath.Join(t.TempDir(), "x"),
		pack(`{"x":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}`, make([]byte, 8)...)))
	require.NoError(t, err)
	defer f.Close()
	x, _ := f.Tensor("x")
	require.ErrorContains(t, x.Float32s(make([]float32, 1)), "dtype I64, expected F32, BF16 or F16")
	_, ok := f.Tensor("y")
	require.False(t, ok)
}

// constant returns a tensor whose element i is base + i.
func constant(name string, base float32, shape ...int) Source {
	return Source{Name: name, Shape: shape, Write: Filled(func(dst []float32) {
		for i := range dst {
			dst[i] = base + float32(i)
		}
	})}
}

func TestWriteAndRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, modelName)
	writeBytes(t, path, []byte("previous content"))
	meta := map[string]string{"format": "pt", "a<b>&\"\u2028": "é\n"}
	sources := []Source{constant("z", 5, 3, 7, 11), constant("b.<w>", 1, 70000), constant("scalar", 9),
		constant("none", 0, 4, 0),
		{Name: "zero", Shape: []int{2}, Write: Filled(func([]float32) {})}}
	require.NoError(t, WriteFile(path, sources, meta))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Zero(t, slices.Index(data, '{')-8)
	require.Contains(t, string(data), `"b.<w>":{"dtype":"F32","shape":[70000],"data_offsets":[0,280000]}`)
	f, err := OpenFolder(dir)
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, []string{"b.<w>", "none", "scalar", "z", "zero"}, f.Names())
	require.Equal(t, meta, f.Metadata())
	require.Zero(t, f.files[0].header.size%8)
	for _, s := range sources {
		x, ok := f.Tensor(s.Name)
		require.True(t, ok)
		require.Equal(t, append([]int{}, s.Shape...), x.Shape)
		want, got := make([]float32, x.Len()), make([]float32, x.Len())
		s.Write(want)
		require.NoError(t, x.Float32s(got))
		require.Equal(t, want, got)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "no part is left")
	var a, b bytes.Buffer
	slices.Reverse(sources)
	require.NoError(t, WriteSafetensors(&a, sources, meta))
	require.Equal(t, data, a.Bytes(), "the order of the sources does not matter")
	require.NoError(t, WriteSafetensors(&b, nil, nil))
	require.Equal(t, pack("{}      "), b.Bytes())
}

func TestWriteFaults(t *testing.T) {
	t.Parallel()
	fine := constant("a", 0, 2)
	for _, c := range []struct {
		sources []Source
		want    string
	}{
		{[]Source{fine, fine}, `write tensor "a": duplicate name`},
		{[]Source{constant("", 0, 1)}, `write tensor "": invalid name`},
		{[]Source{constant(metadataKey, 0, 1)}, "invalid name"},
		{[]Source{constant("\xff", 0, 1)}, "invalid name"},
		{[]Source{constant("b", 0, -1)}, `write tensor "b": shape is [-1]`},
		{[]Source{constant("b", 0, math.MaxInt, 8)}, "more elements"},
		{[]Source{{Name: "b"}}, `write tensor "b": no Write function`},
	} {
		require.ErrorContains(t, WriteSafetensors(&bytes.Buffer{}, c.sources, nil), c.want)
	}
	require.ErrorContains(t, WriteSafetensors(&bytes.Buffer{}, nil, map[string]string{"k": "\xff"}), `metadata "k"`)

	dir := t.TempDir()
	path := writeBytes(t, filepath.Join(dir, "x.safetensors"), []byte("old"))
	err := WriteFile(path, []Source{{Name: "b"}}, nil)
	require.ErrorContains(t, err, "write weights "+path+`: write tensor "b"`)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(data), "the previous content stays")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.ErrorIs(t, WriteFile(filepath.Join(path, "x"), nil, nil), syscall.ENOTDIR)
}

// An error from a full disk names the tensor being written.
func TestWriteToFullDisk(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full on this system")
	}
	defer full.Close()
	w := bufio.NewWriterSize(full, 1<<16)
	require.ErrorContains(t, WriteSafetensors(w, []Source{constant("a", 0, 9), constant("big", 0, 100000)}, nil),
		`write tensor "big"`)
	require.ErrorContains(t, WriteSafetensors(full, nil, nil), "write header")
	again, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	require.ErrorContains(t, fill(again, func(w io.Writer) error {
		return WriteSafetensors(w, []Source{constant("small", 0, 1)}, nil)
	}), "no space left", "found when the buffer is written out")
}

// Values of bfloat16 take two bytes and come back. Others are refused.
func TestWriteBF16(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "half.safetensors")
	values := []float32{1, -2.5, 0, 0x1p-60, float32(math.Inf(1))}
	source := func(values []float32) []Source {
		return []Source{{Name: "a", DType: BF16, Shape: []int{len(values)},
			Write: Filled(func(dst []float32) { copy(dst, values) })}}
	}
	require.NoError(t, WriteFile(path, source(values), nil))
	f, err := OpenFile(path)
	require.NoError(t, err)
	defer f.Close()
	tensor, ok := f.Tensor("a")
	require.True(t, ok)
	require.Equal(t, BF16, tensor.DType)
	got := make([]float32, len(values))
	require.NoError(t, tensor.ReadAt(got, 0))
	require.Equal(t, values, got)
	err = WriteFile(path, source([]float32{1.0001}), nil)
	require.ErrorContains(t, err, `"a": value is 1.0001, expected a bfloat16`)
}
