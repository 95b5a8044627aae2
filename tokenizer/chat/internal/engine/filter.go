package engine

import (
	"math"
	"math/big"
	"strconv"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/pyjson"
)

type filterFunc func(v py.Value, args py.Args) py.Value

// filter is the filter of a name, nil if there is none.
func (e *engine) filter(name string) filterFunc {
	for _, find := range []func(string) filterFunc{e.textFilter, e.listFilter, e.pickFilter, e.lazyFilter, e.webFilter} {
		if f := find(name); f != nil {
			return f
		}
	}
	switch name {
	case "default", "d":
		return func(v py.Value, args py.Args) py.Value {
			got := args.Take("default", "default_value?", "boolean?")
			_, undefined := v.(*py.Undefined)
			if undefined || py.Truth(py.Or(got[1], false)) && !py.Truth(v) {
				return py.Or(got[0], "")
			}
			return v
		}
	case "int":
		return e.toInt
	case "float":
		return func(v py.Value, args py.Args) py.Value {
			otherwise := py.Or(args.Take(name, "default?")[0], 0.0)
			e.Check(v)
			if f, ok := py.Float(v); ok {
				return f
			}
			return otherwise
		}
	case "abs":
		return func(v py.Value, args py.Args) py.Value { args.Take(name); return py.Abs(v) }
	case "round":
		return e.round
	case "attr":
		return func(v py.Value, args py.Args) py.Value {
			return e.OwnAttr(v, py.WantText(name, args.Take(name, "name")[0]))
		}
	case "tojson":
		return e.toJSON
	case "filesizeformat":
		return e.fileSize
	}
	return nil
}

func (e *engine) toInt(v py.Value, args py.Args) py.Value {
	got := args.Take("int", "default?", "base?")
	base := py.WantInt(py.Or(got[1], int64(10)))
	e.Check(v)
	if n, ok := py.Int(v, base); ok {
		return n
	}
	if f, ok := py.Float(v); ok && !math.IsInf(f, 0) && !math.IsNaN(f) {
		n, _ := py.Int(f, 10)
		return n
	}
	return py.Or(got[0], int64(0))
}

func (e *engine) round(v py.Value, args py.Args) py.Value {
	got := args.Take("round", "precision?", "method?")
	precision := py.WantInt(py.Or(got[0], int64(0)))
	method, _ := py.Text(py.Or(got[1], "common"))
	f, ok := py.ToFloat(v)
	if !ok {
		py.Raise(py.KindType, "type %s doesn't define __round__ method", py.TypeName(v))
	}
	scale := math.Pow(10, float64(precision))
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
	case precision > 300 || math.IsNaN(f) || math.IsInf(f, 0):
		return f
	case precision < 0:
		return math.RoundToEven(f*scale) / scale
	}
	f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', precision, 64), 64) // FormatFloat wrote it
	return f
}

// toJSON is json.dumps with the defaults of Hugging Face.
func (e *engine) toJSON(v py.Value, args py.Args) py.Value {
	got := args.Take("tojson", "ensure_ascii?", "indent?", "separators?", "sort_keys?")
	style := pyjson.Style{
		ASCII:    py.Truth(py.Or(got[0], false)),
		SortKeys: py.Truth(py.Or(got[3], false)),
		Item:     ", ",
		Key:      ": ",
	}
	if indent := py.Or(got[1], nil); indent != nil {
		style.Indented, style.Item = true, ","
		if text, ok := py.Text(indent); ok {
			style.Indent = text
		} else {
			style.Indent = e.Pad("", py.WantInt(indent), " ", 0)
		}
	}
	if separators := py.Or(got[2], nil); separators != nil {
		pair := e.Items(separators)
		if len(pair) != 2 {
			py.Raise(py.KindValue, "separators of %d strings, expected 2", len(pair))
		}
		style.Item, style.Key = py.WantText("tojson", pair[0]), py.WantText("tojson", pair[1])
	}
	return pyjson.Encode(e.Machine.Machine, v, style)
}

func (e *engine) fileSize(v py.Value, args py.Args) py.Value {
	base, prefixes := 1000.0, []string{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"}
	if py.Truth(py.Or(args.Take("filesizeformat", "binary?")[0], false)) {
		base, prefixes = 1024, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}
	}
	e.Check(v)
	f, ok := py.Float(v)
	_, isText := py.Text(v)
	switch {
	case !ok && !isText:
		py.Raise(py.KindType, "float() argument must be a string or a real number, not '%s'", py.TypeName(v))
	case !ok:
		py.Raise(py.KindValue, "could not convert string to float: %s", e.Repr(v))
	case f == 1:
		return "1 Byte"
	case f < base:
		return strconv.FormatFloat(math.Trunc(f), 'f', 0, 64) + " Bytes"
	}
	i := 0
	for f /= base; f >= base && i < len(prefixes)-1; f /= base {
		i++
	}
	return strconv.FormatFloat(f, 'f', 1, 64) + " " + prefixes[i]
}
