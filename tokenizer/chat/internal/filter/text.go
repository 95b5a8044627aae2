package filter

import (
	"strings"
	"unicode"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/method"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// texts implements the filters from strings to strings.
type texts struct{ *method.Machine }

func (f texts) find(name string) Func {
	switch name {
	case "upper":
		return f.plain(name, func(s string) string { return f.Upper(s) })
	case "lower":
		return f.plain(name, func(s string) string { return f.Lower(s) })
	case "capitalize":
		return f.plain(name, func(s string) string { return f.Capitalize(s) })
	case "title":
		plain := f.plain(name, f.title)
		return func(v py.Value, args py.Args) py.Value { return plain(f.Str(v), args) }
	case "string":
		return f.plain(name, func(s string) string { return s })
	case "trim":
		return func(v py.Value, args py.Args) py.Value {
			s, wrap := f.soft(v)
			return wrap(f.Strip(s, py.Or(args.Take(name, "chars?")[0], nil), true, true))
		}
	case "center":
		return func(v py.Value, args py.Args) py.Value {
			s, wrap := f.soft(v)
			return wrap(f.Pad(s, py.WantInt(py.Or(args.Take(name, "width?")[0], int64(80))), " ", 2))
		}
	case "replace":
		return func(v py.Value, args py.Args) py.Value {
			got := args.Take(name, "old", "new", "count?")
			n := int64(-1)
			if count := py.Or(got[2], nil); count != nil {
				n = int64(py.WantInt(count))
			}
			return f.Replace(f.Str(v), f.Str(got[0]), f.Str(got[1]), int(n))
		}
	case "indent":
		return f.indent
	case "truncate":
		return f.truncate
	case "wordcount":
		return func(v py.Value, args py.Args) py.Value {
			args.Take(name)
			s := f.Str(v)
			f.Scan(len(s))
			word := func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r) }
			return int64(len(strings.FieldsFunc(s, word)))
		}
	case "format":
		return func(v py.Value, args py.Args) py.Value {
			if len(args.Pos) > 0 && len(args.Named) > 0 {
				py.Raise(py.KindArgument, "can't handle positional and keyword arguments at the same time")
			}
			s, wrap := f.soft(v)
			if len(args.Named) > 0 {
				return wrap(f.Percent(s, f.Dict(args), false))
			}
			return wrap(f.Percent(s, &py.Tuple{Items: args.Pos}, false))
		}
	}
	return nil
}

// soft returns a value's string and a function that restores Markup.
func (f texts) soft(v py.Value) (s string, wrap func(string) py.Value) {
	_, markup := v.(py.Markup)
	return f.Str(v), func(s string) py.Value { return py.Like(markup, s) }
}

// plain returns a filter without parameters from string to string.
func (f texts) plain(name string, change func(string) string) Func {
	return func(v py.Value, args py.Args) py.Value {
		args.Take(name)
		s, wrap := f.soft(v)
		f.Grow(len(s))
		return wrap(change(s))
	}
}

// title capitalizes words, which white space, hyphens and opening brackets separate.
func (f texts) title(s string) string {
	var b strings.Builder
	word := ""
	flush := func() {
		if word != "" {
			first := []rune(word[:min(4, len(word))])[0]
			b.WriteString(f.Upper(string(first)) + f.Lower(word[len(string(first)):]))
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

func (f texts) indent(v py.Value, args py.Args) py.Value {
	got := args.Take("indent", "width?", "first?", "blank?")
	s, ok := py.Text(v)
	if !ok {
		f.Check(v)
		if _, ok := v.(*py.List); ok {
			py.Raise("AttributeError", "'list' object has no attribute 'splitlines'")
		}
		py.Raise(py.KindType, "unsupported operand type(s) for +=: '%s' and 'str'", py.TypeName(v))
	}
	_, wrap := f.soft(v)
	space, ok := py.Text(py.Or(got[0], int64(4)))
	if !ok {
		space = f.Pad("", py.WantInt(py.Or(got[0], int64(4))), " ", 0)
	}
	blank := py.Truth(py.Or(got[2], false))
	var b strings.Builder
	for i, line := range f.Lines(s+"\n", false) {
		if i > 0 {
			line = "\n" + space + line
			if len(line) == 1+len(space) && !blank {
				line = "\n"
			}
		} else if py.Truth(py.Or(got[1], false)) {
			line = space + line
		}
		f.Grow(len(line))
		b.WriteString(line)
	}
	return wrap(b.String())
}

func (f texts) truncate(v py.Value, args py.Args) py.Value {
	got := args.Take("truncate", "length?", "killwords?", "end?", "leeway?")
	end := f.Str(py.Or(got[2], "..."))
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
	if f.Len(v) <= length+leeway {
		return v
	}
	cut := f.Slice(v, nil, int64(length-py.Runes(end)), nil)
	s, wrap := f.soft(cut)
	if !py.Truth(py.Or(got[1], false)) {
		s = f.RSplit(s, " ", 1)[0]
	}
	return wrap(s + end)
}
