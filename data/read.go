// Package data reads prompts from JSONL and JSON files, in a resumable order.
package data

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/easyrl/easyrl/rollout"
)

// ErrEmpty is wrapped by the error about a file without prompts.
var ErrEmpty = errors.New("no prompts")

// Options name the fields of a file's objects. A key with dots reaches into
// objects and, by number, into arrays: "reward_model.ground_truth",
// "prompt.0.content". A field whose name has the dots itself comes first.
type Options struct {
	PromptKey string // the prompt, a string
	AnswerKey string // what the reward compares with, any JSON value; "" where there is none
}

// Read reads a file of JSON objects, one a line, or of one JSON array of
// objects. Token ids are left empty, and so is an answer that is null. A prompt's ID is the object's "id" field
// (a string or an integer) or else "<file base>:<line>", and in an array
// "<file base>:<number of the element, from 1>"; its Source is the file's base
// without the extension. Errors name file, line, and the keys that are there.
func Read(path string, opts Options) ([]rollout.Prompt, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read prompts: %w", err)
	}
	prompts, err := read(f, path, opts)
	if e := f.Close(); err == nil && e != nil {
		err = fmt.Errorf("read prompts %s: %w", path, e)
	}
	if err != nil {
		return nil, err
	}
	return prompts, nil
}

// reader turns one file's objects into prompts.
type reader struct {
	path    string
	base    string
	opts    Options
	prompts []rollout.Prompt
	lines   map[string]int // of IDs
}

func read(r io.Reader, path string, opts Options) ([]rollout.Prompt, error) {
	d := reader{path: path, base: filepath.Base(path), opts: opts, lines: map[string]int{}}
	in := bufio.NewReaderSize(r, 1<<16)
	if mark, err := in.Peek(3); err == nil && string(mark) == "\ufeff" {
		_, _ = in.Discard(3) // it has been peeked
	}
	array, line, err := opensArray(in)
	switch {
	case err != nil:
		err = fmt.Errorf("read prompts %s: %w", path, err)
	case array:
		err = d.array(in, line)
	default:
		err = d.objects(in, line)
	}
	if err != nil {
		return nil, err
	}
	if len(d.prompts) == 0 {
		return nil, fmt.Errorf("read prompts %s: %w, expected at least one JSON object", path, ErrEmpty)
	}
	return d.prompts, nil
}

// opensArray skips white space and says whether an array follows, and on which
// line. The end of the file is not an error here.
func opensArray(in *bufio.Reader) (array bool, line int, err error) {
	for line = 1; ; {
		b, err := in.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return false, line, nil
		case err != nil:
			return false, line, err
		case b == '\n':
			line++
		case b == ' ' || b == '\t' || b == '\r':
		default:
			return b == '[', line, in.UnreadByte()
		}
	}
}

// objects reads one object a line; empty lines are allowed.
func (d *reader) objects(in *bufio.Reader, line int) error {
	for ; ; line++ {
		text, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read prompts %s:%d: %w", d.path, line, err)
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			if err := d.object(text, line, line); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}

// array reads the objects of one array.
func (d *reader) array(in *bufio.Reader, line int) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("read prompts %s: %w", d.path, err)
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(text, &elements); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			line += bytes.Count(text[:max(0, syntax.Offset-1)], []byte("\n"))
		}
		return fmt.Errorf("read prompts %s:%d: not a JSON array: %w", d.path, line, err)
	}
	for i, object := range elements {
		at := bytes.Index(text, object) // only white space and a comma lie before it
		line += bytes.Count(text[:at], []byte("\n"))
		if err := d.object(object, line, i+1); err != nil {
			return err
		}
		line += bytes.Count(object, []byte("\n"))
		text = text[at+len(object):]
	}
	return nil
}

// object reads one prompt; number is what its ID is made of.
func (d *reader) object(text []byte, line, number int) error {
	fault := func(format string, args ...any) error {
		return fmt.Errorf("read prompts %s:%d: %w", d.path, line, fmt.Errorf(format, args...))
	}
	if !utf8.Valid(text) {
		return fault("not valid UTF-8")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil || fields == nil {
		var mismatch *json.UnmarshalTypeError
		if err == nil || errors.As(err, &mismatch) {
			return fault("found %s, expected a JSON object", kindOf(text))
		}
		return fault("not a JSON object: %w", err)
	}
	p := rollout.Prompt{ID: d.base + ":" + strconv.Itoa(number), Source: strings.TrimSuffix(d.base, filepath.Ext(d.base))}
	raw, err := find(fields, d.opts.PromptKey)
	if err != nil {
		return fault("prompt: %w", err)
	}
	if kind := kindOf(raw); kind != "a string" {
		return fault("prompt: key %q is %s, expected a string", d.opts.PromptKey, kind)
	}
	if err := json.Unmarshal(raw, &p.Text); err != nil {
		return fault("prompt: %w", err)
	}
	if d.opts.AnswerKey != "" {
		if raw, err = find(fields, d.opts.AnswerKey); err != nil {
			return fault("answer: %w", err)
		}
		if kindOf(raw) != "null" {
			var compact bytes.Buffer
			if err := json.Compact(&compact, raw); err != nil {
				return fault("answer: %w", err)
			}
			p.Answer = compact.Bytes()
		}
	}
	if id, ok := fields["id"]; ok && kindOf(id) != "null" {
		if p.ID, err = idOf(id); err != nil {
			return fault("%w", err)
		}
	}
	if earlier, taken := d.lines[p.ID]; taken {
		return fault("id %q was taken on line %d, expected one that is not", p.ID, earlier)
	}
	d.lines[p.ID] = line
	d.prompts = append(d.prompts, p)
	return nil
}

// idOf is the text of an "id" field.
func idOf(raw json.RawMessage) (string, error) {
	var id string
	if kindOf(raw) == "a string" {
		if err := json.Unmarshal(raw, &id); err != nil {
			return "", fmt.Errorf("id: %w", err)
		}
	} else if _, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		id = string(raw)
	}
	if id == "" {
		return "", fmt.Errorf("key \"id\" is %s, expected a string that is not empty or an integer", clip(raw))
	}
	return id, nil
}
