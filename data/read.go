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

// ErrEmpty is wrapped by the error about a file without prompts.
var ErrEmpty = errors.New("no prompts")

// Options name the fields of a file's objects. A key with dots reaches into
// objects and, by number, into arrays: "reward_model.ground_truth",
// "prompt.0.content". A field whose name has the dots itself comes first.
//
// Without PromptKey the layout is recognised from a file's first object:
//
//	prompt     text or messages in prompt, question, problem, query, instruction
//	           or input, in any case of letters; messages or conversations;
//	           SVAMP's Body and Question together
//	answer     reward_model.ground_truth (verl); answer, ground_truth, target,
//	           expected_answer, final_answer or gt_answer, and of one with ####
//	           (GSM8K) what follows it; else the last \boxed{…} of solution (MATH)
//
// Several candidates that differ are an error that names them. verl's prompt
// goes before any text beside it, and a chat that ends with the assistant's turn
// is no prompt where there is a text.
type Options struct {
	PromptKey string // the prompt, a string or a list of messages; "" to recognise it
	AnswerKey string // what the reward compares with, any JSON value; "" where there is none or it is to be recognised
	SourceKey string // the data set's name, a string; "" for "data_source" where it is there
}

// Read reads one file, or all that a pattern such as "train-*.parquet" names, in
// the order of their names: JSON objects, one a line; one JSON array of objects,
// or one object around it in "examples", "data", "rows" or "instances"; Parquet.
//
// A prompt has Text, or Messages where the field is a list of chat messages.
// Token ids are left empty, and so is an answer that is null, or whose key an
// object lacks that others of the file have. A prompt's ID is
// the object's "id" field (a string or an integer) or else "<file base>:<line>",
// in an array "<file base>:<number of the element, from 1>" and in Parquet that
// of the row; its Source is "data_source" or else the file's base without the
// extension. Errors name file, line, and the keys that are there.
func Read(path string, opts Options) ([]rollout.Prompt, error) {
	all, err := ReadAll([]string{path}, opts)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// ReadAll is Read for several paths and patterns: one list of prompts for each,
// IDs unique over all of them. Where two files have the same base, IDs have the
// end of the path that tells them apart; an "id" that an earlier file has gets
// "<file base>:" before it. A file that is named twice is an error.
func ReadAll(paths []string, opts Options) ([][]rollout.Prompt, error) {
	files, err := expand(paths)
	if err != nil {
		return nil, err
	}
	out := make([][]rollout.Prompt, len(paths))
	ids := identities{}
	for _, f := range files {
		d := reader{label: f.label, opts: opts, ids: ids}
		d.records = records{path: f.path, explicit: []string{opts.PromptKey, opts.AnswerKey, opts.SourceKey}, yield: d.prompt, accepts: d.accepts}
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

// identities are the places of IDs.
type identities map[string]place

type place struct {
	path string
	line int
}

// claim makes the ID of a record and takes it.
func (ids identities) claim(fields map[string]json.RawMessage, label string, number int, at place) (string, error) {
	id := label + ":" + strconv.Itoa(number)
	if raw, ok := fields["id"]; ok && isThere(raw) {
		given, err := idOf(raw)
		if err != nil {
			return "", err
		}
		id = given
		if earlier, taken := ids[id]; taken && earlier.path != at.path {
			id = label + ":" + id
		}
	}
	if earlier, taken := ids[id]; taken {
		return "", fmt.Errorf("id %q was taken on line %d of %s, expected one that is not", id, earlier.line, earlier.path)
	}
	ids[id] = at
	return id, nil
}

// reader turns one file's objects into prompts.
type reader struct {
	records records
	label   string // that IDs start with
	opts    Options
	layout  *layout // once the first object is known
	ids     identities
	prompts []rollout.Prompt
	keyed   bool  // an object has the answer's key
	keyless error // about the first that has not
}

// accepts says whether an object is a record itself.
func (d *reader) accepts(fields map[string]json.RawMessage) bool {
	l, err := recognise(fields, d.opts)
	if err != nil {
		return false
	}
	_, err = find(fields, l.prompt[0])
	return err == nil
}

// prompt adds one object.
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

// answerOf reads an answer. An object without the key has none, as one whose
// answer is null has, where others of the file have the key.
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

// sourceOf is the name of the data set that an object is of.
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
