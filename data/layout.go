package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/rollout"
)

// The following functions return names of fields that data sets use, in any letter case.

func chatNames() []string { return []string{"prompt", "messages", "conversations"} }

func textNames() []string {
	return []string{"prompt", "question", "problem", "query", "instruction", "input"}
}

func answerNames() []string {
	return []string{"answer", "ground_truth", "target", "expected_answer", "final_answer", "gt_answer"}
}

func responseNames() []string { return []string{"response", "completion", "output"} }

func otherNames() []string {
	return []string{"body", "solution", "reward_model", "id", "data_source"}
}

// wrapperNames returns the names of fields that wrap a file's records in a single
// object.
func wrapperNames() []string { return []string{"examples", "data", "rows", "instances"} }

const verlAnswer = "reward_model.ground_truth"

// derive selects how to extract an answer from a field.
type derive uint8

const (
	asIs   derive = iota // the value of the field
	hashes               // afterHashes of its text
	boxed                // lastBoxed of its text
)

// layout maps fields of a file's objects to their roles.
type layout struct {
	prompt   []string // one key, or the keys of several texts to join
	join     string   // separator between the texts of several prompt keys
	answer   string   // key of the answer; "" for none
	derive   derive
	unread   bool   // no answer has been read yet: the first one may change derive
	response string // key of the response; "" if it is the last turn of the prompt's chat
}

// ambiguous returns an error about several candidate fields for one role.
func ambiguous(what, setting string, found []string) error {
	quoted := make([]string, len(found))
	for i, key := range found {
		quoted[i] = strconv.Quote(key)
	}
	return fmt.Errorf("%s: found %s; set %s to choose one", what, strings.Join(quoted, " and "), setting)
}

// folded finds the field that matches name: the exact match, or else the first in
// order that differs only in case.
func folded(fields map[string]json.RawMessage, name string) (key string, ok bool) {
	if _, ok := fields[name]; ok {
		return name, true
	}
	for k := range fields {
		if strings.EqualFold(k, name) && (!ok || k < key) {
			key, ok = k, true
		}
	}
	return key, ok
}

// having returns the fields that match one of names and for which keep returns
// true.
func having(fields map[string]json.RawMessage, names []string, keep func(json.RawMessage) bool) []string {
	var found []string
	for _, name := range names {
		if key, ok := folded(fields, name); ok && keep(fields[key]) {
			found = append(found, key)
		}
	}
	return found
}

func isText(raw json.RawMessage) bool { return kindOf(raw) == "a string" }

// isThere reports whether a field has a value other than null.
func isThere(raw json.RawMessage) bool { return kindOf(raw) != "nothing" && kindOf(raw) != "null" }

// agree keeps only the first key if all keys have the same value.
func agree(fields map[string]json.RawMessage, found []string) []string {
	for _, key := range found[min(1, len(found)):] {
		if !bytes.Equal(fields[key], fields[found[0]]) {
			return found
		}
	}
	return found[:min(1, len(found))]
}

// recognise finds the layout of prompts from a file's first object. It takes keys
// in opts literally.
func recognise(fields map[string]json.RawMessage, opts Options) (layout, error) {
	if opts.PromptKey != "" {
		return layout{prompt: []string{opts.PromptKey}, answer: opts.AnswerKey}, nil
	}
	_, err := find(fields, verlAnswer)
	verl := err == nil
	var l layout
	if err := l.findPrompt(fields, verl); err != nil {
		return l, err
	}
	if opts.AnswerKey != "" {
		l.answer = opts.AnswerKey
		return l, nil
	}
	return l, l.findAnswer(fields)
}

// findPrompt sets the fields of the prompt. If preferChat is set, a chat that ends with a
// reply competes with text fields; otherwise the text fields win.
func (l *layout) findPrompt(fields map[string]json.RawMessage, preferChat bool) error {
	texts := agree(fields, having(fields, textNames(), isText))
	chats := agree(fields, having(fields, chatNames(), looksLikeMessages))
	if len(chats) > 0 && strings.EqualFold(chats[0], "prompt") {
		chats, texts = chats[:1], nil // the others hold the full conversation or its source
	}
	if len(texts) > 0 && len(chats) == 1 && endsWithReply(fields[chats[0]]) && !preferChat {
		chats = nil // a demonstration that answers the text
	}
	if slices.Equal(lower(texts), []string{"instruction", "input"}) {
		l.join = "\n"
		if string(fields[texts[1]]) == `""` { // an instruction without input
			texts = texts[:1]
		}
	} else if found := append(chats, texts...); len(found) > 1 {
		return ambiguous("prompt", "data.prompt_key", found)
	}
	switch {
	case len(chats) == 1:
		l.prompt = chats
	case len(texts) == 0:
		if err := whyNot("prompt", fields, append(textNames(), chatNames()[1:]...)); err != nil {
			return err
		}
		return fmt.Errorf("prompt: no known field (%s), found %s; set data.prompt_key",
			strings.Join(append(textNames(), chatNames()[1:]...), ", "), keys(fields))
	default:
		l.prompt = texts
	}
	body := having(fields, []string{"body"}, isText)
	isQuestion := len(texts) == 1 && strings.EqualFold(texts[0], "question")
	if len(body) == 1 && isQuestion { // SVAMP
		l.prompt = []string{body[0], texts[0]}
		l.join = " "
	}
	return nil
}

// whyNot returns an error about the first field with one of these names and the wrong type,
// or nil.
func whyNot(what string, fields map[string]json.RawMessage, names []string) error {
	for _, key := range having(fields, names, func(raw json.RawMessage) bool { return kindOf(raw) != "nothing" }) {
		switch kind := kindOf(fields[key]); kind {
		case "a string": // not the cause
		case "an array":
			if _, err := Messages(fields[key]); err != nil {
				return fmt.Errorf("%s: key %q: %w", what, key, err)
			}
		default:
			return fmt.Errorf("%s: key %q is %s, expected a string or a list of messages", what, key, kind)
		}
	}
	return nil
}

func lower(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = strings.ToLower(name)
	}
	return out
}

// endsWithReply reports whether raw is a chat that ends with an assistant turn after another
// turn.
func endsWithReply(raw json.RawMessage) bool {
	chat, err := Messages(raw)
	if err != nil {
		return false
	}
	_, _, ok := beforeReply(chat)
	return ok
}

// findAnswer sets the field of the answer, if any. Files need not have answers,
// and neither do the first objects of a file that has some.
func (l *layout) findAnswer(fields map[string]json.RawMessage) error {
	if _, err := find(fields, verlAnswer); err == nil {
		l.answer = verlAnswer
		return nil
	}
	found := agree(fields, having(fields, answerNames(), func(json.RawMessage) bool { return true }))
	found = slices.DeleteFunc(found, func(key string) bool { return slices.Contains(l.prompt, key) })
	if len(found) > 1 {
		return ambiguous("answer", "data.answer_key", found)
	}
	if len(found) == 1 {
		l.answer, l.unread = found[0], true
		return nil
	}
	if found = having(fields, []string{"solution"}, isText); len(found) == 1 {
		s, err := text(fields[found[0]])
		if err != nil {
			return err
		}
		l.answer, l.derive = found[0], boxed
		if _, ok := afterHashes(s); ok && !strings.Contains(s, `\boxed`) {
			l.derive = hashes
		}
	}
	return nil
}

// wanted returns those of a file's columns that a layout may use. explicit are the keys in
// the options.
func wanted(names []string, explicit ...string) []string {
	known := slices.Concat(chatNames(), textNames(), answerNames(), responseNames(), otherNames(), wrapperNames())
	var out []string
	for _, name := range names {
		usual := func(k string) bool { return strings.EqualFold(k, name) }
		named := func(key string) bool { return key == name || strings.HasPrefix(key, name+".") }
		if slices.ContainsFunc(known, usual) || slices.ContainsFunc(explicit, named) {
			out = append(out, name)
		}
	}
	return out
}

// promptOf reads the prompt of one object: text, or a chat. It removes a chat's final reply
// unless the field is named prompt.
func (l *layout) promptOf(fields map[string]json.RawMessage) (string, []rollout.Message, error) {
	var parts []string
	for _, key := range l.prompt {
		raw, err := find(fields, key)
		if err != nil {
			return "", nil, fmt.Errorf("prompt: %w", err)
		}
		switch kind := kindOf(raw); {
		case kind == "an array" && len(l.prompt) == 1:
			chat, err := Messages(raw)
			if err != nil {
				return "", nil, fmt.Errorf("prompt: key %q: %w", key, err)
			}
			if !strings.EqualFold(key, "prompt") {
				chat, _, _ = beforeReply(chat)
			}
			return "", chat, nil
		case kind != "a string":
			return "", nil, fmt.Errorf("prompt: key %q is %s, expected a string or a list of messages", key, kind)
		}
		s, err := text(raw)
		if err != nil {
			return "", nil, fmt.Errorf("prompt: %w", err)
		}
		parts = append(parts, s)
	}
	if l.join == " " { // a question after its context
		parts[0] = strings.TrimSpace(parts[0])
	}
	return strings.Join(parts, l.join), nil, nil
}

// errNoKey is wrapped by answerOf's error if the object lacks the answer's key.
var errNoKey = errors.New("answer")

// answerOf reads the answer of one object, nil if there is none. The first answer that it
// reads decides whether the field holds worked answers with ####.
func (l *layout) answerOf(fields map[string]json.RawMessage) (json.RawMessage, error) {
	if l.answer == "" {
		return nil, nil
	}
	raw, err := find(fields, l.answer)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoKey, err)
	}
	if !isThere(raw) {
		return nil, nil
	}
	if string(raw) == `""` {
		return raw, nil // nothing to derive from
	}
	if l.unread {
		l.unread = false
		if s, err := text(raw); err == nil {
			if _, ok := afterHashes(s); ok {
				l.derive = hashes
			}
		}
	}
	if l.derive == asIs {
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil {
			return nil, fmt.Errorf("answer: %w", err)
		}
		return compact.Bytes(), nil
	}
	s, err := text(raw)
	if err != nil {
		return nil, fmt.Errorf("answer: key %q is %s, expected a string", l.answer, kindOf(raw))
	}
	answer, ok := lastBoxed(s)
	what := `\boxed{…}`
	if l.derive == hashes {
		answer, ok = afterHashes(s)
		what = "answer after ####"
	}
	if !ok {
		return nil, fmt.Errorf("answer: key %q has no %s", l.answer, what)
	}
	return json.Marshal(answer)
}

// inner returns the list of records wrapped in a file's single object.
func inner(fields map[string]json.RawMessage) (json.RawMessage, bool) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		raw := fields[name]
		if !slices.Contains(wrapperNames(), strings.ToLower(name)) || kindOf(raw) != "an array" {
			continue
		}
		var elements []map[string]json.RawMessage
		if json.Unmarshal(raw, &elements) == nil && len(elements) > 0 && elements[0] != nil && !looksLikeMessages(raw) {
			return raw, true
		}
	}
	return nil, false
}
