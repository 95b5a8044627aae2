package checkpoint

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// write fills m with one tensor of n values starting at base.
func write(t *testing.T, m *MemoryFile, base float32, n int) []byte {
	t.Helper()
	sources := []Source{constant("a", base, n)}
	require.NoError(t, m.Fill(func(m *MemoryFile) error { return WriteSafetensors(m, sources, nil) }))
	var want bytes.Buffer
	require.NoError(t, WriteSafetensors(&want, sources, nil))
	return want.Bytes()
}

// A MemoryFile holds the last content written, longer or shorter than before, for
// this and other processes.
func TestMemory(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	for i, n := range []int{3, 1000, 3, 1 << 20, 5, 3 << 20} {
		want := write(t, m, float32(i), n)
		require.True(t, bytes.Equal(want, m.Bytes()), "%d values", n)
		if m.Path() == "" {
			continue
		}
		got, err := os.ReadFile(m.Path())
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "%d values", n)
		require.Error(t, os.Truncate(m.Path(), 8), "mappings rely on its size")
	}
}

// An incomplete file is an error.
func TestMemoryFails(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	write(t, m, 1, 1000)
	lost := errors.New("device lost")
	require.ErrorIs(t, m.Fill(func(m *MemoryFile) error { return errors.Join(m.Begin(len(m.Bytes())), lost) }), lost)
	_, err := NewStream(bytes.NewReader(m.Bytes()), -1)
	require.Error(t, err)
	require.ErrorIs(t, m.Fill(func(m *MemoryFile) error {
		_, err := m.Write(make([]byte, 10))
		return err
	}), nil)
	require.ErrorIs(t, m.Fill(func(m *MemoryFile) error { return m.Begin(100) }), io.ErrUnexpectedEOF)
	require.ErrorIs(t, m.Fill(func(m *MemoryFile) error {
		_, err := m.Write(make([]byte, 10))
		return errors.Join(m.Begin(100), err)
	}), io.ErrUnexpectedEOF)
	require.NoError(t, m.Begin(16))
	_, err = m.Write(make([]byte, 17))
	require.ErrorIs(t, err, io.ErrShortWrite)
	_, err = m.Room(1)
	require.ErrorIs(t, err, io.ErrShortWrite)
}

// A file in memory that is rewritten while it is read is rejected, at any reading
// position.
func TestReadRewrittenFile(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	write(t, m, 1, 100)
	if m.Path() == "" {
		t.Skip("other processes cannot open it here")
	}
	var files Files
	defer files.Close()
	for again := range 4 {
		blocks := 0
		err := files.Read(m.Path(), func(s *Stream) error {
			return s.Blocks(func(Tensor) int { return 40 }, func(_ Tensor, first int, vals []float32) error {
				if blocks == again {
					require.NoError(t, m.Begin(len(m.Bytes())))
				}
				blocks++
				return nil
			})
		})
		if again == 3 {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, m.Path()+": was rewritten while being read")
		}
		require.Equal(t, 3, blocks)
		write(t, m, 1, 100)
	}
}

// A rewritten file is rejected too if its values must be converted. Unchanged, it reads correctly.
func TestReadConvertedFile(t *testing.T) {
	t.Parallel()
	m, files := NewMemory(), Files{}
	defer files.Close()
	require.NoError(t, m.Fill(func(m *MemoryFile) error {
		_, err := m.Write(pack(`{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}`, 0x80, 0x3f, 0, 0x40))
		return err
	}))
	if m.Path() == "" {
		t.Skip("other processes cannot open it here")
	}
	read := func(meanwhile func() error) error {
		return files.Read(m.Path(), func(s *Stream) error {
			return s.Blocks(func(Tensor) int { return 2 }, func(_ Tensor, _ int, vals []float32) error {
				require.Equal(t, []float32{1, 2}, vals)
				return meanwhile()
			})
		})
	}
	require.NoError(t, read(func() error { return nil }))
	require.ErrorContains(t, read(func() error { return m.Begin(len(m.Bytes())) }),
		m.Path()+": was rewritten while being read")
}
