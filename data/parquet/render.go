package parquet

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"time"
	"unicode/utf8"
)

// value is one value of a column: a number's bits, or bytes that are valid until
// the next value.
type value struct {
	bits  uint64
	bytes []byte
}

// renderer appends a value as JSON.
type renderer func(dst []byte, v value) ([]byte, error)

// newRenderer returns the renderer of a column.
func newRenderer(e *element) renderer {
	switch e.kind {
	case kindBoolean:
		return func(dst []byte, v value) ([]byte, error) { return strconv.AppendBool(dst, v.bits != 0), nil }
	case kindInt32, kindInt64:
		return integerRenderer(e)
	case kindInt96:
		return renderInt96
	case kindFloat:
		return func(dst []byte, v value) ([]byte, error) {
			return appendFloat(dst, float64(math.Float32frombits(uint32(v.bits))), 32), nil
		}
	case kindDouble:
		return func(dst []byte, v value) ([]byte, error) {
			return appendFloat(dst, math.Float64frombits(v.bits), 64), nil
		}
	}
	return bytesRenderer(e)
}

// integerRenderer returns the renderer of an integer column: a decimal, a date, a time, a
// timestamp or an integer.
func integerRenderer(e *element) renderer {
	nanos := int64(0) // nanoseconds per unit
	switch {
	case e.unit >= 1 && e.unit <= 3:
		nanos = []int64{1e6, 1e3, 1}[e.unit-1]
	case e.converted == convertedTimeMS || e.converted == convertedTimeMilli:
		nanos = 1e6
	case e.converted == convertedTimeUS || e.converted == convertedTimeMicro:
		nanos = 1e3
	}
	none := e.logical == 0 // only then, the older converted type counts
	switch {
	case e.logical == logicalDecimal || none && e.converted == convertedDecimal:
		return func(dst []byte, v value) ([]byte, error) {
			return appendDecimal(dst, big.NewInt(int64(v.bits)), e.scale)
		}
	case e.logical == logicalDate || none && e.converted == convertedDate:
		return func(dst []byte, v value) ([]byte, error) {
			return appendQuoted(dst, time.Unix(86400*int64(v.bits), 0).UTC().Format(time.DateOnly)), nil
		}
	case nanos != 0 && (e.logical == logicalTime || none &&
		(e.converted == convertedTimeMS || e.converted == convertedTimeUS)):
		return func(dst []byte, v value) ([]byte, error) {
			return appendQuoted(dst, instant(int64(v.bits), nanos).Format("15:04:05.999999999")), nil
		}
	case nanos != 0:
		layout := "2006-01-02T15:04:05.999999999"
		if e.utc || none {
			layout += "Z"
		}
		return func(dst []byte, v value) ([]byte, error) {
			return appendQuoted(dst, instant(int64(v.bits), nanos).Format(layout)), nil
		}
	case e.logical == logicalInteger && e.unsigned || none && e.converted >= convertedUint8 &&
		e.converted <= convertedUint64:
		if e.kind == kindInt32 {
			return func(dst []byte, v value) ([]byte, error) {
				return strconv.AppendUint(dst, uint64(uint32(v.bits)), 10), nil
			}
		}
		return func(dst []byte, v value) ([]byte, error) { return strconv.AppendUint(dst, v.bits, 10), nil }
	}
	return func(dst []byte, v value) ([]byte, error) { return strconv.AppendInt(dst, int64(v.bits), 10), nil }
}

// instant returns the time that is count units of nanos nanoseconds after the
// Unix epoch.
func instant(count, nanos int64) time.Time {
	perSecond := int64(time.Second) / nanos
	seconds, rest := count/perSecond, count%perSecond
	return time.Unix(seconds, rest*nanos).UTC()
}

// renderInt96 renders the timestamps of older writers: nanoseconds of the day,
// then the Julian day.
func renderInt96(dst []byte, v value) ([]byte, error) {
	const unixEpoch = 2440588 // Julian day of 1970-01-01
	day := int64(binary.LittleEndian.Uint32(v.bytes[8:])) - unixEpoch
	nanos := int64(binary.LittleEndian.Uint64(v.bytes))
	return appendQuoted(dst, time.Unix(86400*day+nanos/1e9, nanos%1e9).UTC().Format("2006-01-02T15:04:05.999999999")),
		nil
}

// appendFloat appends the shortest number that parses back to x, a float of the given bits.
// JSON has no infinities or NaN: infinities become strings, NaN becomes null.
func appendFloat(dst []byte, x float64, bits int) []byte {
	switch {
	case math.IsNaN(x):
		return append(dst, "null"...)
	case math.IsInf(x, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(x, -1):
		return append(dst, `"-Infinity"`...)
	case x == math.Trunc(x) && math.Abs(x) < 1e15:
		return strconv.AppendFloat(dst, x, 'f', 1, bits)
	}
	return strconv.AppendFloat(dst, x, 'g', -1, bits)
}

// maxScale exceeds the scale of any decimal in use.
const maxScale = 1000

// appendDecimal appends x · 10^-scale.
func appendDecimal(dst []byte, x *big.Int, scale int32) ([]byte, error) {
	if scale < 0 || scale > maxScale {
		return nil, fmt.Errorf("decimal with scale %d, expected 0 to %d", scale, maxScale)
	}
	if x.Sign() < 0 {
		dst = append(dst, '-')
	}
	digits := new(big.Int).Abs(x).String()
	for len(digits) <= int(scale) {
		digits = fmt.Sprintf("%0*s", scale+1, digits)
	}
	dst = append(dst, digits[:len(digits)-int(scale)]...)
	if scale > 0 {
		dst = append(append(dst, '.'), digits[len(digits)-int(scale):]...)
	}
	return dst, nil
}

// bytesRenderer returns the renderer of a column of byte arrays.
func bytesRenderer(e *element) renderer {
	none := e.logical == 0
	switch {
	case e.logical == logicalDecimal || none && e.converted == convertedDecimal:
		return func(dst []byte, v value) ([]byte, error) { return renderDecimal(dst, v.bytes, e.scale) }
	case e.logical == logicalFloat16 && e.length == 2:
		return func(dst []byte, v value) ([]byte, error) {
			return appendFloat(dst, half(binary.LittleEndian.Uint16(v.bytes)), 32), nil
		}
	case e.logical == logicalUUID && e.length == 16:
		return renderUUID
	case e.logical == logicalJSON || none && e.converted == convertedJSON:
		return func(dst []byte, v value) ([]byte, error) {
			if !json.Valid(v.bytes) {
				return nil, fmt.Errorf("JSON column holds invalid JSON")
			}
			return append(dst, v.bytes...), nil
		}
	case e.logical == logicalString || e.logical == logicalEnum ||
		none && (e.converted == convertedUTF8 || e.converted == convertedEnum):
		return func(dst []byte, v value) ([]byte, error) {
			if !utf8.Valid(v.bytes) {
				return nil, fmt.Errorf("text is not valid UTF-8")
			}
			return appendString(dst, v.bytes), nil
		}
	}
	return func(dst []byte, v value) ([]byte, error) {
		if utf8.Valid(v.bytes) {
			return appendString(dst, v.bytes), nil
		}
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, v.bytes)
		return append(dst, '"'), nil
	}
}

// renderDecimal renders a big-endian two's complement number.
func renderDecimal(dst, b []byte, scale int32) ([]byte, error) {
	if len(b) > 64 {
		return nil, fmt.Errorf("decimal of %d bytes, expected at most 64", len(b))
	}
	x := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0] >= 0x80 {
		x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return appendDecimal(dst, x, scale)
}

// renderUUID renders 16 bytes in the form 00000000-0000-0000-0000-000000000000.
func renderUUID(dst []byte, v value) ([]byte, error) {
	dst = append(dst, '"')
	for i, part := range [][]byte{v.bytes[:4], v.bytes[4:6], v.bytes[6:8], v.bytes[8:10], v.bytes[10:]} {
		if i > 0 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, part)
	}
	return append(dst, '"'), nil
}

// half returns the value of an IEEE binary16 number.
func half(b uint16) float64 {
	exponent, fraction := int(b>>10&0x1f), float64(b&0x3ff)
	var x float64
	switch exponent {
	case 0:
		x = math.Ldexp(fraction, -24)
	case 31:
		if x = math.Inf(1); fraction != 0 {
			x = math.NaN()
		}
	default:
		x = math.Ldexp(1024+fraction, exponent-25)
	}
	if b>>15 != 0 {
		x = -x
	}
	return x
}

// appendQuoted appends text that needs no escapes as a JSON string.
func appendQuoted(dst []byte, plain string) []byte {
	return append(append(append(dst, '"'), plain...), '"')
}

// appendString appends valid UTF-8 as a JSON string.
func appendString(dst, text []byte) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	done := 0
	for i, b := range text {
		if b >= ' ' && b != '"' && b != '\\' {
			continue
		}
		dst = append(dst, text[done:i]...)
		done = i + 1
		switch b {
		case '"', '\\':
			dst = append(dst, '\\', b)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', digits[b>>4], digits[b&0xf])
		}
	}
	return append(append(dst, text[done:]...), '"')
}
