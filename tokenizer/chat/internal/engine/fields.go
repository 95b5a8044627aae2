package engine

import (
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// maxFieldDepth is how deep the fields of str.format may nest, as in CPython.
const maxFieldDepth = 2

// format implements s.format(args…): fields by position or name, their attributes and
// items, !r and !s, and the format after a colon, which may contain fields.
func (e *executor) format(s string, args py.Args) string {
	f := &fields{executor: e, args: args}
	return f.text(s, maxFieldDepth)
}

// fields replaces the fields of a format string.
type fields struct {
	*executor
	args py.Args
	auto int // positional argument of the next field without a name
}

// text replaces the fields of s. depth is how many more levels of fields may follow.
func (f *fields) text(s string, depth int) string {
	if depth < 0 {
		py.Raise(py.KindValue, "Max string recursion exceeded")
	}
	var b strings.Builder
	for s != "" {
		f.Step(1)
		at := strings.IndexAny(s, "{}")
		if at < 0 {
			at = len(s)
		}
		f.Charge(at)
		b.WriteString(s[:at])
		s = s[at:]
		switch {
		case s == "":
		case strings.HasPrefix(s, "{{"), strings.HasPrefix(s, "}}"):
			b.WriteByte(s[0])
			s = s[2:]
		case s[0] == '}':
			py.Raise(py.KindValue, "Single '}' encountered in format string")
		default:
			end := fieldEnd(s)
			text := f.field(s[1:end], depth)
			f.Charge(len(text))
			b.WriteString(text)
			s = s[end+1:]
		}
	}
	return b.String()
}

// fieldEnd returns the index of the brace that closes the field that s starts with.
func fieldEnd(s string) int {
	open := 0
	for i := range len(s) {
		switch s[i] {
		case '{':
			open++
		case '}':
			if open--; open == 0 {
				return i
			}
		}
	}
	py.Raise(py.KindValue, "expected '}' before end of string")
	return 0
}

// field returns the text of a field, such as name!r:>10.
func (f *fields) field(field string, depth int) string {
	name, format, _ := strings.Cut(field, ":")
	name, conversion, converted := strings.Cut(name, "!")
	v := f.value(name)
	if converted {
		switch conversion {
		case "r", "a":
			v = f.Repr(v)
		case "s":
			v = f.Str(v)
		default:
			py.Raise(py.KindValue, "Unknown conversion specifier %s", conversion)
		}
	}
	if strings.ContainsAny(format, "{}") {
		format = f.text(format, depth-1)
	}
	return f.formatValue(v, format)
}

// value returns the value of a field's name, such as 0.role[key].
func (f *fields) value(name string) py.Value {
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	first, path := name[:end], name[end:]
	if first == "" {
		first = strconv.Itoa(f.auto)
		f.auto++
	}
	v := f.argument(first)
	for path != "" {
		f.Step(1)
		if path[0] == '.' {
			path = path[1:]
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			v, path = f.attribute(v, path[:end]), path[end:]
			continue
		}
		end := strings.IndexByte(path, ']')
		if path[0] != '[' || end < 0 {
			py.Raise(py.KindValue, "Missing ']' in format string")
		}
		var key py.Value = path[1:end]
		if n, err := strconv.Atoi(path[1:end]); err == nil {
			key = int64(n)
		}
		v, path = f.subscript(v, key), path[end+1:]
	}
	return v
}

// argument returns the argument of a name or a position.
func (f *fields) argument(first string) py.Value {
	if n, err := strconv.Atoi(first); err == nil {
		if n < 0 || n >= len(f.args.Pos) {
			py.Raise("IndexError", "Replacement index %d out of range for positional args tuple", n)
		}
		return f.args.Pos[n]
	}
	for _, named := range f.args.Named {
		if named.Name == first {
			return named.Value
		}
	}
	py.Raise("KeyError", "%s", f.Quote(first))
	return nil
}
