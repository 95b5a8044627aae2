package engine

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// textMethod returns a bound method of a str or a Markup. Those of Markup return Markup
// where those of str return str.
func (e *executor) textMethod(v py.Value, name string) (py.Value, bool) {
	s, _ := py.Text(v)
	_, markup := v.(py.Markup)
	call := e.textTest(name)
	if call == nil {
		call = e.textCut(name)
	}
	if call == nil {
		call = e.textBuild(name)
	}
	if call == nil {
		return nil, false
	}
	return &py.Func{Name: name, Call: func(args py.Args) py.Value {
		e.Scan(len(s))
		if markup {
			args = e.escapeArgs(name, args)
		}
		got := call(s, args)
		switch got := got.(type) {
		case string:
			return py.MaybeMarkup(markup, got)
		case []string:
			items := make([]py.Value, len(got))
			for i, part := range got {
				items[i] = py.MaybeMarkup(markup, part)
			}
			if strings.HasSuffix(name, "partition") {
				return &py.Tuple{Items: items}
			}
			return e.NewList(items)
		}
		return got
	}}, true
}

// escapeArgs escapes the strings that a method of Markup inserts into its result.
func (e *executor) escapeArgs(name string, args py.Args) py.Args {
	switch name {
	case "replace", "join", "ljust", "rjust", "center", "format":
	default:
		return args
	}
	escaped := py.Args{Named: args.Named}
	for _, v := range args.Pos {
		switch v := v.(type) {
		case string:
			escaped.Pos = append(escaped.Pos, py.Markup(e.Escape(v)))
		case *py.List:
			items := make([]py.Value, len(v.Items))
			for i, item := range v.Items {
				items[i] = item
				if s, ok := item.(string); ok {
					items[i] = py.Markup(e.Escape(s))
				}
			}
			escaped.Pos = append(escaped.Pos, e.NewList(items))
		default:
			escaped.Pos = append(escaped.Pos, v)
		}
	}
	return escaped
}

// textCall is a method of strings: s.name(args). In addition to values, it may return a
// []string, which becomes a list, or a tuple for partition.
type textCall func(s string, args py.Args) py.Value

// textTest finds the methods that return a bool or a number.
func (e *executor) textTest(name string) textCall {
	test := func(holds func(string) bool) textCall {
		return func(s string, args py.Args) py.Value {
			args.TakePositional(name)
			return holds(s)
		}
	}
	each := func(holds func(rune) bool) textCall {
		return test(func(s string) bool { return py.Every(s, holds) })
	}
	switch name {
	case "isalpha":
		return each(unicode.IsLetter)
	case "isdigit", "isdecimal":
		return each(unicode.IsDigit)
	case "isnumeric":
		return each(unicode.IsNumber)
	case "isalnum":
		return each(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) })
	case "isspace":
		return each(py.IsSpace)
	case "isprintable":
		return test(func(s string) bool { return s == "" || py.Every(s, unicode.IsPrint) })
	case "isascii":
		return test(py.ASCII)
	case "islower":
		return test(func(s string) bool { return py.IsCase(s, false) })
	case "isupper":
		return test(func(s string) bool { return py.IsCase(s, true) })
	case "istitle":
		return test(py.IsTitle)
	case "isidentifier":
		return test(func(s string) bool {
			return py.Every(s, func(r rune) bool {
				return r == '_' || unicode.In(r, unicode.L, unicode.N, unicode.M)
			}) && !unicode.IsDigit([]rune(s)[0])
		})
	case "startswith", "endswith":
		return e.affix(name)
	case "find", "rfind", "index", "rindex", "count":
		return e.search(name)
	}
	return nil
}

// window returns s[start:end], and the number of characters before that part. start and end
// are None or py.Missing if the bound is missing. ok is false if start lies beyond end: then
// Python finds nothing there, not even an empty string.
func (e *executor) window(s string, start, end py.Value) (part string, before int, ok bool) {
	if py.Or(start, nil) == nil && py.Or(end, nil) == nil {
		return s, 0, true
	}
	n := py.Runes(s)
	lo, hi := max(0, bound(n, py.Or(start, nil), 0)), min(n, max(0, bound(n, py.Or(end, nil), n)))
	if lo >= hi {
		return "", lo, lo == hi
	}
	all := []rune(s)
	e.Charge(5 * len(s))
	return string(all[lo:hi]), lo, true
}

// affix returns the method startswith or endswith.
func (e *executor) affix(name string) textCall {
	test := strings.HasPrefix
	if name == "endswith" {
		test = strings.HasSuffix
	}
	return func(s string, args py.Args) py.Value {
		got := args.TakePositional(name, "prefix", "start?", "end?")
		s, _, inside := e.window(s, got[1], got[2])
		options := []py.Value{got[0]}
		if t, ok := got[0].(*py.Tuple); ok {
			options = t.Items
		}
		for _, option := range options {
			part, ok := py.Text(option)
			if !ok {
				py.Raise(py.KindType, "%s first arg must be str or a tuple of str, not %s", name, py.TypeName(option))
			}
			if inside && test(s, part) {
				return true
			}
		}
		return false
	}
}

// search returns the method find, rfind, index, rindex or count.
func (e *executor) search(name string) textCall {
	return func(s string, args py.Args) py.Value {
		got := args.TakePositional(name, "sub", "start?", "end?")
		part, ok := py.Text(got[0])
		if !ok {
			py.Raise(py.KindType, "must be str, not %s", py.TypeName(got[0]))
		}
		s, before, inside := e.window(s, got[1], got[2])
		if name == "count" {
			if !inside {
				return int64(0)
			}
			return int64(strings.Count(s, part))
		}
		at := strings.Index(s, part)
		if name[0] == 'r' {
			at = strings.LastIndex(s, part)
		}
		if at < 0 || !inside {
			if strings.HasSuffix(name, "index") {
				py.Raise(py.KindValue, "substring not found")
			}
			return int64(-1)
		}
		return int64(before + py.Runes(s[:at]))
	}
}

// textCut finds the methods that return parts of the string.
func (e *executor) textCut(name string) textCall {
	switch name {
	case "strip", "lstrip", "rstrip":
		return func(s string, args py.Args) py.Value {
			return e.Strip(s, py.Or(args.TakePositional(name, "chars?")[0], nil), name != "rstrip", name != "lstrip")
		}
	case "split", "rsplit":
		return func(s string, args py.Args) py.Value {
			got := args.Take(name, "sep?", "maxsplit?")
			n := py.WantInt(py.Or(got[1], int64(-1)))
			if name == "split" {
				return e.Split(s, py.Or(got[0], nil), n)
			}
			return e.RSplit(s, py.Or(got[0], nil), n)
		}
	case "splitlines":
		return func(s string, args py.Args) py.Value {
			return e.Lines(s, py.Truth(py.Or(args.Take(name, "keepends?")[0], false)))
		}
	case "partition", "rpartition":
		return func(s string, args py.Args) py.Value {
			by := py.WantText(name, args.TakePositional(name, "sep")[0])
			if by == "" {
				py.Raise(py.KindValue, "empty separator")
			}
			at := strings.Index(s, by)
			if name == "rpartition" {
				at = strings.LastIndex(s, by)
			}
			switch {
			case at >= 0:
				return []string{s[:at], by, s[at+len(by):]}
			case name == "partition":
				return []string{s, "", ""}
			}
			return []string{"", "", s}
		}
	case "removeprefix":
		return func(s string, args py.Args) py.Value {
			return strings.TrimPrefix(s, py.WantText(name, args.TakePositional(name, "prefix")[0]))
		}
	case "removesuffix":
		return func(s string, args py.Args) py.Value {
			return strings.TrimSuffix(s, py.WantText(name, args.TakePositional(name, "suffix")[0]))
		}
	}
	return nil
}

// textBuild finds the methods that return a new string.
func (e *executor) textBuild(name string) textCall {
	plain := func(f func(string) string) textCall {
		return func(s string, args py.Args) py.Value {
			args.TakePositional(name)
			e.Charge(len(s))
			return f(s)
		}
	}
	switch name {
	case "upper":
		return plain(e.Upper)
	case "lower":
		return plain(e.Lower)
	case "casefold":
		return plain(cases.Fold().String)
	case "capitalize":
		return plain(e.Capitalize)
	case "title":
		return plain(e.TitleWords)
	case "swapcase":
		return plain(py.SwapCase)
	case "center", "ljust", "rjust":
		side := map[string]py.Side{"ljust": py.Right, "rjust": py.Left, "center": py.Both}[name]
		return func(s string, args py.Args) py.Value {
			got := args.TakePositional(name, "width", "fillchar?")
			fill := py.WantText(name, py.Or(got[1], " "))
			if py.Runes(fill) != 1 {
				py.Raise(py.KindType, "The fill character must be exactly one character long")
			}
			return e.Pad(s, py.WantInt(got[0]), fill, side)
		}
	case "zfill":
		return func(s string, args py.Args) py.Value {
			sign := ""
			width := py.WantInt(args.TakePositional(name, "width")[0])
			if s != "" && (s[0] == '-' || s[0] == '+') {
				sign, s = s[:1], s[1:]
			}
			return sign + e.Pad(s, width-len(sign), "0", py.Left)
		}
	case "expandtabs":
		return func(s string, args py.Args) py.Value {
			return e.ExpandTabs(s, py.WantInt(py.Or(args.Take(name, "tabsize?")[0], int64(8))))
		}
	case "replace":
		return func(s string, args py.Args) py.Value {
			got := args.TakePositional(name, "old", "new", "count?")
			return e.Replace(s, py.WantText(name, got[0]), py.WantText(name, got[1]),
				py.WantInt(py.Or(got[2], int64(-1))))
		}
	case "join":
		return func(s string, args py.Args) py.Value { return e.joinText(s, args.TakePositional(name, "iterable")[0]) }
	case "format":
		return func(s string, args py.Args) py.Value { return e.format(s, args) }
	case "format_map":
		return e.formatMap
	}
	return nil
}

// formatMap implements s.format_map(mapping).
func (e *executor) formatMap(s string, args py.Args) py.Value {
	d, ok := args.TakePositional("format_map", "mapping")[0].(*py.Dict)
	if !ok {
		py.Raise(py.KindType, "format_map() argument must be a dict")
	}
	var named py.Args
	for i := range d.Len() {
		key, value := d.At(i)
		named.Named = append(named.Named, py.Named{Name: e.Str(key), Value: value})
	}
	return e.format(s, named)
}

// joinText returns sep.join(v). All items must be strings.
func (e *executor) joinText(sep string, v py.Value) string {
	var b strings.Builder
	i := 0
	next := e.Iterate(v)
	for item, ok := next(); ok; item, ok = next() {
		s, ok := py.Text(item)
		if !ok {
			py.Raise(py.KindType, "sequence item %d: expected str instance, %s found", i, py.TypeName(item))
		}
		if i > 0 {
			s = sep + s
		}
		e.Charge(len(s))
		b.WriteString(s)
		i++
	}
	return b.String()
}
