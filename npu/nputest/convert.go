package nputest

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/bf16"
)

// testConvert checks copies between types of values.
func testConvert(t *testing.T, open func(threads int) (npu.Device, error)) {
	for _, threads := range []int{1, 3} {
		d := device(t, open, threads)
		m := newMemory(t, d)
		x := append(roundingEdges(), 0x1p-126, 0x1p-130, 0x1p-149, -0x1p-149)
		for _, n := range []int{1, 15, 16, 17, 5000} {
			for len(x) < n {
				x = append(x, x...)
			}
			y := m.nan(n)
			d.Convert(y, m.put(x[:n]))
			equal(t, "float32 to float32", x[:n], m.get(y))
			if numerics(d) == npu.BF16 {
				checkNumbers(t, m, x[:n])
			}
		}
		m.free()
	}
}

// checkNumbers rounds x to bfloat16 and back, and copies it as such.
func checkNumbers(t *testing.T, m *memory, x []float32) {
	t.Helper()
	numbers := m.nanAs(npu.BFloat16, len(x))
	m.d.Convert(numbers, m.put(x))
	want := round(npu.BF16, x)
	equal(t, "float32 to bfloat16", want, m.get(numbers))
	again, copied := m.nanAs(npu.BFloat16, len(x)), m.nanAs(npu.BFloat16, len(x))
	m.d.Convert(again, numbers)
	m.d.Copy(copied, numbers)
	equal(t, "bfloat16 to bfloat16", want, m.get(again))
	equal(t, "a copy of bfloat16", want, m.get(copied))
	if len(x) > 2 { // a part at an address that no vector is aligned to
		part := numbers.Slice(1, len(x)-1)
		equal(t, "a part of bfloat16", want[1:len(x)-1], m.get(part))
		m.d.Zero(part)
		m.d.Convert(copied.Slice(1, 2), m.put([]float32{7}))
		want[1] = 7
		equal(t, "beside a part", want, m.get(copied))
		for i := range want[1 : len(x)-1] {
			want[1+i] = 0
		}
		equal(t, "zeros in a part", want, m.get(numbers))
	}
}

// testWiden requires every number of bfloat16 to keep its value as float32.
func testWiden(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 1)
	if numerics(d) == npu.FP32 {
		t.Skip("the device has no bfloat16")
	}
	m := newMemory(t, d)
	defer m.free()
	const count = 1 << 16
	words, want := make([]int32, count/2), make([]float32, count)
	for i := range want {
		want[i] = bf16.Number(i).Float()
	}
	for i := range words {
		words[i] = int32(uint32(2*i) | uint32(2*i+1)<<16)
	}
	numbers, wide := m.alloc(npu.BFloat16, count), m.nan(count)
	d.UploadInts(numbers.As(npu.Int32), words)
	d.Convert(wide, numbers)
	got := m.get(wide)
	for i, v := range want {
		if v == v || got[i] == got[i] {
			require.Equal(t, math.Float32bits(v), math.Float32bits(got[i]), "number %#04x", i)
		}
	}
}
