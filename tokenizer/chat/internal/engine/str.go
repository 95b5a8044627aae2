package engine

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// textMethod returns a bound method of a string. Its string results are Markup if the string
// is.
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
			return py.Like(markup, got)
		case []string:
			items := make([]py.Value, len(got))
			for i, part := range got {
				items[i] = py.Like(markup, part)
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

type textCall func(s string, args py.Args) py.Value

// textTest finds the methods that return a bool or a number.
func (e *executor) textTest(name string) textCall {
	whole := func(test func(string) bool) textCall {
		return func(s string, args py.Args) py.Value {
			args.Only(name)
			return test(s)
		}
	}
	each := func(test func(rune) bool) textCall {
		return whole(func(s string) bool { return py.Every(s, test) })
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
		return whole(func(s string) bool { return s == "" || py.Every(s, unicode.IsPrint) })
	case "isascii":
		return whole(py.ASCII)
	case "islower":
		return whole(func(s string) bool { return py.IsCase(s, false) })
	case "isupper":
		return whole(func(s string) bool { return py.IsCase(s, true) })
	case "istitle":
		return whole(py.IsTitle)
	case "isidentifier":
		return whole(func(s string) bool {
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

// window returns s[start:end] of the arguments, and the number of characters before it.
func (e *executor) window(s string, start, end py.Value) (part string, before int) {
	if py.Or(start, nil) == nil && py.Or(end, nil) == nil {
		return s, 0
	}
	n := py.Runes(s)
	w := newSpan(n, py.Or(start, nil), py.Or(end, nil), nil)
	if w.lo >= w.hi {
		if w.lo > n {
			return "", n
		}
		return "", w.lo
	}
	all := []rune(s)
	e.Grow(5 * len(s))
	return string(all[w.lo:w.hi]), w.lo
}

func (e *executor) affix(name string) textCall {
	test := strings.HasPrefix
	if name == "endswith" {
		test = strings.HasSuffix
	}
	return func(s string, args py.Args) py.Value {
		got := args.Only(name, "prefix", "start?", "end?")
		s, _ = e.window(s, got[1], got[2])
		options := []py.Value{got[0]}
		if t, ok := got[0].(*py.Tuple); ok {
			options = t.Items
		}
		for _, option := range options {
			part, ok := py.Text(option)
			if !ok {
				py.Raise(py.KindType, "%s first arg must be str or a tuple of str, not %s", name, py.TypeName(option))
			}
			if test(s, part) {
				return true
			}
		}
		return false
	}
}

func (e *executor) search(name string) textCall {
	return func(s string, args py.Args) py.Value {
		got := args.Only(name, "sub", "start?", "end?")
		part, ok := py.Text(got[0])
		if !ok {
			py.Raise(py.KindType, "must be str, not %s", py.TypeName(got[0]))
		}
		s, before := e.window(s, got[1], got[2])
		if name == "count" {
			return int64(strings.Count(s, part))
		}
		at := strings.Index(s, part)
		if name[0] == 'r' {
			at = strings.LastIndex(s, part)
		}
		if at < 0 {
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
			return e.Strip(s, py.Or(args.Only(name, "chars?")[0], nil), name != "rstrip", name != "lstrip")
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
			by := py.WantText(name, args.Only(name, "sep")[0])
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
			return strings.TrimPrefix(s, py.WantText(name, args.Only(name, "prefix")[0]))
		}
	case "removesuffix":
		return func(s string, args py.Args) py.Value {
			return strings.TrimSuffix(s, py.WantText(name, args.Only(name, "suffix")[0]))
		}
	}
	return nil
}

// textBuild finds the methods that return a new string.
func (e *executor) textBuild(name string) textCall {
	plain := func(f func(string) string) textCall {
		return func(s string, args py.Args) py.Value {
			args.Only(name)
			e.Grow(len(s))
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
		share := map[string]int{"ljust": 0, "rjust": 1, "center": 2}[name]
		return func(s string, args py.Args) py.Value {
			got := args.Only(name, "width", "fillchar?")
			fill := py.WantText(name, py.Or(got[1], " "))
			if py.Runes(fill) != 1 {
				py.Raise(py.KindType, "The fill character must be exactly one character long")
			}
			return e.Pad(s, py.WantInt(got[0]), fill, share)
		}
	case "zfill":
		return func(s string, args py.Args) py.Value {
			sign := ""
			width := py.WantInt(args.Only(name, "width")[0])
			if s != "" && (s[0] == '-' || s[0] == '+') {
				sign, s = s[:1], s[1:]
			}
			return sign + e.Pad(s, width-len(sign), "0", 1)
		}
	case "expandtabs":
		return func(s string, args py.Args) py.Value {
			return e.ExpandTabs(s, py.WantInt(py.Or(args.Take(name, "tabsize?")[0], int64(8))))
		}
	case "replace":
		return func(s string, args py.Args) py.Value {
			got := args.Only(name, "old", "new", "count?")
			return e.Replace(s, py.WantText(name, got[0]), py.WantText(name, got[1]),
				py.WantInt(py.Or(got[2], int64(-1))))
		}
	case "join":
		return func(s string, args py.Args) py.Value { return e.joinText(s, args.Only(name, "iterable")[0]) }
	case "format":
		return func(s string, args py.Args) py.Value { return e.Format(s, args) }
	case "format_map":
		return e.formatMap
	}
	return nil
}

func (e *executor) formatMap(s string, args py.Args) py.Value {
	d, ok := args.Only("format_map", "mapping")[0].(*py.Dict)
	if !ok {
		py.Raise(py.KindType, "format_map() argument must be a dict")
	}
	var named py.Args
	for i := range d.Len() {
		key, value := d.At(i)
		named.Named = append(named.Named, py.Named{Name: e.Str(key), Value: value})
	}
	return e.Format(s, named)
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
		e.Grow(len(s))
		b.WriteString(s)
		i++
	}
	return b.String()
}
