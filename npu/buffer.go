package npu

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/easyrl/easyrl/npu/bf16"
)

// DType is the type of a buffer's values.
type DType uint8

// The types of values.
const (
	Float32 DType = iota
	BFloat16
	Int32
	Int64
)

// Size returns the number of bytes of a value.
func (t DType) Size() int { return [...]int{4, 2, 4, 8}[t] }

func (t DType) String() string { return [...]string{"float32", "bfloat16", "int32", "int64"}[t] }

// Space is an address space: the memory of the host or of one device. All devices whose
// kernels run on the host's memory share the space Host.
type Space struct{ name string }

// Host is the memory of the host.
var Host = &Space{name: "host"}

// NewSpace returns the address space of a device with memory of its own.
func NewSpace(name string) *Space { return &Space{name: name} }

func (s *Space) String() string { return s.name }

// Allocation is memory that buffers share. Any goroutine may call Freed, because a forked device
// (Device.Fork) may hold slices of memory that the original device frees.
type Allocation struct {
	space *Space
	freed atomic.Bool
}

// Freed reports whether a device has freed the memory.
func (a *Allocation) Freed() bool { return a.freed.Load() }

// Purpose names the use of an allocation, for memory reports.
type Purpose int

// The purposes of device memory.
const (
	Weights Purpose = iota
	Gradients
	Optimizer
	Activations
	KV
	NumPurposes
)

func (p Purpose) String() string {
	return [...]string{"weights", "gradients", "optimizer", "activations", "kv"}[p]
}

// Buffer is a span of values of one type in an address space. It is a small value and owns
// nothing: slices of a buffer share its memory. To free the memory, pass the buffer that Alloc
// returned to Free of the same Device. Kernels then reject all slices of it. The zero Buffer means
// "none" for a kernel's optional argument.
type Buffer struct {
	addr  uintptr
	n     int
	host  unsafe.Pointer // the first value, if the host can address it
	mem   *Allocation
	dtype DType
}

// HostBuffer wraps memory that kernels of a host device may use. The caller must keep the slice
// alive. Memory for a device of a C library must be outside Go's heap.
func HostBuffer[T float32 | bf16.Number | int32 | int64](mem []T) Buffer {
	if len(mem) == 0 {
		return Buffer{}
	}
	dtype := Float32
	switch any(mem[0]).(type) {
	case bf16.Number:
		dtype = BFloat16
	case int32:
		dtype = Int32
	case int64:
		dtype = Int64
	}
	return AddressBuffer(unsafe.Pointer(&mem[0]), dtype, len(mem))
}

// AddressBuffer wraps n values of the host's memory.
func AddressBuffer(host unsafe.Pointer, dtype DType, n int) Buffer {
	return Buffer{addr: uintptr(host), n: n, host: host, mem: &Allocation{space: Host}, dtype: dtype}
}

// DeviceBuffer returns a buffer of n values at an address of a space that the host
// cannot read.
func DeviceBuffer(addr uintptr, dtype DType, n int, space *Space) Buffer {
	return Buffer{addr: addr, n: n, mem: &Allocation{space: space}, dtype: dtype}
}

// Len returns the number of values in b.
func (b Buffer) Len() int { return b.n }

// Bytes returns the size of b in bytes.
func (b Buffer) Bytes() int64 { return int64(b.n) * int64(b.dtype.Size()) }

// DType returns the type of b's values.
func (b Buffer) DType() DType { return b.dtype }

// Space returns the address space of b, nil for none.
func (b Buffer) Space() *Space {
	if b.mem == nil {
		return nil
	}
	return b.mem.space
}

// Allocation returns the memory that b is part of, nil for none.
func (b Buffer) Allocation() *Allocation { return b.mem }

// Freed reports whether a device has freed the memory of b. Kernels reject such a buffer.
func (b Buffer) Freed() bool { return b.mem != nil && b.mem.Freed() }

// SetFreed marks the memory of b as free. Only implementations of Device.Free and Device.Close call
// it.
func (b Buffer) SetFreed() { b.mem.freed.Store(true) }

// IsNil reports whether b is the zero Buffer.
func (b Buffer) IsNil() bool { return b.n == 0 }

// Addr returns the device address of the first value of b.
func (b Buffer) Addr() uintptr { return b.addr }

// Slice returns values lo to hi of b, hi excluded.
func (b Buffer) Slice(lo, hi int) Buffer {
	if lo < 0 || hi < lo || hi > b.n {
		panic("npu: slice out of range")
	}
	if lo == hi {
		return Buffer{}
	}
	b.n = hi - lo
	b.addr += uintptr(lo * b.dtype.Size())
	if b.host != nil {
		b.host = unsafe.Add(b.host, lo*b.dtype.Size())
	}
	return b
}

// As returns the memory of b as values of another type, which must fill it exactly.
func (b Buffer) As(dtype DType) Buffer {
	if b.Bytes()%int64(dtype.Size()) != 0 {
		panic(fmt.Sprintf("npu: %d bytes as %s", b.Bytes(), dtype))
	}
	b.n, b.dtype = int(b.Bytes())/dtype.Size(), dtype
	return b
}

// Words returns the memory of a buffer of Int64 as Int32, two for each value, for transfers.
func (b Buffer) Words() Buffer {
	if b.n > 0 && b.dtype != Int64 {
		panic(fmt.Sprintf("npu: words of a buffer of %s, expected int64", b.dtype))
	}
	return b.As(Int32)
}

// OnHost reports whether the host can address the memory of b.
func (b Buffer) OnHost() bool { return b.host != nil }

// Float32s returns the memory of b if the host can address it, else nil. It panics if b has
// values of another type. Code above package npu uses Device.Download, which works on every
// device.
func (b Buffer) Float32s() []float32 { return hostValues[float32](b, Float32) }

// BFloat16s is Float32s for values of type BFloat16.
func (b Buffer) BFloat16s() []bf16.Number { return hostValues[bf16.Number](b, BFloat16) }

// Int32s is Float32s for values of type Int32.
func (b Buffer) Int32s() []int32 { return hostValues[int32](b, Int32) }

// Int64s is Float32s for values of type Int64.
func (b Buffer) Int64s() []int64 { return hostValues[int64](b, Int64) }

// ReadInt64s returns the values of b, which are valid after the next wait of dev, and a function that
// writes changed values back. If the host can address b, the values are b's memory, and write does nothing.
func ReadInt64s(dev Device, b Buffer) (values []int64, write func()) {
	if b.Space() == Host {
		return b.Int64s(), func() {}
	}
	values = make([]int64, b.Len())
	halves := unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(values))), 2*len(values))
	dev.DownloadInts(halves, b.Words())
	return values, func() { dev.UploadInts(b.Words(), halves) }
}

func hostValues[T any](b Buffer, dtype DType) []T {
	if b.host == nil {
		return nil
	}
	if b.dtype != dtype {
		panic(fmt.Sprintf("npu: buffer holds %s, expected %s", b.dtype, dtype))
	}
	return unsafe.Slice((*T)(b.host), b.n)
}

// MatrixBlock is the number of rows that a device may interleave in a matrix's layout. Blocks are
// stored one after another, so a matrix can be split at any multiple of MatrixBlock rows, and each
// part has the layout of a matrix of its own.
const MatrixBlock = 32

// Matrix is a weight of shape [Rows, Cols] (out features, in features) in the
// device's own layout, in blocks of MatrixBlock rows. Its buffer has
// Device.MatrixLen(Rows, Cols) values. The layout's padding is zero and kernels keep
// it zero. A matrix's gradient and optimizer moments have the same layout. If the
// host can address the memory, a block is [Cols][MatrixBlock]: for each column, the
// values of the block's rows in order.
type Matrix struct {
	Buffer
	Rows, Cols int
}

// Sums holds the 64-bit fixed-point sums of a tensor's gradient, in the layout of the
// tensor's values. Addition wraps.
type Sums struct {
	Buffer // Int64
	// Mark is one value. It is 0 if every contribution was in range (see FixedPoint). Otherwise it
	// holds the float32 bits of the largest magnitude out of range; NaN, 0x7fc00000, is the largest.
	Mark Buffer
}

// NewSums divides a buffer of Int64 into sums and, after them, their mark.
func NewSums(b Buffer) Sums {
	return Sums{Buffer: b.Slice(0, b.n-1), Mark: b.Slice(b.n-1, b.n)}
}

// Slice returns sums lo to hi, hi excluded, which share the mark.
func (s Sums) Slice(lo, hi int) Sums { return Sums{Buffer: s.Buffer.Slice(lo, hi), Mark: s.Mark} }

// MatrixSums are the sums of a matrix [Rows, Cols], in the device's layout of that
// matrix: Sums.Len is Device.MatrixLen(Rows, Cols).
type MatrixSums struct {
	Sums
	Rows, Cols int
}
