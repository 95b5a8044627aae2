package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/easyrl/easyrl/internal/filetype"
)

// The files of a model folder that Load reads.
const (
	templateFile  = "chat_template.jinja"
	processorFile = "chat_template.json"
	configFile    = "tokenizer_config.json"
	specialsFile  = "special_tokens_map.json"
	toolFile      = "additional_chat_templates/tool_use.jinja"
)

// specialNames returns the tokens that templates may use.
func specialNames() []string {
	return []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}
}

// named is a named template: "default", or "tool_use" for conversations with tools.
type named struct{ Name, Template string }

// Load reads a model folder's special tokens and its chat template: chat_template.jinja,
// else chat_template.json, else tokenizer_config.json. Of several named templates it
// takes the default one and the one for tools. It returns ErrNone if the folder has none.
func Load(dir string) (*Template, error) {
	sources, err := find(dir)
	if err != nil {
		return nil, fmt.Errorf("load chat template of %s: %w", dir, err)
	}
	specials, err := readSpecials(dir)
	if err != nil {
		return nil, fmt.Errorf("load special tokens of %s: %w", dir, err)
	}
	var t, tools *Template
	for _, source := range sources {
		parsed, err := Parse(source.Template, specials)
		if err != nil {
			return nil, fmt.Errorf("load chat template %q of %s: %w", source.Name, dir, err)
		}
		switch source.Name {
		case "default":
			t = parsed
		case "tool_use":
			tools = parsed
		}
	}
	if t == nil {
		return nil, fmt.Errorf("load chat template of %s: %d named templates, but none is named default", dir,
			len(sources))
	}
	if tools != nil {
		t.tools, t.calls, t.forTools = tools.body, tools.calls, true
	}
	return t, nil
}

// read returns a file's content, or nil if the file does not exist.
func read(dir, name string) ([]byte, error) {
	data, err := filetype.Read(filepath.Join(dir, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// find returns the folder's templates that Load uses, or ErrNone.
func find(dir string) ([]named, error) {
	data, err := read(dir, templateFile)
	if err != nil {
		return nil, err
	}
	if data != nil {
		sources := []named{{Name: "default", Template: string(data)}}
		data, err := read(dir, toolFile)
		if data != nil {
			sources = append(sources, named{Name: "tool_use", Template: string(data)})
		}
		return sources, err
	}
	for _, name := range []string{processorFile, configFile} {
		data, err := read(dir, name)
		if err != nil {
			return nil, err
		}
		var file struct {
			Template json.RawMessage `json:"chat_template"`
		}
		if data != nil {
			if err := json.Unmarshal(data, &file); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		if len(file.Template) > 0 && string(file.Template) != "null" {
			return decodeTemplates(name, file.Template)
		}
	}
	return nil, ErrNone
}

// decodeTemplates decodes a template, a list of named ones, or an object of them by name. It
// returns those named default or tool_use.
func decodeTemplates(file string, data json.RawMessage) ([]named, error) {
	var one string
	var list []named
	var object map[string]string
	switch {
	case json.Unmarshal(data, &one) == nil:
		list = []named{{Name: "default", Template: one}}
	case json.Unmarshal(data, &list) == nil:
	case json.Unmarshal(data, &object) == nil:
		for name, template := range object {
			list = append(list, named{Name: name, Template: template})
		}
	default:
		return nil, fmt.Errorf("%s: chat_template %.40s, expected a string or a list of named templates", file, data)
	}
	var used []named
	for _, n := range list {
		if n.Name == "default" || n.Name == "tool_use" {
			used = append(used, n)
		}
	}
	return used, nil
}

// readSpecials reads the special tokens: each a string, or an object with its content.
// tokenizer_config.json takes precedence over special_tokens_map.json.
func readSpecials(dir string) (Specials, error) {
	specials := Specials{}
	for _, name := range []string{specialsFile, configFile} {
		data, err := read(dir, name)
		if err != nil {
			return nil, err
		}
		if data == nil {
			continue
		}
		var file map[string]json.RawMessage
		if err := json.Unmarshal(data, &file); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, special := range specialNames() {
			var token struct{ Content *string }
			text := file[special]
			if json.Unmarshal(text, &token.Content) != nil { // not a string
				token.Content = nil
				if json.Unmarshal(text, &token) != nil { // nor an object: ignored
					continue
				}
			}
			if token.Content != nil {
				specials[special] = *token.Content
			}
		}
	}
	return specials, nil
}
