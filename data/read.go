// Package data reads prompts from JSONL, JSON and Parquet, in a resumable order.
package data

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/rollout"
)

// Options names the fields of a file's objects. A dotted key reaches into objects
// and, by index, into arrays: "reward_model.ground_truth", "prompt.0.content". A
// field whose own name contains the dots takes precedence.
//
// Without PromptKey the layout is recognized from a file's first object:
//
//	prompt     text or messages in prompt, question, problem, query, instruction
//	           or input, in any letter case; messages or conversations;
//	           SVAMP's Body and Question together
//	answer     reward_model.ground_truth (verl); answer, ground_truth, target,
//	           expected_answer, final_answer or gt_answer, from which only the part
//	           after #### (GSM8K) counts; else the last \boxed{…} of solution (MATH)
//
// If several candidates differ, the error names them. verl's prompt takes
// precedence over text fields. A chat that ends with an assistant turn is not a
// prompt if there is a text field.
type Options struct {
	PromptKey string // the prompt, a string or a list of messages; "" to recognize it
	AnswerKey string // the reward's reference answer, any JSON value; "" to recognize it, or if there is none
	SourceKey string // the data set's name, a string; "" for "data_source" if present
}

// ReadAll reads prompts from files and patterns such as "train-*.parquet", whose files it
// takes in name order. It returns one list per path. Formats are JSON objects, one per line;
// one JSON array of objects, possibly wrapped in an object under "examples", "data", "rows" or
// "instances"; and Parquet. Naming a file twice is an error.
//
// A prompt has Text, or Messages if the field is a list of chat messages. Token ids are left
// empty. So is the answer if it is null, or if an object lacks the key that others in the file
// have. Its Source is "data_source", or else the file's base name without extension.
//
// A prompt's ID is the object's "id" field (a string or an integer), or else "<file
// base>:<line>", in an array "<file base>:<element number from 1>", and in Parquet "<file
// base>:<row>". If two files have the same base name, IDs use a longer suffix of the path; an
// "id" already used in an earlier file is prefixed with "<file base>:".
//
// Errors name the file, the line and the keys found.
func ReadAll(paths []string, opts Options) ([][]rollout.Prompt, error) {
	files, err := expand(paths)
	if err != nil {
		return nil, err
	}
	out := make([][]rollout.Prompt, len(paths))
	ids := identities{}
	for _, f := range files {
		d := reader{label: f.label, opts: opts, ids: ids}
		d.records = records{path: f.path, explicit: []string{opts.PromptKey, opts.AnswerKey, opts.SourceKey},
			yield: d.prompt, accepts: d.accepts}
		if err := d.records.open(); err != nil {
			return nil, err
		}
		if d.keyless != nil && !d.keyed {
			return nil, d.keyless
		}
		out[f.part] = append(out[f.part], d.prompts...)
	}
	return out, nil
}

// identities has the place where each ID was used first.
type identities map[string]place

// place is the place of a record.
type place struct {
	path string
	line int
}

// claim returns the ID of a record and reserves it.
func (ids identities) claim(fields map[string]json.RawMessage, label string, number int, at place) (string, error) {
	id := label + ":" + strconv.Itoa(number)
	if raw, ok := fields["id"]; ok && isThere(raw) {
		given, err := ID(raw)
		if err != nil {
			return "", err
		}
		id = given
		if earlier, taken := ids[id]; taken && earlier.path != at.path {
			id = label + ":" + id
		}
	}
	if earlier, taken := ids[id]; taken {
		return "", fmt.Errorf("id %q is already used on line %d of %s", id, earlier.line, earlier.path)
	}
	ids[id] = at
	return id, nil
}

// reader converts one file's objects to prompts.
type reader struct {
	records records
	label   string // prefix of IDs
	opts    Options
	layout  *layout    // set from the first object
	ids     identities // shared by all files
	prompts []rollout.Prompt
	keyed   bool  // an object has the answer's key, or the layout has no answer
	keyless error // error about the first object without the answer's key, or nil
}

// accepts reports whether an object is itself a record.
func (d *reader) accepts(fields map[string]json.RawMessage) bool {
	l, err := recognise(fields, d.opts)
	if err != nil {
		return false
	}
	_, err = find(fields, l.prompt[0])
	return err == nil
}

// prompt adds the prompt of one object.
func (d *reader) prompt(r record) error {
	p, err := d.promptOf(r)
	if err != nil {
		return d.records.fault(r.line, err)
	}
	d.prompts = append(d.prompts, p)
	return nil
}

func (d *reader) promptOf(r record) (p rollout.Prompt, err error) {
	if d.layout == nil {
		l, err := recognise(r.fields, d.opts)
		if err != nil {
			return p, err
		}
		d.layout = &l
	}
	if p.Text, p.Messages, err = d.layout.promptOf(r.fields); err != nil {
		return p, err
	}
	if p.Answer, err = d.answerOf(r); err != nil {
		return p, err
	}
	if p.Source, err = sourceOf(r.fields, d.opts.SourceKey, d.records.path); err != nil {
		return p, err
	}
	p.ID, err = d.ids.claim(r.fields, d.label, r.number, place{d.records.path, r.line})
	return p, err
}

// answerOf reads an answer. A missing key counts as no answer, like null, if
// other objects of the file have the key.
func (d *reader) answerOf(r record) (json.RawMessage, error) {
	if d.layout.answer == "" && d.opts.PromptKey == "" {
		if err := d.layout.findAnswer(r.fields); err != nil {
			return nil, err
		}
	}
	answer, err := d.layout.answerOf(r.fields)
	if errors.Is(err, errNoKey) {
		d.keyless = cmp.Or(d.keyless, d.records.fault(r.line, err))
		return nil, nil
	}
	d.keyed = true
	return answer, err
}

// sourceOf returns the name of an object's data set: the field key, or if key is "" the field
// data_source or else the file's base name without extension.
func sourceOf(fields map[string]json.RawMessage, key, path string) (string, error) {
	base := filepath.Base(path)
	stem := strings.TrimSuffix(base, filepath.Ext(base))
	if key == "" {
		if raw := fields["data_source"]; isText(raw) {
			return text(raw)
		}
		return stem, nil
	}
	raw, err := find(fields, key)
	if err != nil {
		return "", fmt.Errorf("source: %w", err)
	}
	if !isText(raw) {
		return "", fmt.Errorf("source: key %q is %s, expected a string", key, kindOf(raw))
	}
	return text(raw)
}
