package checkpoint

import (
	"fmt"
	"io"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const benchElements = 1 << 22

func BenchmarkFloat32s(b *testing.B) {
	for _, d := range []DType{F32, BF16, F16} {
		size := d.bits() / 8 * benchElements
		head := fmt.Sprintf(`{"x":{"dtype":"%s","shape":[%d],"data_offsets":[0,%d]}}`, d, benchElements, size)
		f, err := OpenFile(writeBytes(b, filepath.Join(b.TempDir(), "x"), pack(head, make([]byte, size)...)))
		require.NoError(b, err)
		x, _ := f.Tensor("x")
		dst := make([]float32, benchElements)
		b.Run(string(d), func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				require.NoError(b, x.Float32s(dst))
			}
		})
		require.NoError(b, f.Close())
	}
}

func BenchmarkWriteSafetensors(b *testing.B) {
	values := make([]float32, benchElements)
	b.SetBytes(4 * benchElements)
	for b.Loop() {
		err := WriteSafetensors(io.Discard,
			[]Source{{Name: "x", Shape: []int{benchElements},
				Write: Filled(func(dst []float32) { copy(dst, values) })}}, nil)
		require.NoError(b, err)
	}
}
