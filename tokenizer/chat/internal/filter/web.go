package filter

import (
	"html"
	"net/url"
	"strings"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/method"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// web implements the filters for HTML and URLs.
type web struct{ *method.Machine }

func (f web) find(name string) Func {
	escape := func(whole bool) Func {
		return func(v py.Value, args py.Args) py.Value {
			args.Take(name)
			if whole {
				v = f.Str(v)
			}
			return py.Markup(f.Escape(v))
		}
	}
	switch name {
	case "safe":
		return func(v py.Value, args py.Args) py.Value { args.Take(name); return py.Markup(f.Str(v)) }
	case "e", "escape":
		return escape(false)
	case "forceescape":
		return escape(true)
	case "striptags":
		return func(v py.Value, args py.Args) py.Value {
			args.Take(name)
			s := f.Str(v)
			f.Grow(2 * len(s))
			s = dropBetween(dropBetween(s, "<!--", "-->"), "<", ">")
			return html.UnescapeString(strings.Join(strings.FieldsFunc(s, py.IsSpace), " "))
		}
	case "urlencode":
		return func(v py.Value, args py.Args) py.Value {
			args.Take(name)
			return f.urlEncode(v)
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

func (f web) urlEncode(v py.Value) py.Value {
	quote := func(v py.Value, query bool) string {
		s := f.Str(v)
		f.Grow(3 * len(s))
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
	next, ok := f.Walk(v)
	if !ok {
		return quote(v, false)
	}
	var parts []string
	for pair, ok := next(); ok; pair, ok = next() {
		items := f.Items(pair)
		if len(items) != 2 {
			py.Raise(py.KindValue, "pair has %d items, expected 2", len(items))
		}
		parts = append(parts, quote(items[0], true)+"="+quote(items[1], true))
	}
	return strings.Join(parts, "&")
}
