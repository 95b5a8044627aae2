package model

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/npu"
)

func streamed(t testing.TB, sources []checkpoint.Source) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, checkpoint.WriteSafetensors(&b, sources, map[string]string{"format": "pt"}))
	return b.Bytes()
}

// inOrderOfParameters returns a file whose data is not in name order.
func inOrderOfParameters(w *Weights) []byte {
	var head strings.Builder
	var data []byte
	for i := range w.Params {
		p := &w.Params[i]
		shape, n := fmt.Sprint(p.Rows), p.Rows
		if p.Cols > 0 {
			shape, n = fmt.Sprintf("%d,%d", p.Rows, p.Cols), p.Rows*p.Cols
		}
		fmt.Fprintf(&head, `%q:{"dtype":"F32","shape":[%s],"data_offsets":[%d,%d]},`, p.Name, shape, len(data),
			len(data)+4*n)
		vals := make([]float32, n)
		w.Read(i, vals)
		for _, v := range vals {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
	}
	text := "{" + strings.TrimSuffix(head.String(), ",") + "}"
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), []byte(text), data)
}

// A stream in any order and in pieces of any size restores its weights and checksum;
// so does a file.
func TestReadStream(t *testing.T) {
	for name, c := range shapes() {
		t.Run(name, func(t *testing.T) {
			dev := openCPU(t, 2)
			w, err := NewWeights(dev, c, npu.Weights)
			require.NoError(t, err)
			require.NoError(t, w.Init(7))
			body := streamed(t, w.Sources())
			path := filepath.Join(t.TempDir(), "w.safetensors")
			require.NoError(t, os.WriteFile(path, body, 0o600))
			other, files := inOrderOfParameters(w), checkpoint.Files{}
			for what, read := range map[string]func(w *Weights) (string, error){
				"stream": func(w *Weights) (string, error) {
					return w.ReadStream(bytes.NewReader(body), int64(len(body)))
				},
				"unknown size": func(w *Weights) (string, error) { return w.ReadStream(bytes.NewReader(body), -1) },
				"drips": func(w *Weights) (string, error) {
					return w.ReadStream(iotest.OneByteReader(bytes.NewReader(body)), -1)
				},
				"data with EOF": func(w *Weights) (string, error) {
					return w.ReadStream(iotest.DataErrReader(bytes.NewReader(body)), -1)
				},
				"other order": func(w *Weights) (string, error) {
					return w.ReadStream(bytes.NewReader(other), int64(len(other)))
				},
				"file": func(w *Weights) (string, error) { return w.ReadFile(&files, path) },
			} {
				got, err := NewWeights(dev, c, npu.Weights)
				require.NoError(t, err)
				sum, err := read(got)
				require.NoError(t, err, what)
				require.Equal(t, w.Checksum(), sum, what)
				require.Equal(t, w.Checksum(), got.Checksum(), what)
			}
		})
	}
}

func TestReadStreamOfShorterTypes(t *testing.T) {
	c := shapes()["llama"]
	w, err := NewWeights(openCPU(t, 2), c, npu.Weights)
	require.NoError(t, err)
	var head strings.Builder
	var data []byte
	for i := range w.Params {
		p := &w.Params[i]
		shape, n := fmt.Sprint(p.Rows), p.Rows
		if p.Cols > 0 {
			shape, n = fmt.Sprintf("%d,%d", p.Rows, p.Cols), p.Rows*p.Cols
		}
		fmt.Fprintf(&head, `%q:{"dtype":"BF16","shape":[%s],"data_offsets":[%d,%d]},`, p.Name, shape, len(data),
			len(data)+2*n)
		for range n {
			data = binary.LittleEndian.AppendUint16(data, uint16(math.Float32bits(-1.5)>>16))
		}
	}
	text := "{" + strings.TrimSuffix(head.String(), ",") + "}"
	body := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	sum, err := w.ReadStream(bytes.NewReader(append(body, data...)), -1)
	require.NoError(t, err)
	require.Equal(t, w.Checksum(), sum)
	vals := make([]float32, w.Params[0].Rows*w.Params[0].Cols)
	w.Read(0, vals)
	require.Equal(t, slices.Repeat([]float32{-1.5}, len(vals)), vals)
}

func TestReadStreamRefuses(t *testing.T) {
	c := shapes()["llama"]
	dev := openCPU(t, 2)
	w, err := NewWeights(dev, c, npu.Weights)
	require.NoError(t, err)
	require.NoError(t, w.Init(7))
	all := w.Sources()
	good := streamed(t, all)
	changed := func(change func(s []checkpoint.Source) []checkpoint.Source) []byte {
		return streamed(t, change(slices.Clone(all)))
	}
	bad := func(v float32) []byte {
		return changed(func(s []checkpoint.Source) []checkpoint.Source {
			write := s[2].Write
			s[2].Write = func(dst []float32) error { err := write(dst); dst[5] = v; return err }
			return s
		})
	}
	broken := errors.New("wire cut")
	for name, row := range map[string]struct {
		body io.Reader
		size int64
		want string
	}{
		"empty":          {strings.NewReader(""), -1, "0 bytes, expected at least 8"},
		"no header":      {bytes.NewReader(good[:50]), -1, "header ends after 42 bytes"},
		"huge header":    {bytes.NewReader(slices.Repeat([]byte{0xff}, 20)), -1, "expected at most 100000000"},
		"header or size": {bytes.NewReader(good), 60, "but only 52 follow its length: truncated"},
		"short":          {bytes.NewReader(good[:len(good)-3]), -1, "unexpected EOF"},
		"said too short": {bytes.NewReader(good), int64(len(good)) - 4, "truncated"},
		"said too long":  {bytes.NewReader(good), int64(len(good)) + 4, "bytes of data, expected the tensors'"},
		"more":           {io.MultiReader(bytes.NewReader(good), strings.NewReader("x")), -1, "more than the tensors'"},
		"wire cut": {io.MultiReader(bytes.NewReader(good[:len(good)-9]), iotest.ErrReader(broken)),
			-1, "wire cut"},
		"wrong at end": {io.MultiReader(bytes.NewReader(good), iotest.ErrReader(broken)), -1, "wire cut"},
		"missing": {bytes.NewReader(changed(func(s []checkpoint.Source) []checkpoint.Source { return s[1:] })), -1,
			"tensor model.embed_tokens.weight is missing"},
		"extra": {bytes.NewReader(changed(func(s []checkpoint.Source) []checkpoint.Source {
			return append(s, checkpoint.Source{Name: "v_head.weight", Shape: []int{1},
				Write: checkpoint.Filled(func([]float32) {})})
		})), -1, "tensor v_head.weight is not one of the"},
		"shape": {bytes.NewReader(changed(func(s []checkpoint.Source) []checkpoint.Source {
			s[0].Shape = []int{s[0].Shape[1], s[0].Shape[0]}
			return s
		})), -1, "tensor model.embed_tokens.weight has shape"},
		"NaN":      {bytes.NewReader(bad(float32(math.NaN()))), -1, "value 5 is NaN: not finite"},
		"infinite": {bytes.NewReader(bad(float32(math.Inf(1)))), -1, "value 5 is +Inf: not finite"},
	} {
		t.Run(name, func(t *testing.T) {
			spare, err := NewWeights(dev, c, npu.Weights)
			require.NoError(t, err)
			_, err = spare.ReadStream(row.body, row.size)
			require.ErrorContains(t, err, row.want)
			require.NotContains(t, err.Error(), "\n")
		})
	}
	path, files := filepath.Join(t.TempDir(), "w.safetensors"), checkpoint.Files{}
	require.NoError(t, os.WriteFile(path, bad(float32(math.NaN())), 0o600))
	_, err = w.ReadFile(&files, path)
	require.ErrorIs(t, err, ErrNotFinite)
	require.ErrorContains(t, err, path)
}

// BenchmarkReadStream reads 256 MB of weights from memory.
func BenchmarkReadStream(b *testing.B) {
	c := &Config{Type: "llama", HiddenSize: 1024, FFNSize: 4096, Layers: 4, Heads: 16, KVHeads: 16, HeadDim: 64,
		VocabSize:    256,
		MaxPositions: 128, NormEps: 1e-5, RopeTheta: 1e4, InitStd: 0.02, BOS: -1}
	dev := openCPU(b, 2)
	w, err := NewWeights(dev, c, npu.Weights)
	require.NoError(b, err)
	body := streamed(b, w.Sources())
	path := filepath.Join(b.TempDir(), "w.safetensors")
	require.NoError(b, os.WriteFile(path, body, 0o600))
	var files checkpoint.Files
	for name, read := range map[string]func() (string, error){
		"stream":   func() (string, error) { return w.ReadStream(bytes.NewReader(body), int64(len(body))) },
		"file":     func() (string, error) { return w.ReadFile(&files, path) },
		"checksum": func() (string, error) { return w.Checksum(), nil },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(w.Bytes())
			for b.Loop() {
				_, err := read()
				require.NoError(b, err)
			}
		})
	}
}
