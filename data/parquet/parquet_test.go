package parquet

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/limittest"
)

func decode(t *testing.T, text []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	require.NoError(t, d.Decode(&v), "%s", text)
	return v
}

// same compares numbers by value, and decimals, which are text in the golden
// file, by spelling.
func same(want, got any) bool {
	switch got := got.(type) {
	case json.Number:
		if text, ok := want.(string); ok {
			return text == got.String()
		}
		number, ok := want.(json.Number)
		if !ok || number == got {
			return ok
		}
		a, errA := strconv.ParseFloat(number.String(), 64)
		b, errB := strconv.ParseFloat(got.String(), 64)
		return errA == nil && errB == nil && a == b && strings.ContainsAny(got.String(), ".e")
	case []any:
		list, ok := want.([]any)
		if !ok || len(list) != len(got) {
			return false
		}
		for i := range got {
			if !same(list[i], got[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		object, ok := want.(map[string]any)
		if !ok || len(object) != len(got) {
			return false
		}
		for k := range got {
			if _, ok := object[k]; !ok || !same(object[k], got[k]) {
				return false
			}
		}
		return true
	}
	return want == got
}

func open(t testing.TB, text []byte) *File {
	t.Helper()
	f, err := Open(bytes.NewReader(text), int64(len(text)))
	require.NoError(t, err)
	return f
}

// The records match what pyarrow (version 26.0.1) reads from the files that
// testdata/golden.py wrote with it.
func TestGolden(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/*.jsonl")
	require.NoError(t, err)
	require.Len(t, paths, 16)
	for _, path := range paths {
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		lines := strings.Split(strings.TrimSuffix(string(want), "\n"), "\n")
		if len(want) == 0 {
			lines = nil
		}
		text, err := os.ReadFile(strings.TrimSuffix(path, "jsonl") + "parquet")
		require.NoError(t, err)
		f := open(t, text)
		n := 0
		require.NoError(t, f.Rows(f.Names(), func(row int, record map[string]json.RawMessage) error {
			n++
			require.Equal(t, n, row)
			whole, err := json.Marshal(record)
			require.NoError(t, err)
			require.True(t, same(decode(t, []byte(lines[row-1])), decode(t, whole)), "%s row %d\nwant %s\ngot  %s",
				path, row, lines[row-1], whole)
			return nil
		}), path)
		require.Len(t, lines, n, path)
		require.Zero(t, f.live, "pages are given back")
	}
}

func golden(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return text
}

func TestRowsOfSomeColumns(t *testing.T) {
	t.Parallel()
	f := open(t, golden(t, "verl.parquet"))
	require.Equal(t, []string{"data_source", "prompt", "ability", "reward_model", "extra_info"}, f.Names())
	require.NoError(t, f.Rows([]string{"reward_model", "prompt", "nowhere"},
		func(row int, record map[string]json.RawMessage) error {
			require.Len(t, record, 2)
			require.JSONEq(t, `{"style":"rule","ground_truth":"`+strconv.Itoa(row-1)+`"}`,
				string(record["reward_model"]))
			return nil
		}))
	stop := errors.New("enough")
	require.ErrorIs(t, f.Rows(nil, func(row int, record map[string]json.RawMessage) error {
		if require.Empty(t, record); row == 12 {
			return stop
		}
		return nil
	}), stop)
}

func TestRefused(t *testing.T) {
	t.Parallel()
	whole := golden(t, "flat-none.parquet")
	with := func(change func(b []byte) []byte) []byte { return change(bytes.Clone(whole)) }
	// A footer whose only field is a list of maxChunks+1 row groups without chunks, and its size.
	groups := append([]byte("PAR1\x49\xfc\x81\x80\x40"), make([]byte, maxChunks+2)...)
	groups = append(binary.LittleEndian.AppendUint32(groups, uint32(len(groups)-4)), "PAR1"...)
	for _, c := range []struct {
		name string
		text []byte
		want string
	}{
		{"empty", nil, "not a Parquet file: 0 bytes"},
		{"other", bytes.Repeat([]byte("x"), 50), `not a Parquet file: starts with "xxxx"`},
		{"cut", whole[:len(whole)-9], "not a complete Parquet file"},
		{"encrypted", with(func(b []byte) []byte { copy(b[len(b)-4:], "PARE"); return b }), "encrypted"},
		{"footer", with(func(b []byte) []byte { copy(b[len(b)-8:], "\xff\xff\xff\x7f"); return b }),
			"footer of 2147483647 bytes does not fit in a file of"},
		{"short footer", with(func(b []byte) []byte { copy(b[len(b)-8:], "\x20\x00\x00\x00"); return b }), "footer"},
		{"row groups", groups, "more than 1048576 row groups and column chunks"},
	} {
		_, err := Open(bytes.NewReader(c.text), int64(len(c.text)))
		require.ErrorContains(t, err, c.want, c.name)
	}
	f := open(t, golden(t, "refused-brotli.parquet"))
	err := f.Rows(f.Names(), nil)
	require.EqualError(t, err,
		`row 1: column "id": compressed by BROTLI: not supported, expected none, snappy, gzip, zstd or lz4`)
}

// If any byte is changed, reading yields records or an error; it never panics.
func TestDamaged(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"verl-v2.parquet", "flat-delta.parquet", "flat-lz4.parquet"} {
		whole := golden(t, name)
		for i := range whole {
			damaged := bytes.Clone(whole)
			damaged[i] = []byte{0xff, whole[i] ^ 0x11}[i%2]
			drain(t, damaged)
		}
	}
}

// drain reads a possibly damaged file, up to a maximum number of rows.
func drain(t testing.TB, text []byte) {
	t.Helper()
	f, err := Open(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		return
	}
	enough := errors.New("enough")
	var total int64
	_ = f.Rows(f.Names(), func(row int, record map[string]json.RawMessage) error {
		for name, value := range record {
			require.True(t, json.Valid(value), "row %d, %q: %q", row, name, value)
			total += int64(len(value))
		}
		if row == 10000 {
			return enough
		}
		return nil
	})
	require.LessOrEqual(t, total, baseExpansion+maxExpansion*int64(len(text)))
	require.Zero(t, f.live)
}

func FuzzParquet(f *testing.F) {
	paths, err := filepath.Glob("testdata/*.parquet")
	require.NoError(f, err)
	for _, path := range paths {
		f.Add(golden(f, filepath.Base(path)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		limittest.Run(t, func() { drain(t, text) })
	})
}
