package model

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/zeebo/xxh3"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/host"
)

// PanelLayout is the value of layoutKey in the metadata of a file whose tensors are in panels (see
// host.Shape). A matrix has the shape [panels, columns, npu.MatrixBlock].
const (
	PanelLayout = "panels-32"
	layoutKey   = "easyrl.layout"
)

// maxCols limits the columns of a tensor in SumStream, which holds at least one panel in memory.
const maxCols = 1 << 20

// SumStream reads a stream of any tensors, row-major or packed, to its end. It
// returns the checksum of weights loaded from it. It rejects very wide rows and
// ignores the checksum in the stream's metadata.
func SumStream(s *checkpoint.Stream) (checksum string, err error) {
	packed := s.Metadata()[layoutKey] == PanelLayout
	shape := func(t checkpoint.Tensor) (sh host.Shape) { // zero for a tensor of one panel
		switch n := len(t.Shape); {
		case packed && n == 3:
			sh = host.Shape{Rows: t.Shape[0] * npu.MatrixBlock, Cols: t.Shape[1]}
		case !packed && n == 2:
			sh = host.Shape{Rows: t.Shape[0], Cols: t.Shape[1]}
		}
		return sh
	}
	all := make(host.Sums)
	hashers := make(map[string]*xxh3.Hasher) // for tensors of one panel
	for _, t := range s.Tensors() {
		if shape(t).Cols > maxCols {
			return "", fmt.Errorf("tensor %s has shape %v, expected at most %d columns", t.Name, t.Shape, maxCols)
		}
		if packed && len(t.Shape) == 3 && t.Shape[2] != npu.MatrixBlock {
			return "", fmt.Errorf("tensor %s has shape %v, expected panels of %d rows", t.Name, t.Shape,
				npu.MatrixBlock)
		}
		all[t.Name] = nil // a tensor without values counts too
		if shape(t).Cols == 0 {
			hashers[t.Name] = xxh3.New()
		}
	}
	var buf []float32
	var raw []byte
	err = s.Blocks(func(t checkpoint.Tensor) int {
		if sh := shape(t); sh.Cols > 0 {
			return sh.Block(tensor.BlockValues)
		}
		return tensor.BlockValues
	}, func(t checkpoint.Tensor, _ int, vals []float32) error {
		sh := shape(t)
		if sh.Cols == 0 {
			raw = raw[:0]
			for _, v := range vals {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
			}
			_, err := hashers[t.Name].Write(raw)
			return err
		}
		if !packed {
			buf = sh.Pack(buf, vals)
			vals = buf
		}
		sums := make([]uint64, len(vals)/sh.PanelLen())
		host.CopySum(nil, vals, sh.PanelLen(), sums, 1)
		all[t.Name] = append(all[t.Name], sums...)
		return nil
	})
	if err != nil {
		return "", err
	}
	for name, h := range hashers {
		all[name] = []uint64{h.Sum64()}
	}
	return all.Total(), nil
}
