package engine

import (
	"html"
	"net/url"
	"strings"
	"unicode"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// soft is a value's string, which stays Markup.
func (e *engine) soft(v py.Value) (s string, wrap func(string) py.Value) {
	_, markup := v.(py.Markup)
	return e.Str(v), func(s string) py.Value { return py.Like(markup, s) }
}

// plain is a filter without parameters that makes a string of a string.
func (e *engine) plain(name string, f func(string) string) filterFunc {
	return func(v py.Value, args py.Args) py.Value {
		args.Take(name)
		s, wrap := e.soft(v)
		e.Grow(len(s))
		return wrap(f(s))
	}
}

// textFilter are the filters that make strings of strings.
func (e *engine) textFilter(name string) filterFunc {
	switch name {
	case "upper":
		return e.plain(name, func(s string) string { return e.Upper(s) })
	case "lower":
		return e.plain(name, func(s string) string { return e.Lower(s) })
	case "capitalize":
		return e.plain(name, func(s string) string { return e.Capitalize(s) })
	case "title":
		plain := e.plain(name, e.title)
		return func(v py.Value, args py.Args) py.Value { return plain(e.Str(v), args) }
	case "string":
		return e.plain(name, func(s string) string { return s })
	case "trim":
		return func(v py.Value, args py.Args) py.Value {
			s, wrap := e.soft(v)
			return wrap(e.Strip(s, py.Or(args.Take(name, "chars?")[0], nil), true, true))
		}
	case "center":
		return func(v py.Value, args py.Args) py.Value {
			s, wrap := e.soft(v)
			return wrap(e.Pad(s, py.WantInt(py.Or(args.Take(name, "width?")[0], int64(80))), " ", 2))
		}
	case "replace":
		return func(v py.Value, args py.Args) py.Value {
			got := args.Take(name, "old", "new", "count?")
			n := int64(-1)
			if count := py.Or(got[2], nil); count != nil {
				n = int64(py.WantInt(count))
			}
			return e.Replace(e.Str(v), e.Str(got[0]), e.Str(got[1]), int(n))
		}
	case "indent":
		return e.indent
	case "truncate":
		return e.truncate
	case "wordcount":
		return func(v py.Value, args py.Args) py.Value {
			args.Take(name)
			s := e.Str(v)
			e.Scan(len(s))
			word := func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r) }
			return int64(len(strings.FieldsFunc(s, word)))
		}
	case "format":
		return func(v py.Value, args py.Args) py.Value {
			if len(args.Pos) > 0 && len(args.Named) > 0 {
				py.Raise(py.KindArgument, "can't handle positional and keyword arguments at the same time")
			}
			s, wrap := e.soft(v)
			if len(args.Named) > 0 {
				return wrap(e.Percent(s, e.makeDict(args), false))
			}
			return wrap(e.Percent(s, &py.Tuple{Items: args.Pos}, false))
		}
	}
	return nil
}

// title begins words with a capital: words are what is between white space,
// hyphens and opening brackets.
func (e *engine) title(s string) string {
	var b strings.Builder
	word := ""
	flush := func() {
		if word != "" {
			first := []rune(word[:min(4, len(word))])[0]
			b.WriteString(e.Upper(string(first)) + e.Lower(word[len(string(first)):]))
			word = ""
		}
	}
	start := 0
	for i, r := range s {
		if py.IsSpace(r) || strings.ContainsRune("-({[<", r) {
			word = s[start:i]
			flush()
			b.WriteRune(r)
			start = i + len(string(r))
		}
	}
	word = s[start:]
	flush()
	return b.String()
}

func (e *engine) indent(v py.Value, args py.Args) py.Value {
	got := args.Take("indent", "width?", "first?", "blank?")
	s, ok := py.Text(v)
	if !ok {
		e.Check(v)
		if _, ok := v.(*py.List); ok {
			py.Raise("AttributeError", "'list' object has no attribute 'splitlines'")
		}
		py.Raise(py.KindType, "unsupported operand type(s) for +=: '%s' and 'str'", py.TypeName(v))
	}
	_, wrap := e.soft(v)
	space, ok := py.Text(py.Or(got[0], int64(4)))
	if !ok {
		space = e.Pad("", py.WantInt(py.Or(got[0], int64(4))), " ", 0)
	}
	blank := py.Truth(py.Or(got[2], false))
	var b strings.Builder
	for i, line := range e.Lines(s+"\n", false) {
		if i > 0 {
			line = "\n" + space + line
			if len(line) == 1+len(space) && !blank {
				line = "\n"
			}
		} else if py.Truth(py.Or(got[1], false)) {
			line = space + line
		}
		e.Grow(len(line))
		b.WriteString(line)
	}
	return wrap(b.String())
}

func (e *engine) truncate(v py.Value, args py.Args) py.Value {
	got := args.Take("truncate", "length?", "killwords?", "end?", "leeway?")
	end := e.Str(py.Or(got[2], "..."))
	length, leeway := py.WantInt(py.Or(got[0], int64(255))), 5
	if given := py.Or(got[3], nil); given != nil {
		leeway = py.WantInt(given)
	}
	if length < py.Runes(end) {
		py.Raise("AssertionError", "expected length >= %d, got %d", py.Runes(end), length)
	}
	if leeway < 0 {
		py.Raise("AssertionError", "expected leeway >= 0, got %d", leeway)
	}
	if e.Len(v) <= length+leeway {
		return v
	}
	cut := e.Slice(v, nil, int64(length-py.Runes(end)), nil)
	s, wrap := e.soft(cut)
	if !py.Truth(py.Or(got[1], false)) {
		s = e.RSplit(s, " ", 1)[0]
	}
	return wrap(s + end)
}

// webFilter are the filters for HTML and addresses.
func (e *engine) webFilter(name string) filterFunc {
	escape := func(whole bool) filterFunc {
		return func(v py.Value, args py.Args) py.Value {
			args.Take(name)
			if whole {
				v = e.Str(v)
			}
			return py.Markup(e.Escape(v))
		}
	}
	switch name {
	case "safe":
		return func(v py.Value, args py.Args) py.Value { args.Take(name); return py.Markup(e.Str(v)) }
	case "e", "escape":
		return escape(false)
	case "forceescape":
		return escape(true)
	case "striptags":
		return func(v py.Value, args py.Args) py.Value {
			args.Take(name)
			s := e.Str(v)
			e.Grow(2 * len(s))
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

// dropBetween removes what is between begin and end, with them.
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

func (e *engine) urlEncode(v py.Value) py.Value {
	quote := func(v py.Value, query bool) string {
		s := e.Str(v)
		e.Grow(3 * len(s))
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
			py.Raise(py.KindValue, "a pair of %d items, expected 2", len(items))
		}
		parts = append(parts, quote(items[0], true)+"="+quote(items[1], true))
	}
	return strings.Join(parts, "&")
}
