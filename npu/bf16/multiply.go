package bf16

import "math"

// lanes is the number of columns that Multiply computes at a time.
const lanes = 4

// operand is a factor of a product, prepared for Multiply.
type operand struct {
	value    float64
	exponent int
}

// The exponent of a product is the sum of those of its factors. With a factor that is infinite or NaN it is at
// least finite, otherwise with a factor of 0 it is below none.
const (
	zeroExponent     = -1 << 16
	infiniteExponent = 1 << 20
	none             = -1 << 15
	finite           = 1 << 15
)

// Rows are the rows of the left factor of a product, prepared for Multiply.
type Rows struct {
	rows, steps int
	operands    []operand // [rows, steps, Step]
}

// Columns are the columns of the right factor of a product, prepared for Multiply.
type Columns struct {
	columns, steps int
	operands       [][lanes]operand // [groups of lanes columns, steps, Step]
}

// PackRows prepares rows of terms terms. Term k of row i is values[i·rowStride + k·termStride], a number.
func PackRows(values []float32, rows, terms, rowStride, termStride int) Rows {
	steps := (terms + Step - 1) / Step
	r := Rows{rows, steps, make([]operand, rows*steps*Step)}
	for i := range rows {
		row := r.operands[i*steps*Step:][:steps*Step]
		for k := range row {
			row[k] = operand{exponent: zeroExponent}
			if k < terms {
				row[k] = prepare(values[i*rowStride+k*termStride])
			}
		}
	}
	return r
}

// PackColumns prepares columns of terms terms. Term k of column j is values[j·columnStride + k·termStride], a
// number.
func PackColumns(values []float32, columns, terms, columnStride, termStride int) Columns {
	steps, groups := (terms+Step-1)/Step, (columns+lanes-1)/lanes
	c := Columns{columns, steps, make([][lanes]operand, groups*steps*Step)}
	for i := range c.operands {
		group, k := i/(steps*Step), i%(steps*Step)
		for l := range lanes {
			c.operands[i][l] = operand{exponent: zeroExponent}
			if j := group*lanes + l; j < columns && k < terms {
				c.operands[i][l] = prepare(values[j*columnStride+k*termStride])
			}
		}
	}
	return c
}

func prepare(x float32) operand {
	switch {
	case x == 0:
		return operand{0, zeroExponent}
	case !isFinite(x):
		return operand{float64(x), infiniteExponent}
	}
	return operand{float64(x), exponentOf(x)}
}

// exponentOf returns the exponent of a finite x. That of 0 and of subnormal numbers is the least.
func exponentOf(x float32) int { return max(int(math.Float32bits(x)>>23&0xff), 1) - 127 }

// Multiply adds the products of rows and columns to y: y[i·stride + j] continues as the chain over Dot of row
// i and column j, in steps of ascending terms. Both factors have the same number of terms.
func Multiply(y []float32, stride int, rows Rows, columns Columns) {
	if rows.steps != columns.steps {
		panic("bf16: Multiply: rows and columns differ in terms")
	}
	group := columns.steps * Step
	for j := 0; j < columns.columns; j += lanes {
		b := columns.operands[j/lanes*group:][:group]
		for i := range rows.rows {
			a := rows.operands[i*rows.steps*Step:][:rows.steps*Step]
			to := y[i*stride+j:][:min(lanes, columns.columns-j)]
			var c [lanes]float32
			copy(c[:], to)
			for s := range rows.steps {
				step(&c, (*[Step]operand)(a[s*Step:]), (*[Step][lanes]operand)(b[s*Step:]))
			}
			copy(to, c[:])
		}
	}
}

// step sets c[j] to Dot(c[j], a, column j of b).
//
// Products and their multiples by powers of two are exact in float64, and the conversion to int64 truncates.
// The sum has at most 32 bits. With the bits beyond the 24th set to 0 it is a float32 times a power of two.
func step(c *[lanes]float32, a *[Step]operand, b *[Step][lanes]operand) {
	t0, t1, t2, t3 := none, none, none, none
	for k := range a {
		e, column := a[k].exponent, &b[k]
		t0 = max(t0, e+column[0].exponent)
		t1 = max(t1, e+column[1].exponent)
		t2 = max(t2, e+column[2].exponent)
		t3 = max(t3, e+column[3].exponent)
	}
	top := [lanes]int{t0, t1, t2, t3}
	var scale [lanes]float64
	var start [lanes]int64
	easy := true
	for j, x := range c {
		switch {
		case x != 0:
			top[j] = max(top[j], exponentOf(x))
		case top[j] == none:
			top[j] = 0 // all terms are 0
		}
		easy = easy && top[j] >= minNormal && top[j] < finite && isFinite(x)
		scale[j] = power(fraction - top[j])
		start[j] = int64(float64(x) * scale[j])
	}
	if !easy {
		stepEach(c, a, b)
		return
	}
	s0, s1, s2, s3 := start[0], start[1], start[2], start[3]
	x0, x1, x2, x3 := scale[0], scale[1], scale[2], scale[3]
	for k := range a {
		x, column := a[k].value, &b[k]
		s0 += int64(x * column[0].value * x0)
		s1 += int64(x * column[1].value * x1)
		s2 += int64(x * column[2].value * x2)
		s3 += int64(x * column[3].value * x3)
	}
	for j, sum := range [lanes]int64{s0, s1, s2, s3} {
		const tail = 1<<(52-23) - 1
		value := math.Float64frombits(math.Float64bits(float64(sum)) &^ tail)
		c[j] = float32(value * power(top[j]-fraction))
	}
}

// minNormal is the least exponent for alignment at which a unit of the sum is a normal float32.
const minNormal = -126 + fraction

// power returns 2^n for n of a normal float64.
func power(n int) float64 { return math.Float64frombits(uint64(n+1023) << 52) }

// stepEach is step for all operands, column by column.
func stepEach(c *[lanes]float32, a *[Step]operand, b *[Step][lanes]operand) {
	for j, start := range c {
		var x, y [Step]Number
		zero := true
		for k := range a {
			f := b[k][j]
			x[k], y[k] = numberOf(a[k].value), numberOf(f.value)
			zero = zero && a[k].exponent+f.exponent <= none
		}
		if zero {
			c[j] = start + 0 // -0 becomes +0
		} else {
			c[j] = Dot(start, &x, &y)
		}
	}
}

func numberOf(x float64) Number { return Number(math.Float32bits(float32(x)) >> 16) }
