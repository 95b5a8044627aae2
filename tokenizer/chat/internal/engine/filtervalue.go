package engine

import (
	"html"
	"net/url"
	"strings"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// valueFilter finds the filters for values of any type.
func (e *executor) valueFilter(name string) filterFunc {
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
			return e.ownAttr(v, py.WantText(name, args.Take(name, "name")[0]))
		}
	case "tojson":
		return e.toJSON
	}
	return nil
}

// toJSON implements json.dumps with Hugging Face's defaults.
func (e *executor) toJSON(v py.Value, args py.Args) py.Value {
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
			style.Indent = e.Pad("", py.WantInt(indent), " ", py.Right)
		}
	}
	if separators := py.Or(got[2], nil); separators != nil {
		pair := e.Items(separators)
		if len(pair) != 2 {
			py.Raise(py.KindValue, "separators has %d strings, expected 2", len(pair))
		}
		style.Item, style.Key = py.WantText("tojson", pair[0]), py.WantText("tojson", pair[1])
	}
	return e.EncodeJSON(v, style)
}

// webFilter finds the filters for HTML and URLs.
func (e *executor) webFilter(name string) filterFunc {
	switch name {
	case "safe":
		return func(v py.Value, args py.Args) py.Value { args.Take(name); return py.Markup(e.Str(v)) }
	case "e", "escape":
		return func(v py.Value, args py.Args) py.Value {
			args.Take(name)
			return py.Markup(e.Escape(v))
		}
	case "forceescape": // escapes Markup too
		return func(v py.Value, args py.Args) py.Value {
			args.Take(name)
			return py.Markup(e.Escape(e.Str(v)))
		}
	case "striptags":
		return func(v py.Value, args py.Args) py.Value {
			args.Take(name)
			s := e.Str(v)
			e.Charge(2 * len(s))
			s = dropBetween(dropBetween(s, "<!--", "-->"), "<", ">")
			return html.UnescapeString(strings.Join(strings.FieldsFunc(s, py.IsSpace), " "))
		}
	case "urlencode":
		return func(v py.Value, args py.Args) py.Value {
			args.Take(name)
			return e.urlEncode(v)
		}
	}
	return nil
}

// dropBetween removes begin, end and the text between them.
func dropBetween(s, begin, end string) string {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(s, begin)
		_, after, closed := strings.Cut(rest, end)
		if !ok || !closed {
			return b.String() + s
		}
		b.WriteString(before)
		s = after
	}
}

// urlEncode quotes a string for a URL's path, or the pairs of a dict or of an iterable for
// a query.
func (e *executor) urlEncode(v py.Value) py.Value {
	quote := func(v py.Value, query bool) string {
		s := e.Str(v)
		e.Charge(3 * len(s))
		s = strings.ReplaceAll(url.QueryEscape(s), "%7E", "~")
		if !query {
			s = strings.ReplaceAll(strings.ReplaceAll(s, "+", "%20"), "%2F", "/")
		}
		return s
	}
	if _, ok := py.Text(v); ok {
		return quote(v, false)
	}
	if d, ok := v.(*py.Dict); ok {
		v = &py.View{Type: "dict_items", Dict: d}
	}
	next, ok := e.Walk(v)
	if !ok {
		return quote(v, false)
	}
	var parts []string
	for pair, ok := next(); ok; pair, ok = next() {
		items := e.Items(pair)
		if len(items) != 2 {
			py.Raise(py.KindValue, "pair has %d items, expected 2", len(items))
		}
		parts = append(parts, quote(items[0], true)+"="+quote(items[1], true))
	}
	return strings.Join(parts, "&")
}
