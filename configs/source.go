package configs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// Origin is the place where a value was set.
type Origin struct {
	File string // empty for a default; "-set" for a setting of the command line
	Line int    // in File, from 1; 0 if unknown

	layer    int    // position among files and settings, from 1; 0 for a default
	again    bool   // an earlier layer has set the key too
	text     string // text of the line; empty if unknown
	from, to int    // marked part of text, as byte offsets
}

// setOrigin is the File of a setting.
const setOrigin = "-set"

// FromSet reports whether a setting of the command line set the value.
func (o Origin) FromSet() bool { return o.File == setOrigin }

// String returns the place as text, such as "run.toml:12".
func (o Origin) String() string {
	switch {
	case o.File == "":
		return "default"
	case o.Line == 0:
		return o.File
	}
	return fmt.Sprintf("%s:%d", o.File, o.Line)
}

// Fault is a single error in a configuration.
type Fault struct {
	Origin  Origin
	Message string
}

// Error returns one line with the place and the message, followed by the marked line of the
// file, if any.
func (f *Fault) Error() string {
	message := shortened(f.Message)
	if f.Origin.File != "" {
		message = f.Origin.String() + ": " + message
	}
	if f.Origin.text == "" {
		return message
	}
	before, meant, after := f.Origin.shown()
	// Keep tabs, so that the mark is aligned with the text above.
	blank := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, before)
	mark := strings.Repeat("^", max(1, len([]rune(meant))))
	number := fmt.Sprintf("%d", f.Origin.Line)
	return fmt.Sprintf("%s\n  %s | %s\n  %*s | %s%s", message, number, before+meant+after, len(number), "", blank, mark)
}

// shortened cuts the middle out of a long message.
func shortened(message string) string {
	const first, last = 300, 200
	runes := []rune(message)
	if len(runes) <= first+last {
		return message
	}
	return string(runes[:first]) + " … " + string(runes[len(runes)-last:])
}

// shown returns the marked part of the line and some of the text around it.
func (o Origin) shown() (before, meant, after string) {
	const around, maxMarked = 30, 60 // runes
	if b := []rune(o.text[:o.from]); len(b) > around {
		before = "…" + string(b[len(b)-around:])
	} else {
		before = string(b)
	}
	m := []rune(o.text[o.from:o.to])
	if len(m) > maxMarked {
		return before, string(m[:maxMarked]), "…"
	}
	if a := []rune(o.text[o.to:]); len(a) > around {
		return before, string(m), string(a[:around]) + "…"
	}
	return before, string(m), o.text[o.to:]
}

// entry is one key of a file with its TOML value.
type entry struct {
	path   []string
	value  any
	table  bool   // a table header, without a value
	name   Origin // origin of the key
	origin Origin // origin of the key with its value
}

// text is the text of a file.
type text struct {
	file   string
	lines  []string
	starts []int // byte offset of each line
}

// newText returns the text of a document.
func newText(file string, document []byte) *text {
	t := &text{file: file, lines: strings.Split(string(document), "\n")}
	offset := 0
	for _, line := range t.lines {
		t.starts = append(t.starts, offset)
		offset += len(line) + 1
	}
	return t
}

// parse returns the keys of a document in order. If the document exceeds a limit, it returns a
// fault and the keys before that.
func parse(file string, document []byte) ([]entry, error) {
	t := newText(file, document)
	end, limit := t.limit(document)
	document = document[:end]
	var values map[string]any
	if err := toml.Unmarshal(document, &values); err != nil {
		return nil, syntaxFault(t, err)
	}
	var parser unstable.Parser
	var entries []entry
	var table []string
	parser.Reset(document)
	for parser.NextExpression() {
		node := parser.Expression()
		path, name := t.key(node)
		if node.Kind != unstable.KeyValue {
			table = path
			if node.Kind == unstable.ArrayTable {
				key := joinKey(path)
				return nil, &Fault{name, fmt.Sprintf("[[%s]] is an array of tables, expected [%s]", key, key)}
			}
			entries = append(entries, entry{path: path, table: true, name: name, origin: name})
			continue
		}
		path = append(append([]string(nil), table...), path...)
		whole := t.origin(node.Raw)
		entries = appendEntries(entries, path, lookup(values, path), name, whole)
	}
	if err := parser.Error(); err != nil {
		return nil, syntaxFault(t, err)
	}
	return entries, limit
}

// Limits of a file. The time of the TOML parser grows with the square of the number of keys.
const (
	maxKeys  = 10000
	maxParts = 20 // parts of a key
)

// limit returns a fault if the document has too many keys, or a key with too many parts. end is the offset of the
// line with the fault, or the length of the document. limit takes time proportional to the document and leaves
// other faults to the parser of values.
func (t *text) limit(document []byte) (end int, fault error) {
	var parser unstable.Parser
	parser.Reset(document)
	for keys := 0; parser.NextExpression(); {
		node := parser.Expression()
		_, name := t.key(node)
		n := longestKey(node, &keys) // in parts
		switch {
		case n > maxParts:
			fault = &Fault{name, fmt.Sprintf("key has %d parts, expected at most %d", n, maxParts)}
		case keys > maxKeys:
			fault = &Fault{name, fmt.Sprintf("file has more than %d keys", maxKeys)}
		default:
			continue
		}
		return t.starts[name.Line-1], fault
	}
	return len(document), nil
}

// longestKey returns the number of parts of the longest key of an expression, those of inline
// tables included. It adds the number of keys to keys.
func longestKey(node *unstable.Node, keys *int) int {
	parts := 0
	switch node.Kind {
	case unstable.KeyValue, unstable.Table, unstable.ArrayTable:
		*keys++
		for it := node.Key(); it.Next(); {
			parts++
		}
		if node.Kind == unstable.KeyValue {
			parts = max(parts, longestKey(node.Value(), keys))
		}
	case unstable.InlineTable, unstable.Array:
		for it := node.Children(); it.Next(); {
			parts = max(parts, longestKey(it.Node(), keys))
		}
	}
	return parts
}

// appendEntries appends a key, or the keys of its inline table.
func appendEntries(entries []entry, path []string, value any, name, whole Origin) []entry {
	inline, ok := value.(map[string]any)
	if !ok {
		return append(entries, entry{path: path, value: value, name: name, origin: whole})
	}
	entries = append(entries, entry{path: path, table: true, name: name, origin: whole})
	for _, k := range sortedKeys(inline) {
		entries = appendEntries(entries, append(slices.Clone(path), k), inline[k], whole, whole)
	}
	return entries
}

// key returns the key of a table or of a value, and its place.
func (t *text) key(node *unstable.Node) ([]string, Origin) {
	var path []string
	var origin Origin
	for it := node.Key(); it.Next(); {
		path = append(path, string(it.Node().Data))
		part := t.origin(it.Node().Raw)
		if origin.File == "" {
			origin = part
		}
		origin.to = part.to
	}
	return path, origin
}

// origin returns the origin of a range of the text. If the range has several lines, the first one counts.
func (t *text) origin(part unstable.Range) Origin {
	row, found := slices.BinarySearch(t.starts, int(part.Offset))
	if !found {
		row-- // the line that contains the offset
	}
	o := Origin{File: t.file, Line: row + 1, text: strings.TrimRight(t.lines[row], "\r \t")}
	o.from = int(part.Offset) - t.starts[row]
	o.to = min(o.from+int(part.Length), len(o.text))
	o.from = min(o.from, o.to)
	return o
}

// lookup returns the value at a path of nested tables, or nil if there is none.
func lookup(values map[string]any, path []string) any {
	var v any = values
	for _, part := range path {
		table, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = table[part]
	}
	return v
}

// syntaxFault converts a TOML syntax error to a Fault.
func syntaxFault(t *text, err error) error {
	var decode *toml.DecodeError
	if !errors.As(err, &decode) {
		return &Fault{Origin{File: t.file}, strings.TrimPrefix(err.Error(), "toml: ")}
	}
	row, column := decode.Position()
	o := Origin{File: t.file, Line: row}
	if row >= 1 && row <= len(t.lines) {
		o.text = strings.TrimRight(t.lines[row-1], "\r \t")
		o.from = min(max(column-1, 0), len(o.text))
		o.to = len(o.text)
	}
	return &Fault{o, strings.TrimPrefix(decode.Error(), "toml: ")}
}
