package engine

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// textFilter finds the filters that change or measure a string.
func (e *executor) textFilter(name string) filterFunc {
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
			return wrap(e.Pad(s, py.WantInt(py.Or(args.Take(name, "width?")[0], int64(80))), " ", py.Both))
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
			separates := func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r) }
			return int64(len(strings.FieldsFunc(s, separates)))
		}
	case "format":
		return func(v py.Value, args py.Args) py.Value {
			if len(args.Pos) > 0 && len(args.Named) > 0 {
				py.Raise(py.KindArgument, "can't handle positional and keyword arguments at the same time")
			}
			s, wrap := e.soft(v)
			if len(args.Named) > 0 {
				return wrap(e.percent(s, e.Dict(args), false))
			}
			return wrap(e.percent(s, &py.Tuple{Items: args.Pos}, false))
		}
	}
	return nil
}

// soft returns str(v), and a function that makes a Markup of a string if v is one. It
// corresponds to markupsafe.soft_str.
func (e *executor) soft(v py.Value) (s string, wrap func(string) py.Value) {
	_, markup := v.(py.Markup)
	return e.Str(v), func(s string) py.Value { return py.MaybeMarkup(markup, s) }
}

// plain returns a filter without parameters from string to string.
func (e *executor) plain(name string, change func(string) string) filterFunc {
	return func(v py.Value, args py.Args) py.Value {
		args.Take(name)
		s, wrap := e.soft(v)
		e.Charge(len(s))
		return wrap(change(s))
	}
}

// title capitalizes words, which white space, hyphens and opening brackets separate.
func (e *executor) title(s string) string {
	var b strings.Builder
	write := func(word string) {
		if word != "" {
			n := py.RuneLen(word)
			b.WriteString(e.Upper(word[:n]) + e.Lower(word[n:]))
		}
	}
	start := 0 // of the current word
	for i, r := range s {
		if py.IsSpace(r) || strings.ContainsRune("-({[<", r) {
			write(s[start:i])
			b.WriteRune(r)
			start = i + utf8.RuneLen(r)
		}
	}
	write(s[start:])
	return b.String()
}

// indent puts spaces before each line but the first and blank ones.
func (e *executor) indent(v py.Value, args py.Args) py.Value {
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
		space = e.Pad("", py.WantInt(py.Or(got[0], int64(4))), " ", py.Right)
	}
	blank := py.Truth(py.Or(got[2], false))
	var b strings.Builder
	for i, line := range e.Lines(s+"\n", false) {
		if i > 0 {
			line = "\n" + space + line
			if len(line) == 1+len(space) && !blank { // the line was empty
				line = "\n"
			}
		} else if py.Truth(py.Or(got[1], false)) {
			line = space + line
		}
		e.Charge(len(line))
		b.WriteString(line)
	}
	return wrap(b.String())
}

// truncate shortens a string that is longer than length + leeway to length characters,
// including end. Unless killwords is set, it cuts before a word.
func (e *executor) truncate(v py.Value, args py.Args) py.Value {
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
	cut := e.slice(v, nil, int64(length-py.Runes(end)), nil)
	s, wrap := e.soft(cut)
	if !py.Truth(py.Or(got[1], false)) {
		s = e.RSplit(s, " ", 1)[0]
	}
	return wrap(s + end)
}
