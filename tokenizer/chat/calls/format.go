// Package calls finds tool calls in a model's text.
package calls

import (
	"regexp"
	"strings"
)

// Format is the syntax of a model's tool calls. The model's chat template states it.
type Format int

// The formats, by the templates that use them.
const (
	None   Format = iota // no calls, or an unknown syntax
	Tagged               // Hermes, Qwen: <tool_call>{"name": …, "arguments": {…}}</tool_call>
	// Qwen3-Coder: <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>
	Elements
	Bare   // Llama 3: the text is {"name": …, "parameters": {…}}
	List   // Mistral: [TOOL_CALLS][{"name": …, "arguments": {…}}]
	Fenced // DeepSeek: its own tags around names and fenced JSON
)

const (
	openTag, closeTag = "<tool_call>", "</tool_call>"
	pythonTag         = "<|python_tag|>"
	listTag           = "[TOOL_CALLS]"
	functionTag       = "<function="

	fencesOpen, fencesClose = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
	fenceOpen, fenceClose   = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
	fenceName               = "<｜tool▁sep｜>"
)

// Of returns the format of a chat template's tool calls.
func Of(template string) Format {
	has := func(text string) bool { return strings.Contains(template, text) }
	switch {
	case has(openTag) && has(functionTag):
		return Elements
	case has(openTag) && has("arguments") && !has("<arg_key>"):
		return Tagged
	case has(fencesOpen):
		return Fenced
	case has(listTag) && !has("[ARGS]"):
		return List
	case has(`{"name": function name, "parameters": `):
		return Bare
	}
	return None
}

// ForTools reports whether a chat template renders tools: whether the variable tools occurs
// in an if or a for.
func ForTools(template string) bool {
	return regexp.MustCompile(`\{%-?\s*(if|elif|for)\b[^%]*[^\w.'"]tools\b`).MatchString(template)
}

// Markers returns the texts of f that a tokenizer may treat as special tokens.
func (f Format) Markers() []string {
	switch f {
	case Tagged, Elements:
		return []string{openTag, closeTag}
	case Bare:
		return []string{pythonTag}
	case List:
		return []string{listTag}
	case Fenced:
		return []string{fencesOpen, fencesClose, fenceOpen, fenceClose, fenceName}
	}
	return nil
}

// bounds returns the texts around calls. If end is "", calls reach to the end of the text. For
// None and Bare, both are "".
func (f Format) bounds() (start, end string) {
	switch f {
	case Tagged, Elements:
		return openTag, closeTag
	case List:
		return listTag, ""
	case Fenced:
		return fencesOpen, fencesClose
	}
	return "", ""
}
