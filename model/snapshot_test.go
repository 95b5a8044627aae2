package model

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/npu"
)

// published returns the safetensors file of a snapshot.
func published(t testing.TB, s *Snapshot) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, s.WriteSafetensors(&b))
	return b.Bytes()
}

// A snapshot's file does not depend on the writer, on concurrent writers, or on other
// work of the weights' own device.
func TestWriteSnapshot(t *testing.T) {
	for name, c := range shapes() {
		t.Run(name, func(t *testing.T) {
			dev := openCPU(t, 2)
			w, err := NewWeights(dev, c, npu.Weights)
			require.NoError(t, err)
			require.NoError(t, w.Init(3))
			want := published(t, NewSnapshot(w, 7))
			got, err := NewWeights(dev, c, npu.Weights)
			require.NoError(t, err)
			sum, err := got.ReadStream(bytes.NewReader(want), int64(len(want)))
			require.NoError(t, err)
			require.Equal(t, w.Checksum(), sum)

			s := NewSnapshot(w, 7)
			s.ReadWith(openCPU(t, 2), new(sync.Mutex))
			path := filepath.Join(t.TempDir(), "w")
			f, err := os.Create(path)
			require.NoError(t, err)
			var writing sync.WaitGroup
			for range 4 {
				writing.Go(func() {
					var b bytes.Buffer
					if err := s.WriteSafetensors(&b); err != nil || !bytes.Equal(want, b.Bytes()) {
						t.Errorf("bytes differ, error %v", err)
					}
				})
			}
			for range 100 {
				got.CopyFrom(w)
				require.NoError(t, w.dev.SumSquares(make([]float64, 1), []npu.Buffer{w.arena}))
			}
			require.NoError(t, s.WriteSafetensors(f))
			writing.Wait()
			require.NoError(t, f.Close())
			whole, err := os.ReadFile(path)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, whole), "bytes of the file")

			again := NewSnapshot(w, 7)
			f, err = os.Create(path)
			require.NoError(t, err)
			require.NoError(t, again.WriteSafetensors(f), "checksum not computed before")
			require.NoError(t, f.Close())
			require.Equal(t, sum, again.sum)
			whole, err = os.ReadFile(path)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, whole), "after the file was read once")

			memory, files := checkpoint.NewMemory(), checkpoint.Files{}
			defer files.Close()
			for version := int64(1); version < 12; version++ {
				require.NoError(t, w.Init(uint64(version)))
				s := NewSnapshot(w, version)
				require.NoError(t, memory.Fill(func(m *checkpoint.MemoryFile) error { return s.WriteSafetensors(m) }))
				require.True(t, bytes.Equal(published(t, s), memory.Bytes()), "a file in memory")
				if memory.Path() != "" {
					sum, err := got.ReadFile(&files, memory.Path())
					require.NoError(t, err)
					require.Equal(t, w.Checksum(), sum)
					require.Equal(t, sum, got.Checksum())
				}
			}
		})
	}
}

// A published file is rejected if a byte changed or if its halves come from different
// versions.
func TestReadStreamVerifies(t *testing.T) {
	c := shapes()["llama"]
	dev := openCPU(t, 2)
	w, err := NewWeights(dev, c, npu.Weights)
	require.NoError(t, err)
	require.NoError(t, w.Init(3))
	good := published(t, NewSnapshot(w, 7))
	require.NoError(t, w.Init(4))
	newer := published(t, NewSnapshot(w, 8))
	require.Len(t, newer, len(good))
	sum := strings.Index(string(good), checksumKey) + len(checksumKey) + len(`":"`)
	spare, err := NewWeights(dev, c, npu.Weights)
	require.NoError(t, err)
	for _, at := range []int{sum, sum + 15, len(good) - 1, len(good) - 4, len(good) / 2} {
		body := bytes.Clone(good)
		body[at] ^= 1
		_, err = spare.ReadStream(bytes.NewReader(body), -1)
		require.ErrorContains(t, err, "load weights: checksum is ", "byte %d", at)
	}
	path, files := filepath.Join(t.TempDir(), "mixed"), checkpoint.Files{}
	require.NoError(t, os.WriteFile(path, slices.Concat(newer[:len(good)/2], good[len(good)/2:]), 0o600))
	_, err = spare.ReadFile(&files, path)
	require.ErrorContains(t, err, path+": load weights: checksum is ")
	_, err = spare.ReadFile(&files, t.TempDir())
	require.ErrorContains(t, err, "expected a regular file")
	_, err = spare.ReadFile(&files, filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// cutAfter accepts some bytes and then fails.
type cutAfter struct{ left int }

var errCut = errors.New("wire cut")

func (c *cutAfter) Write(p []byte) (int, error) {
	if c.left -= len(p); c.left < 0 {
		return 0, errCut
	}
	return len(p), nil
}

func TestWriteSnapshotCutOff(t *testing.T) {
	c := shapes()["llama"]
	w, err := NewWeights(openCPU(t, 2), c, npu.Weights)
	require.NoError(t, err)
	s := NewSnapshot(w, 1)
	size := len(published(t, s))
	for left := 0; left < size; left += 1 + size/20 {
		require.ErrorIs(t, s.WriteSafetensors(&cutAfter{left}), errCut, "after %d bytes of %d", left, size)
	}
	require.ErrorIs(t, s.WriteSafetensors(&cutAfter{size - 1}), errCut)
	require.NoError(t, s.WriteSafetensors(&cutAfter{size}))
	require.NoError(t, s.WriteSafetensors(io.Discard))
}

// A snapshot is readable while its own device is busy, as when an instance joins
// during a training step.
func TestSnapshotReadWith(t *testing.T) {
	c := *shapes()["llama"]
	c.VocabSize = 4096 // matrices that several threads share
	dev := openCPU(t, 2)
	w, err := NewWeights(dev, &c, npu.Weights)
	require.NoError(t, err)
	require.NoError(t, w.Init(3))
	want := w.Checksum()
	other, err := NewWeights(dev, &c, npu.Weights)
	require.NoError(t, err)
	reader := openCPU(t, 2)
	var reading sync.WaitGroup
	reading.Go(func() {
		for version := range int64(50) {
			s := NewSnapshot(w, version)
			s.ReadWith(reader, new(sync.Mutex))
			if got := s.Checksum(); got != want {
				t.Errorf("checksum is %s, expected %s", got, want)
				return
			}
		}
	})
	for range 50 {
		require.NoError(t, other.Init(3))
		require.Equal(t, want, other.Checksum())
	}
	reading.Wait()
}
