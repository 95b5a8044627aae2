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
	again    bool   // an earlier layer had set it too
	text     string // of the line
	from, to int    // marked part of text, in bytes
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
	const around, most = 30, 60
	if b := []rune(o.text[:o.from]); len(b) > around {
		before = "…" + string(b[len(b)-around:])
	} else {
		before = string(b)
	}
	m := []rune(o.text[o.from:o.to])
	if len(m) > most {
		return before, string(m[:most]), "…"
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
	name   Origin // of the key
	origin Origin // of the key and its value
}

// parse returns the keys of a document in order.
func parse(file string, document []byte) ([]entry, error) {
	var values map[string]any
	if err := toml.Unmarshal(document, &values); err != nil {
		return nil, syntaxFault(file, document, err)
	}
	lines := strings.Split(string(document), "\n")
	var parser unstable.Parser
	var entries []entry
	var table []string
	parser.Reset(document)
	for parser.NextExpression() {
		node := parser.Expression()
		path, name := keyOf(&parser, node, file, lines)
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
		whole := originOf(file, lines, parser.Shape(node.Raw))
		entries = appendEntries(entries, path, lookup(values, path), name, whole)
	}
	if err := parser.Error(); err != nil {
		return nil, syntaxFault(file, document, err)
	}
	return entries, nil
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

// keyOf returns the key of a table or of a value, and its place.
func keyOf(parser *unstable.Parser, node *unstable.Node, file string, lines []string) ([]string, Origin) {
	var path []string
	var origin Origin
	for it := node.Key(); it.Next(); {
		path = append(path, string(it.Node().Data))
		part := originOf(file, lines, parser.Shape(it.Node().Raw))
		if origin.File == "" {
			origin = part
		}
		origin.to = part.to
	}
	return path, origin
}

// originOf returns the part of shape on its first line.
func originOf(file string, lines []string, shape unstable.Shape) Origin {
	o := Origin{File: file, Line: shape.Start.Line, from: shape.Start.Column - 1, to: shape.End.Column - 1}
	o.text = strings.TrimRight(lines[o.Line-1], "\r \t")
	if shape.End.Line > shape.Start.Line || o.to > len(o.text) {
		o.to = len(o.text)
	}
	o.from = min(o.from, o.to)
	return o
}

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
func syntaxFault(file string, document []byte, err error) error {
	var decode *toml.DecodeError
	if !errors.As(err, &decode) {
		return &Fault{Origin{File: file}, strings.TrimPrefix(err.Error(), "toml: ")}
	}
	row, column := decode.Position()
	o := Origin{File: file, Line: row}
	if lines := strings.Split(string(document), "\n"); row >= 1 && row <= len(lines) {
		o.text = strings.TrimRight(lines[row-1], "\r \t")
		o.from = min(max(column-1, 0), len(o.text))
		o.to = len(o.text)
	}
	return &Fault{o, strings.TrimPrefix(decode.Error(), "toml: ")}
}
