package checkpoint

import (
	"bytes"
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/limittest"
)

// FuzzSafetensors parses arbitrary files. The tensors of an accepted file cover
// its data exactly and survive a round trip through the writer.
func FuzzSafetensors(f *testing.F) {
	var b bytes.Buffer
	require.NoError(f, WriteSafetensors(&b, []Source{constant("a", 1, 2), constant("b", 0), constant("c", 0, 3, 0)},
		map[string]string{"k": "v"}))
	f.Add(b.Bytes())
	f.Add(
		pack(
			`{"a":{"dtype":"BF16","shape":[1],"data_offsets":[2,4]},"b":{"dtype":"F16","shape":[],`+
				`"data_offsets":[0,2]}}`, 1, 2, 3, 4))
	f.Add(pack("{}"))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0x10})
	f.Fuzz(func(t *testing.T, data []byte) {
		limittest.Run(t, func() { fuzzSafetensors(t, data) })
	})
}

func fuzzSafetensors(t *testing.T, data []byte) {
	s, err := newFile("x", inMemory(data))
	if err != nil {
		return
	}
	covered := 0
	for _, e := range s.header.entries {
		require.Equal(t, covered, e.begin)
		covered = e.end
	}
	require.Equal(t, len(data)-s.header.size, covered)
	var sources []Source
	for name, x := range s.tensors() {
		if err := x.Float32s(make([]float32, x.Len())); err != nil || name == "" {
			return
		}
		sources = append(sources, Source{Name: name, Shape: x.Shape, Write: x.Float32s})
	}
	var again bytes.Buffer
	require.NoError(t, WriteSafetensors(&again, sources, s.header.metadata))
	g, err := parseHeader(again.Bytes())
	require.NoError(t, err)
	require.Len(t, g.entries, len(s.header.entries))
}

// FuzzStream checks that Stream accepts the same input as the file reader and
// yields the same values.
func FuzzStream(f *testing.F) {
	var b bytes.Buffer
	require.NoError(f, WriteSafetensors(&b, []Source{constant("a", 1, 2), constant("b", 0), constant("c", 0, 3, 0)},
		nil))
	f.Add(b.Bytes(), true)
	f.Add(
		pack(
			`{"a":{"dtype":"BF16","shape":[1],"data_offsets":[2,4]},"b":{"dtype":"F16","shape":[],`+
				`"data_offsets":[0,2]}}`, 1, 2, 3, 4), false)
	f.Fuzz(func(t *testing.T, data []byte, sized bool) {
		limittest.Run(t, func() { fuzzStream(t, data, sized) })
	})
}

func fuzzStream(t *testing.T, data []byte, sized bool) {
	whole, fault := newFile("x", inMemory(data))
	size := int64(-1)
	if sized {
		size = int64(len(data))
	}
	const most = 3 // elements
	s, err := NewStream(iotest.OneByteReader(bytes.NewReader(data)), size)
	if err != nil {
		require.Error(t, fault)
		return
	}
	got := make(map[string][]float32)
	err = s.Blocks(func(x Tensor) int { return min(most, x.Len()) }, func(x Tensor, first int, vals []float32) error {
		require.Len(t, got[x.Name], first)
		require.LessOrEqual(t, len(vals), most)
		got[x.Name] = append(got[x.Name], vals...)
		return nil
	})
	if fault != nil {
		require.Error(t, err)
		return
	}
	var readable error
	for name, x := range whole.tensors() {
		want := make([]float32, x.Len())
		if fault := x.Float32s(want); fault != nil {
			readable = fault
		} else if err == nil {
			require.Equal(t, words(want), words(got[name]))
		}
	}
	require.Equal(t, readable == nil, err == nil)
}

func words(vals []float32) (out []uint32) {
	for _, v := range vals {
		out = append(out, math.Float32bits(v))
	}
	return out
}

// FuzzHeader fuzzes the header's JSON behind a valid length, which mutated files
// seldom have.
func FuzzHeader(f *testing.F) {
	f.Add(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"k":"v"}}`, 8)
	f.Add(`{"a":{"dtype":"U8","shape":[0,3],"data_offsets":[0,0]}} `, 0)
	f.Fuzz(func(t *testing.T, head string, size int) {
		if len(head) >= 1<<16 || size < 0 || size > 1<<16 {
			return
		}
		var h *header
		var err error
		limittest.Run(t, func() { h, err = parseHeader(pack(head, make([]byte, size)...)) })
		if err != nil {
			return
		}
		out, err := formatHeader(h.entries, h.metadata, Align)
		require.NoError(t, err)
		g, err := parseHeader(append(out, make([]byte, size)...))
		require.NoError(t, err)
		require.Equal(t, h.entries, g.entries)
		require.Equal(t, len(h.metadata), len(g.metadata))
	})
}

func FuzzIndex(f *testing.F) {
	f.Add(`{"metadata":{"total_size":1},"weight_map":{"a":"x.safetensors","b":"y/z"}}`)
	f.Add(`{"weight_map":{"a":"../x"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var shards map[string][]string
		var err error
		limittest.Run(t, func() { shards, err = parseIndex([]byte(text)) })
		if err != nil {
			return
		}
		for name, tensors := range shards {
			require.True(t, filepath.IsLocal(name))
			require.NotEmpty(t, tensors)
			rel, err := filepath.Rel("/folder", filepath.Join("/folder", name))
			require.NoError(t, err)
			require.False(t, rel == ".." || strings.HasPrefix(rel, "../"), name)
		}
	})
}

func FuzzManifest(f *testing.F) {
	good := manifest{1, map[string]fileRecord{"model.safetensors": {4, strings.Repeat("0a", 32)}}}
	text, err := json.Marshal(good)
	require.NoError(f, err)
	f.Add(string(text))
	f.Add(`{"version":1,"files":{"../x":{"size":0,"sha256":""}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseManifest([]byte(text))
		if err == nil {
			require.NotEmpty(t, m.Files)
			for name, r := range m.Files {
				require.True(t, filepath.IsLocal(name) && r.Size >= 0 && len(r.SHA256) == 64)
			}
		}
	})
}
