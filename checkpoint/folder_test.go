package checkpoint

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// sharded writes a folder of two shards with tensors a, b and c, and an index.
func sharded(t testing.TB, index any) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, WriteFile(filepath.Join(dir, "model-00001-of-00002.safetensors"),
		[]Source{constant("a", 1, 2), constant("b", 3, 2)}, map[string]string{"format": "pt"}))
	require.NoError(t, WriteFile(filepath.Join(dir, "model-00002-of-00002.safetensors"),
		[]Source{constant("c", 5, 2)}, nil))
	data, ok := index.(string)
	if !ok {
		b, err := json.Marshal(map[string]any{"metadata": map[string]int{"total_size": 24}, "weight_map": index})
		require.NoError(t, err)
		data = string(b)
	}
	writeBytes(t, filepath.Join(dir, indexName), []byte(data))
	return dir
}

func TestShards(t *testing.T) {
	t.Parallel()
	one, two := "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
	dir := sharded(t, map[string]string{"a": one, "b": one, "c": two})
	f, err := OpenFolder(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c"}, f.Names())
	require.Equal(t, "pt", f.Metadata()["format"])
	for i, name := range f.Names() {
		x, _ := f.Tensor(name)
		got := make([]float32, 2)
		require.NoError(t, x.Float32s(got))
		require.Equal(t, []float32{float32(2*i + 1), float32(2*i + 2)}, got)
	}
	require.NoError(t, f.Close())

	// As in transformers, a single file takes precedence over an index.
	require.NoError(t, WriteFile(filepath.Join(dir, modelName), []Source{constant("only", 0, 1)}, nil))
	f, err = OpenFolder(dir)
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, []string{"only"}, f.Names())
}

func TestFolderFaults(t *testing.T) {
	t.Parallel()
	one := "model-00001-of-00002.safetensors"
	for _, c := range []struct {
		name  string
		index any
		want  string
	}{
		{"missing shard", map[string]string{"a": one, "x": "gone.safetensors"},
			"shard gone.safetensors with 1 tensors (x …): open "},
		{"missing tensor", map[string]string{"a": one, "x": one}, `tensor "x": not in shard ` + one},
		{"escape", map[string]string{"a": "../" + one}, `tensor "a": shard "../` + one + `" is outside the folder`},
		{"absolute", map[string]string{"a": "/etc/passwd"}, `shard "/etc/passwd" is outside`},
		{"hidden escape", map[string]string{"a": "x/../../y"}, "is outside"},
		{"folder as shard", map[string]string{"a": "."}, "expected a regular file"},
		{"index as shard", map[string]string{"a": indexName}, "shard " + indexName},
		{"form", map[string]int{"a": 1}, `tensor "a" maps to 1, expected a shard name`},
		{"no map", `{"metadata":{}}`, "no weight_map"},
		{"not JSON", `{"weight_map":`, indexName + ": not JSON: unexpected EOF"},
		{"twice", `{"weight_map":{"a":"x","a":"y"}}`, `duplicate key "a"`},
	} {
		dir := sharded(t, c.index)
		_, err := OpenFolder(dir)
		require.ErrorContains(t, err, c.want, c.name)
		require.ErrorContains(t, err, "open weights "+dir+": ", c.name)
		require.NotContains(t, err.Error(), "\n", c.name)
		require.NotErrorIs(t, err, ErrNotFound)
	}
	_, err := OpenFolder(t.TempDir())
	require.ErrorIs(t, err, ErrNotFound)
	_, err = OpenFolder(filepath.Join(t.TempDir(), "gone"))
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorIs(t, err, os.ErrNotExist)
	file := writeBytes(t, filepath.Join(t.TempDir(), "f"), nil)
	_, err = OpenFolder(file)
	require.Error(t, err)
	_, err = OpenFile(file)
	require.ErrorContains(t, err, "open weights "+file+": 0 bytes, expected at least 8")
	_, err = OpenFile(filepath.Dir(file))
	require.ErrorContains(t, err, "expected a regular file")
	broken := writeBytes(t, filepath.Join(t.TempDir(), modelName), pack("{}", 1))
	_, err = OpenFolder(filepath.Dir(broken))
	require.ErrorContains(t, err, modelName+": 1 bytes of data, expected the tensors' 0")
}

// The Hugging Face cache links the files of a folder to blobs elsewhere.
func TestLinkedFiles(t *testing.T) {
	t.Parallel()
	blobs, dir := t.TempDir(), t.TempDir()
	require.NoError(t, WriteFile(filepath.Join(blobs, "b"), []Source{constant("a", 1, 2)}, nil))
	if err := os.Symlink(filepath.Join(blobs, "b"), filepath.Join(dir, modelName)); err != nil {
		t.Skip("no symbolic links here: " + err.Error())
	}
	f, err := OpenFolder(dir)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestCloseWhileReading(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x")
	require.NoError(t, WriteFile(path, []Source{constant("a", 1, 1000)}, nil))
	f, err := OpenFile(path)
	require.NoError(t, err)
	x, _ := f.Tensor("a")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			got := make([]float32, x.Len())
			for x.Float32s(got) == nil {
				if got[999] != 1000 {
					t.Error("another value")
				}
			}
		})
	}
	require.NoError(t, f.Close())
	wg.Wait()
}

func TestRealWeights(t *testing.T) {
	t.Parallel()
	root := os.Getenv("EASYRL_TESTDATA")
	if root == "" {
		t.Skip("EASYRL_TESTDATA is not set: no real weights to test with")
	}
	for name, dtype := range map[string]DType{"stories260K": F32, "verl_digit_completion": BF16} {
		f, err := OpenFolder(filepath.Join(root, "weights", name))
		require.NoError(t, err)
		var sources []Source
		for _, tensor := range f.Names() {
			x, _ := f.Tensor(tensor)
			require.Equal(t, dtype, x.DType)
			sources = append(sources, Source{Name: tensor, Shape: x.Shape, Write: x.Float32s})
		}
		copied := filepath.Join(t.TempDir(), modelName)
		require.NoError(t, WriteFile(copied, sources, f.Metadata()))
		g, err := OpenFolder(filepath.Dir(copied))
		require.NoError(t, err)
		require.Equal(t, f.Names(), g.Names())
		for _, tensor := range f.Names() {
			x, _ := f.Tensor(tensor)
			y, _ := g.Tensor(tensor)
			a, b := make([]float32, x.Len()), make([]float32, y.Len())
			require.NoError(t, errors.Join(x.Float32s(a), y.Float32s(b)))
			require.Equal(t, a, b)
		}
		if dtype == F32 {
			want, err := os.ReadFile(filepath.Join(root, "weights", name, modelName))
			require.NoError(t, err)
			got, err := os.ReadFile(copied)
			require.NoError(t, err)
			require.Equal(t, strings.TrimRight(string(want[8:80]), " "), strings.TrimRight(string(got[8:80]), " "))
			require.Len(t, got, len(want), "the same tensors and texts take the same room")
		}
		require.NoError(t, errors.Join(f.Close(), g.Close()))
	}
}
