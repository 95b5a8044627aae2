package filter

import (
	"github.com/easyrl/easyrl/tokenizer/chat/internal/method"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// values implements the filters of any value.
type values struct{ *method.Machine }

func (f values) find(name string) Func {
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
	case "attr":
		return func(v py.Value, args py.Args) py.Value {
			return f.OwnAttr(v, py.WantText(name, args.Take(name, "name")[0]))
		}
	case "tojson":
		return f.toJSON
	}
	return nil
}

// toJSON implements json.dumps with Hugging Face's defaults.
func (f values) toJSON(v py.Value, args py.Args) py.Value {
	got := args.Take("tojson", "ensure_ascii?", "indent?", "separators?", "sort_keys?")
	style := py.JSONStyle{
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
			style.Indent = f.Pad("", py.WantInt(indent), " ", 0)
		}
	}
	if separators := py.Or(got[2], nil); separators != nil {
		pair := f.Items(separators)
		if len(pair) != 2 {
			py.Raise(py.KindValue, "separators has %d strings, expected 2", len(pair))
		}
		style.Item, style.Key = py.WantText("tojson", pair[0]), py.WantText("tojson", pair[1])
	}
	return f.EncodeJSON(v, style)
}
