package model

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
)

// hidden is a device whose memory the host cannot address.
type hidden struct{ npu.Device }

func (d hidden) Alloc(dtype npu.DType, n int, purpose npu.Purpose) (npu.Buffer, error) {
	b, err := d.Device.Alloc(dtype, n, purpose)
	return npu.DeviceBuffer(b.Addr(), dtype, n, d.Space()), err
}

// openAll opens the CPU device and, if its kernels do not read the buffers' host
// pointers, also a copy with hidden memory.
func openAll(t *testing.T) map[string]npu.Device {
	t.Helper()
	all := map[string]npu.Device{"host": openCPU(t, 2)}
	if d := openCPU(t, 2); d.Info().Name != "cpu/go" {
		all["hidden"] = hidden{d}
	}
	return all
}

func filled(t *testing.T, dev npu.Device, c *Config, seed uint64) *Weights {
	t.Helper()
	w, err := NewWeights(dev, c, npu.Weights)
	require.NoError(t, err)
	require.NoError(t, w.Init(seed))
	return w
}

// packedFile returns the packed file of a snapshot.
func packedFile(t testing.TB, s *Snapshot) (*checkpoint.MemoryFile, []byte) {
	t.Helper()
	m := checkpoint.NewMemory()
	require.NoError(t, m.Fill(s.WritePacked))
	return m, bytes.Clone(m.Bytes())
}

// naive computes the checksum from the definition of Weights.Checksum.
func naive(w *Weights) string {
	var all []byte
	for _, p := range w.Params.ByName() {
		i := slices.IndexFunc(w.Params, func(q tensor.Param) bool { return q.Name == p.Name })
		vals := make([]float32, p.Rows*max(p.Cols, 1))
		w.Read(i, vals)
		at := func(row, col int) (bits uint32) {
			if row < p.Rows {
				bits = math.Float32bits(vals[row*max(p.Cols, 1)+col])
			}
			return bits
		}
		var panel []byte
		end := func() { all, panel = binary.LittleEndian.AppendUint64(all, xxh3.Hash(panel)), nil }
		if p.Cols == 0 {
			for row := range p.Rows {
				panel = binary.LittleEndian.AppendUint32(panel, at(row, 0))
			}
			end()
		}
		for first := 0; first < p.Rows && p.Cols > 0; first += 32 {
			for col := range p.Cols {
				for row := first; row < first+32; row++ {
					panel = binary.LittleEndian.AppendUint32(panel, at(row, col))
				}
			}
			end()
		}
	}
	sum := binary.BigEndian.AppendUint64(nil, xxh3.Hash(all))
	const digits = "0123456789abcdef"
	var text strings.Builder
	for _, b := range sum {
		text.WriteByte(digits[b>>4])
		text.WriteByte(digits[b&15])
	}
	return text.String()
}

// A packed file restores its weights and checksum on any device, from a map or from a
// stream. SumStream needs no weights to return the same checksum.
func TestPacked(t *testing.T) {
	for name, c := range shapes() {
		for from, dev := range openAll(t) {
			t.Run(name+" from "+from, func(t *testing.T) {
				w := filled(t, dev, c, 7)
				sum := naive(w)
				require.Equal(t, sum, w.Checksum())
				s := NewSnapshot(w, 3)
				m, body := packedFile(t, s)
				require.Equal(t, sum, s.sum, "keeps the checksum from the file")
				require.Equal(t, PanelLayout, s.Layout())
				rows := published(t, NewSnapshot(w, 3))
				for _, body := range [][]byte{body, rows} {
					stream, err := checkpoint.NewStream(bytes.NewReader(body), -1)
					require.NoError(t, err)
					require.Equal(t, sum, stream.Metadata()[checksumKey])
					got, err := SumStream(stream)
					require.NoError(t, err)
					require.Equal(t, sum, got)
				}
				var files checkpoint.Files
				defer files.Close()
				for to, dev := range openAll(t) {
					for what, read := range map[string]func(w *Weights) (string, error){
						"stream": func(w *Weights) (string, error) {
							return w.ReadStream(bytes.NewReader(body), int64(len(body)))
						},
						"file": func(w *Weights) (string, error) { return w.ReadFile(&files, m.Path()) },
					} {
						if what == "file" && m.Path() == "" {
							continue
						}
						got := filled(t, dev, c, 8)
						read, err := read(got)
						require.NoError(t, err, "%s to %s", what, to)
						require.Equal(t, sum, read, "%s to %s", what, to)
						require.Equal(t, rows, published(t, NewSnapshot(got, 3)), "%s to %s", what, to)
					}
				}
			})
		}
	}
}

// A packed file that contradicts its header is rejected with a one-line error.
func TestPackedRefuses(t *testing.T) {
	c := *shapes()["llama"]
	c.VocabSize = 29 // three of the 32 rows are padding
	for name, dev := range openAll(t) {
		t.Run(name, func(t *testing.T) {
			w := filled(t, dev, &c, 7)
			_, good := packedFile(t, NewSnapshot(w, 1))
			_, newer := packedFile(t, NewSnapshot(filled(t, dev, &c, 8), 1))
			require.Len(t, newer, len(good))
			more := c
			more.VocabSize = 30
			_, other := packedFile(t, NewSnapshot(filled(t, dev, &more, 7), 1))
			head := 8 + int(binary.LittleEndian.Uint64(good))
			stream, err := checkpoint.NewStream(bytes.NewReader(good), -1)
			require.NoError(t, err)
			require.Equal(t, "lm_head.weight", stream.Tensors()[0].Name)
			set := func(row, col int, v float32) []byte { // in the output projection
				b := bytes.Clone(good)
				binary.LittleEndian.PutUint32(b[head+4*(col*32+row):], math.Float32bits(v))
				return b
			}
			text := func(old, new string) []byte {
				require.Len(t, new, len(old))
				return bytes.Replace(good, []byte(old), []byte(new), 1)
			}
			norm := bytes.Clone(good) // the last tensor, a vector
			binary.LittleEndian.PutUint32(norm[len(norm)-8:], math.Float32bits(float32(math.Inf(1))))
			for what, row := range map[string]struct {
				body []byte
				want string
			}{
				"a value": {set(5, 3, 0.25), "load weights: checksum is "},
				"the last byte": {append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1),
					"load weights: checksum is "},
				"two versions": {slices.Concat(newer[:len(good)/2], good[len(good)/2:]),
					"load weights: checksum is "},
				"short":  {good[:len(good)-3], "truncated"},
				"longer": {append(bytes.Clone(good), 0), "bytes of data, expected the tensors'"},
				"another layout": {text(PanelLayout, "panels-16"),
					`layout is "panels-16", expected row-major or panels-32`},
				"another model": {other, "load weights: shapes are "},
				"other shapes":  {text("[1,20,32]", "[20,1,32]"), "has shape "},
				"padding": {set(29, 3, 1),
					"tensor lm_head.weight: padding after the last row is 1, expected 0"},
				"NaN": {set(28, 19, float32(math.NaN())),
					"tensor lm_head.weight: value 579 is NaN: not finite"},
				"infinite vector": {norm, "is +Inf: not finite"},
				"NaN in padding": {set(31, 19, float32(math.NaN())),
					"tensor lm_head.weight: padding after the last row is NaN, expected 0"},
			} {
				require.NotEqual(t, good, row.body, what)
				spare := filled(t, dev, &c, 9)
				_, err := spare.ReadStream(bytes.NewReader(row.body), int64(len(row.body)))
				require.ErrorContains(t, err, row.want, what)
				require.NotContains(t, err.Error(), "\n", what)
			}
		})
	}
}

// A file in memory that is overwritten during a read is rejected. The next version is
// read from it without error.
func TestPackedOverwrittenDuringRead(t *testing.T) {
	c := shapes()["llama"]
	dev := openCPU(t, 2)
	m, _ := packedFile(t, NewSnapshot(filled(t, dev, c, 1), 1))
	if m.Path() == "" {
		t.Skip("other processes cannot open it here")
	}
	var files checkpoint.Files
	defer files.Close()
	spare := filled(t, dev, c, 2)
	err := files.Read(m.Path(), func(s *checkpoint.Stream) error {
		require.NoError(t, m.Fill(NewSnapshot(filled(t, dev, c, 3), 2).WritePacked))
		_, err := spare.readStream(s)
		require.ErrorContains(t, err, "load weights: checksum is ")
		return nil
	})
	require.ErrorContains(t, err, m.Path()+": was rewritten while being read")
	sum, err := spare.ReadFile(&files, m.Path())
	require.NoError(t, err)
	require.Equal(t, filled(t, dev, c, 3).Checksum(), sum)
}
