// Package filetype opens regular files and recognizes files of an unexpected format.
package filetype

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// headSize is the number of leading bytes of a file that decide its kind.
const headSize = 4096

// kind is a kind of file.
type kind struct {
	name   string // with an article, such as "a web page"
	remedy string // what to do; may be empty
}

// Explain recognizes the kind of a file from head, its first bytes, and returns an error such as
// "found a zip archive, expected JSON lines; unpack it first". It returns nil if it does not
// recognize the file, if the file holds JSON lines, or if the kind, such as "a JSON array", begins
// with one of accepted.
func Explain(head []byte, expected string, accepted ...string) error {
	k := kindOf(head[:min(len(head), headSize)])
	switch {
	case k.name == "", slices.ContainsFunc(accepted, func(name string) bool { return strings.HasPrefix(k.name, name) }):
		return nil
	case k.remedy == "":
		return fmt.Errorf("found %s, expected %s", k.name, expected)
	}
	return fmt.Errorf("found %s, expected %s; %s", k.name, expected, k.remedy)
}

// NotJSON is Explain for a file that should hold one JSON value.
func NotJSON(head []byte) error { return Explain(head, "JSON", "a JSON ") }

// ExplainFile is Explain for a file. It returns nil for a file that it cannot read.
func ExplainFile(path, expected string, accepted ...string) error {
	f, err := Open(path)
	if err != nil {
		return nil
	}
	defer f.Close() //nolint:errcheck // only read
	head := make([]byte, headSize)
	n, _ := io.ReadFull(f, head)
	return Explain(head[:n], expected, accepted...)
}

// kindOf returns the kind of a file, or the zero kind if it is unknown or JSON lines.
func kindOf(head []byte) kind {
	if k := binaryKind(head); k.name != "" {
		return k
	}
	if k := encodingKind(head); k.name != "" {
		return k
	}
	return textKind(strings.TrimSpace(strings.TrimPrefix(string(head), "\ufeff")))
}

// binaryKind recognizes a file by its magic number.
func binaryKind(head []byte) kind {
	const unpack = "unpack it first"
	for _, m := range []struct {
		magic        string
		at           int
		name, remedy string
	}{
		{"\x1f\x8b", 0, "a file compressed with gzip", "decompress it with gunzip"},
		{"\x28\xb5\x2f\xfd", 0, "a file compressed with zstd", "decompress it with unzstd"},
		{"\xfd7zXZ\x00", 0, "a file compressed with xz", "decompress it with unxz"},
		{"BZh", 0, "a file compressed with bzip2", "decompress it with bunzip2"},
		{"\x04\x22\x4d\x18", 0, "a file compressed with LZ4", "decompress it with unlz4"},
		{"PK\x03\x04", 0, "a zip archive", unpack},
		{"PK\x05\x06", 0, "an empty zip archive", ""},
		{"7z\xbc\xaf\x27\x1c", 0, "a 7-Zip archive", unpack},
		{"ustar", 257, "a tar archive", unpack},
		{"PAR1", 0, "Parquet", "easyrl reads it only as prompts and demonstrations"},
		{"ARROW1", 0, "an Arrow file", "save it as Parquet or JSON lines"},
		{"\xff\xff\xff\xff", 0, "an Arrow stream", "save it as Parquet or JSON lines"},
		{"SQLite format 3\x00", 0, "an SQLite database", "export the table as JSON lines"},
		{"\x93NUMPY", 0, "a NumPy array", ""},
		{"\x89HDF", 0, "an HDF5 file", ""},
		{"GGUF", 0, "a GGUF model", ""},
		{"%PDF", 0, "a PDF document", ""},
		{"\x89PNG", 0, "a PNG image", ""},
		{"\xff\xd8\xff", 0, "a JPEG image", ""},
		{"\x7fELF", 0, "a program", ""},
	} {
		if at := min(m.at, len(head)); bytes.HasPrefix(head[at:], []byte(m.magic)) {
			return kind{m.name, m.remedy}
		}
	}
	switch {
	case len(head) > 9 && head[8] == '{' && binary.LittleEndian.Uint64(head) < 1<<27 && head[7] == 0:
		return kind{"a safetensors file", ""}
	case len(head) > 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5:
		return kind{"a Python pickle", "save it as JSON lines"}
	}
	return kind{}
}

// encodingKind recognizes text in UTF-16 or UTF-32, and binary data by its zero bytes.
func encodingKind(head []byte) kind {
	text := func(encoding string) kind {
		return kind{"text in " + encoding, "convert it with iconv -f " + encoding + " -t UTF-8"}
	}
	switch {
	case bytes.HasPrefix(head, []byte("\xff\xfe\x00\x00")), bytes.HasPrefix(head, []byte("\x00\x00\xfe\xff")):
		return text("UTF-32")
	case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("\xfe\xff")):
		return text("UTF-16")
	}
	var zeros [2]int // number of zero bytes at even and at odd positions
	for i, b := range head {
		if b == 0 {
			zeros[i%2]++
		}
	}
	half := len(head) / 2
	switch {
	case zeros[0]+zeros[1] == 0:
		return kind{}
	case zeros[1] > half*3/4 && zeros[0] <= half/8:
		return text("UTF-16LE")
	case zeros[0] > half*3/4 && zeros[1] <= half/8:
		return text("UTF-16BE")
	}
	return kind{"binary data", ""}
}

// Regular expressions for the first line of a file, and for a column name in it.
const (
	yamlKey   = `^(- )?["']?[A-Za-z_][\w .-]{0,40}["']?:( |$)`
	tomlKey   = `^\[{1,2}[A-Za-z_][\w."' -]*\]{1,2}\s*(#.*)?$|^[A-Za-z_][\w.-]* *= *\S`
	pythonKey = `^[\[({]+ *(u?'|'?\w+'?: *(None|True|False)\b)`
	fieldName = `^"?[A-Za-z_][\w .-]{0,40}"?$`
)

func matches(text, pattern string) bool { return regexp.MustCompile(pattern).MatchString(text) }

// textKind recognizes a file by its first lines. It returns the zero kind for JSON lines.
func textKind(text string) kind {
	first, rest, _ := strings.Cut(text, "\n")
	first = strings.TrimSpace(first)
	lower := strings.ToLower(text[:min(len(text), 200)])
	switch {
	case strings.HasPrefix(text, "version https://git-lfs.github.com/spec/"):
		return kind{"a Git LFS pointer", "fetch the file itself with git lfs pull, or download it with hf download"}
	case strings.HasPrefix(lower, "<!doctype html"), strings.HasPrefix(lower, "<html"),
		strings.HasPrefix(lower, "<head"), strings.HasPrefix(lower, "<!--"):
		return kind{"a web page", "it may be a login or an error page: download the file again"}
	case strings.HasPrefix(text, "<"):
		return kind{"XML", ""}
	case matches(first, pythonKey):
		return kind{"Python values", "write them with json.dumps, one object per line"}
	case first == "[" || strings.HasPrefix(first, "[{") || strings.HasPrefix(first, "[") &&
		strings.HasPrefix(strings.TrimSpace(first[1:]), "{"):
		return kind{"a JSON array", "write one object per line, as jq -c '.[]' does"}
	case first == "{" || strings.HasPrefix(first, "{") && isMultiline(first, rest):
		return kind{"a JSON object over several lines", "write one object per line, as jq -c . does"}
	case strings.HasPrefix(first, "{"), strings.HasPrefix(first, "\"") && strings.HasSuffix(first, "\"") &&
		!strings.Contains(first, "\",\""):
		return kind{}
	case first == "---" || strings.HasPrefix(first, "%YAML"):
		return kind{"YAML", ""}
	case matches(first, tomlKey):
		return kind{"TOML", ""}
	}
	return tableKind(first, rest)
}

// isMultiline reports whether an object's first line continues on the next.
func isMultiline(first, rest string) bool {
	return strings.HasSuffix(first, ",") && strings.HasPrefix(strings.TrimSpace(rest), `"`) ||
		strings.HasSuffix(first, "{") || strings.HasSuffix(first, "[")
}

// tableKind recognizes tables by their separators, and else YAML and plain text.
func tableKind(first, rest string) kind {
	second, _, _ := strings.Cut(strings.TrimLeft(rest, "\r\n"), "\n")
	for _, s := range []struct{ separator, name string }{{"\t", "TSV"}, {",", "CSV"}, {";", "CSV"},
		{"|", "a table with |"}} {
		fields := strings.Split(first, s.separator)
		if len(fields) < 2 {
			continue
		}
		header := true // whether all fields look like column names
		for _, f := range fields {
			header = header && matches(f, fieldName)
		}
		if header || second != "" && len(fields) == strings.Count(second, s.separator)+1 && !matches(first, yamlKey) {
			return kind{s.name, "convert it to JSON lines"}
		}
	}
	switch {
	case matches(first, yamlKey):
		return kind{"YAML", ""}
	case first != "" && utf8.ValidString(first) && !strings.ContainsAny(first[:1], `{["0123456789-tfn`):
		return kind{"plain text", ""}
	}
	return kind{}
}
