package engine

import (
	"math"
	"math/big"
	"strconv"

	"github.com/easyrl/easyrl/internal/rounded"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// numberFilter finds the filters that return or format numbers.
func (e *executor) numberFilter(name string) filterFunc {
	switch name {
	case "int":
		return e.toInt
	case "float":
		return func(v py.Value, args py.Args) py.Value {
			otherwise := py.Or(args.Take(name, "default?")[0], 0.0)
			e.Check(v)
			if x, ok := py.Float(v); ok {
				return x
			}
			return otherwise
		}
	case "abs":
		return func(v py.Value, args py.Args) py.Value { args.Take(name); return py.Abs(v) }
	case "round":
		return round
	case "filesizeformat":
		return e.fileSize
	}
	return nil
}

// toInt implements the filter int.
func (e *executor) toInt(v py.Value, args py.Args) py.Value {
	got := args.Take("int", "default?", "base?")
	base := py.WantInt(py.Or(got[1], int64(10)))
	e.Check(v)
	if n, ok := py.Int(v, base); ok {
		return n
	}
	if x, ok := py.Float(v); ok && !math.IsInf(x, 0) && !math.IsNaN(x) {
		n, _ := py.Int(x, 10)
		return n
	}
	return py.Or(got[0], int64(0))
}

// maxRoundDigits is the precision above which round returns a float unchanged. CPython has
// such a limit too (323).
const maxRoundDigits = 300

// round implements the filter round. Unlike Python's round, Jinja's returns a float for a
// float of any precision.
func round(v py.Value, args py.Args) py.Value {
	got := args.Take("round", "precision?", "method?")
	precision := py.WantInt(py.Or(got[0], int64(0)))
	method, _ := py.Text(py.Or(got[1], "common"))
	f, ok := py.ToFloat(v)
	if !ok {
		py.Raise(py.KindType, "type %s doesn't define __round__ method", py.TypeName(v))
	}
	scale := rounded.Pow(10, float64(precision))
	n, isInt := py.ToBig(v)
	switch {
	case method == "ceil":
		return math.Ceil(f*scale) / scale
	case method == "floor":
		return math.Floor(f*scale) / scale
	case method != "common":
		py.Raise(py.KindArgument, "method must be common, ceil or floor")
	case isInt && precision >= 0:
		return py.Integer(n)
	case isInt:
		whole, _ := big.NewFloat(math.RoundToEven(f*scale) / scale).Int(nil)
		return py.Integer(whole)
	case precision > maxRoundDigits || math.IsNaN(f) || math.IsInf(f, 0):
		return f
	case precision < 0:
		return math.RoundToEven(f*scale) / scale
	}
	f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', precision, 64), 64) // FormatFloat wrote it
	return f
}

// fileSize formats a number of bytes in decimal or binary units.
func (e *executor) fileSize(v py.Value, args py.Args) py.Value {
	base, prefixes := 1000.0, []string{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"}
	if py.Truth(py.Or(args.Take("filesizeformat", "binary?")[0], false)) {
		base, prefixes = 1024, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}
	}
	e.Check(v)
	x, ok := py.Float(v)
	_, isText := py.Text(v)
	switch {
	case !ok && !isText:
		py.Raise(py.KindType, "float() argument must be a string or a real number, not '%s'", py.TypeName(v))
	case !ok:
		py.Raise(py.KindValue, "could not convert string to float: %s", e.Repr(v))
	case x == 1:
		return "1 Byte"
	case x < base:
		return strconv.FormatFloat(math.Trunc(x), 'f', 0, 64) + " Bytes"
	}
	i := 0
	for x /= base; x >= base && i < len(prefixes)-1; x /= base {
		i++
	}
	return strconv.FormatFloat(x, 'f', 1, 64) + " " + prefixes[i]
}
