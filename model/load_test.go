//go:build unix

package model

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
)

// bigShape returns a shape whose matrices span several blocks, the last one short.
func bigShape() *Config {
	c := *shapes()["llama"]
	c.VocabSize, c.HiddenSize = 2*tensor.BlockValues/64+50, 64
	return &c
}

func TestLoadInBlocks(t *testing.T) {
	t.Parallel()
	c := bigShape()
	dev := openCPU(t, 2)
	vals := make([]float32, c.VocabSize*c.HiddenSize)
	for i := range vals {
		vals[i] = float32(i)
	}
	w, err := NewWeights(dev, c, npu.Weights)
	require.NoError(t, err)
	require.NoError(t, w.Init(3))
	dev.PackMatrix(w.Embed, vals) // in one call
	dir := t.TempDir()
	require.NoError(t, checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"), w.Sources(), nil))
	again, err := NewWeights(dev, c, npu.Weights)
	require.NoError(t, err)
	require.NoError(t, again.Load(dir))
	got := make([]float32, len(vals))
	dev.UnpackMatrix(got, again.Embed)
	require.Equal(t, vals, got)
	require.Equal(t, w.Checksum(), again.Checksum())
	dev.Upload(again.Embed.Slice(again.Embed.Len()-32*c.HiddenSize, again.Embed.Len()-32*c.HiddenSize+1),
		[]float32{0.5})
	require.NotEqual(t, w.Checksum(), again.Checksum())
}

// The file is cut before the embedding's last values are read.
func TestLoadTruncatedFile(t *testing.T) {
	t.Parallel()
	c := bigShape()
	dev := openCPU(t, 2)
	w, err := NewWeights(dev, c, npu.Weights)
	require.NoError(t, err)
	require.NoError(t, w.Init(3))
	dir := t.TempDir()
	path := filepath.Join(dir, "model.safetensors")
	require.NoError(t, checkpoint.WriteFile(path, w.Sources(), nil))
	f, err := checkpoint.OpenFolder(dir)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, os.Truncate(path, 1<<20))
	require.ErrorContains(t, w.LoadFrom("", f), "the file was truncated while open")
	require.ErrorContains(t, w.Load(dir), "truncated")
}
