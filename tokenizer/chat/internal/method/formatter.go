package method

import (
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// Format is s.format(args…): fields by position or name, their attributes and
// items, !r and !s, and the format after a colon, which may have fields itself.
func (m *Machine) Format(s string, args py.Args) string {
	auto := 0
	return m.formatText(s, args, &auto, 2)
}

func (m *Machine) formatText(s string, args py.Args, auto *int, depth int) string {
	if depth < 0 {
		py.Raise(py.KindValue, "Max string recursion exceeded")
	}
	var b strings.Builder
	for s != "" {
		m.Step(1)
		at := strings.IndexAny(s, "{}")
		if at < 0 {
			at = len(s)
		}
		m.Grow(at)
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
			text := m.formatField(s[1:end], args, auto, depth)
			m.Grow(len(text))
			b.WriteString(text)
			s = s[end+1:]
		}
	}
	return b.String()
}

// fieldEnd is where the brace that s begins with is closed.
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

func (m *Machine) formatField(field string, args py.Args, auto *int, depth int) string {
	name, format, _ := strings.Cut(field, ":")
	name, conversion, converted := strings.Cut(name, "!")
	v := m.formatArg(name, args, auto)
	if converted {
		switch conversion {
		case "r", "a":
			v = m.Repr(v)
		case "s":
			v = m.Str(v)
		default:
			py.Raise(py.KindValue, "Unknown conversion specifier %s", conversion)
		}
	}
	if strings.ContainsAny(format, "{}") {
		format = m.formatText(format, args, auto, depth-1)
	}
	return m.FormatValue(v, format)
}

func (m *Machine) formatArg(name string, args py.Args, auto *int) py.Value {
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	first, path := name[:end], name[end:]
	if first == "" {
		first = strconv.Itoa(*auto)
		*auto++
	}
	v := m.formatFirst(first, args)
	for path != "" {
		m.Step(1)
		if path[0] == '.' {
			path = path[1:]
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			v, path = m.Attr(v, path[:end]), path[end:]
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
		v, path = m.Item(v, key), path[end+1:]
	}
	return v
}

func (m *Machine) formatFirst(first string, args py.Args) py.Value {
	if n, err := strconv.Atoi(first); err == nil {
		if n < 0 || n >= len(args.Pos) {
			py.Raise("IndexError", "Replacement index %d out of range for positional args tuple", n)
		}
		return args.Pos[n]
	}
	for _, named := range args.Named {
		if named.Name == first {
			return named.Value
		}
	}
	py.Raise("KeyError", "%s", m.Quote(first))
	return nil
}
