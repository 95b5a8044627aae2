package cpu

import (
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/bf16"
)

// chains is what the numerics differ in: how chains add (see package npu), powers of 2, and rounding.
type chains interface {
	// factor prepares the right factor of a product. Its rows are terms of chains.
	factor(b grid) factor
	// round returns x as a value of the type of activations.
	round(x float32) float32
	// exp2 returns 2^x.
	exp2(x float32) float32
	// pow2 returns 2^n for a whole n from -2^21 to 0.
	pow2(n float32) float32
}

// factor is the right factor b of a product.
type factor interface {
	// multiply continues the chains y [rows of a, columns of b], whose rows are stride apart, with the terms of a·b.
	// In BF16 steps start at the first term. a has as many columns as b has rows.
	multiply(y []float32, stride int, a grid)
}

// grid is a matrix in memory: value [i, j] is values[i·down + j·right].
type grid struct {
	values      []float32
	rows, cols  int
	down, right int
}

// rowMajor returns a grid whose rows follow each other.
func rowMajor(values []float32, rows, cols int) grid { return grid{values, rows, cols, cols, 1} }

func (g grid) transposed() grid { return grid{g.values, g.cols, g.rows, g.right, g.down} }

// chainsOf returns the chains of the numerics.
func chainsOf(numerics npu.Numerics) chains {
	if numerics == npu.BF16 {
		return bf16Chains{}
	}
	return fp32Chains{}
}

// fp32Chains are chains of fused multiply-adds.
type fp32Chains struct{}

func (fp32Chains) round(x float32) float32 { return x }
func (fp32Chains) exp2(x float32) float32  { return exp2of(x) }
func (fp32Chains) pow2(n float32) float32  { return pow2(n, exp2Min) }

func (fp32Chains) factor(b grid) factor {
	if b.right == 1 {
		return fp32Factor(b)
	}
	values := make([]float32, 0, b.rows*b.cols)
	for i := range b.rows {
		for j := range b.cols {
			values = append(values, b.values[i*b.down+j*b.right])
		}
	}
	return fp32Factor(rowMajor(values, b.rows, b.cols))
}

// fp32Factor is a grid whose values of a row follow each other.
type fp32Factor grid

func (b fp32Factor) multiply(y []float32, stride int, a grid) {
	for i := range a.rows {
		acc := y[i*stride:][:b.cols]
		for k := range b.rows {
			chain(acc, a.values[i*a.down+k*a.right], b.values[k*b.down:])
		}
	}
}

// chain adds one term to each lane's chain: acc[l] = fma(a, b[l], acc[l]). b has at least as many
// values as acc.
func chain(acc []float32, a float32, b []float32) {
	b = b[:len(acc)]
	for l := range acc {
		acc[l] = fma32(a, b[l], acc[l])
	}
}

// bf16Chains are chains of tensor cores.
type bf16Chains struct{}

func (bf16Chains) round(x float32) float32 { return bf16.Round(x).Float() }
func (bf16Chains) exp2(x float32) float32  { return exp2BF16(x) }
func (bf16Chains) pow2(n float32) float32  { return pow2(n, exp2MinBF16) }

func (bf16Chains) factor(b grid) factor {
	return bf16Factor(bf16.PackColumns(b.values, b.cols, b.rows, b.right, b.down))
}

type bf16Factor bf16.Columns

func (b bf16Factor) multiply(y []float32, stride int, a grid) {
	bf16.Multiply(y, stride, bf16.PackRows(a.values, a.rows, a.cols, a.down, a.right), bf16.Columns(b))
}
