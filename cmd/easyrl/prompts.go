package main

import (
	"encoding/json"
	"fmt"

	"github.com/easyrl/easyrl/chat"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// prompts reads files of prompts as token ids, without those that are too long:
// one list for each path.
func (f *folder) prompts(paths []string, cfg *configs.Config, warn func(format string, args ...any)) ([][]rollout.Prompt, error) {
	if f.tok == nil {
		return nil, usagef("%s has no tokenizer files, which prompts need", f.dir)
	}
	lists, err := data.ReadAll(paths, data.Options{PromptKey: cfg.Data.PromptKey, AnswerKey: cfg.Data.AnswerKey, SourceKey: cfg.Data.SourceKey})
	if err != nil {
		return nil, usageError{err}
	}
	for k, path := range paths {
		for i := range lists[k] {
			p := &lists[k][i]
			if err := f.encode(p, &cfg.Data); err != nil {
				return nil, usagef("%s: prompt %s: %w", path, p.ID, err)
			}
			if p.Text == "" || len(p.IDs) == 0 {
				return nil, usagef("%s: prompt %s is empty", path, p.ID)
			}
		}
		if lists[k], err = scored(path, lists[k], &cfg.Reward, warn); err != nil {
			return nil, err
		}
		if lists[k], err = f.fitting(path, lists[k], cfg, warn); err != nil {
			return nil, err
		}
	}
	return lists, nil
}

// scored are the prompts that their reward can score: those without an answer
// that it compares with are counted, and one whose data source has no reward is
// an error.
func scored(path string, all []rollout.Prompt, cfg *reward.Config, warn func(format string, args ...any)) (kept []rollout.Prompt, err error) {
	first, kind := "", ""
	for i := range all {
		p := &all[i]
		rule := cfg.For(p.Source)
		if rule == nil {
			return nil, usagef("%s: prompt %s is of the data source %q, which has no reward: expected [reward.sources.%q], or reward.kind for all others",
				path, p.ID, p.Source, p.Source)
		}
		if len(p.Answer) > 0 || !rule.NeedsAnswer() {
			kept = append(kept, *p)
		} else if first == "" {
			first, kind = p.ID, rule.Kind
		}
	}
	dropped := len(all) - len(kept)
	if len(kept) == 0 {
		return nil, usagef("%s: prompt %s has no answer, which reward %q compares with, and so have all %d", path, first, kind, dropped)
	}
	if dropped > 0 {
		warn("%s: left out %d of %d prompts without an answer (%s first)", path, dropped, len(all), first)
	}
	return kept, nil
}

// fitting are the prompts that are short enough; the others are counted.
func (f *folder) fitting(path string, all []rollout.Prompt, cfg *configs.Config, warn func(format string, args ...any)) ([]rollout.Prompt, error) {
	limit := min(cfg.Data.MaxPromptTokens, f.shape.MaxPositions-1)
	kept, dropped := data.OverLong(all, limit)
	if len(kept) == 0 {
		return nil, usagef("%s: all %d prompts are longer than %d tokens", path, len(all), limit)
	}
	if len(dropped) > 0 {
		warn("%s: left out %d of %d prompts, longer than %d tokens (%s first)", path, len(dropped), len(all), limit, dropped[0])
	}
	if n := data.Duplicates(kept); n > 0 {
		warn("%s: %d of %d prompts repeat an earlier one", path, n, len(kept))
	}
	return kept, nil
}

// encode sets a prompt's text, as the template renders it, and its token ids.
func (f *folder) encode(p *rollout.Prompt, cfg *configs.Data) error {
	text, rendered, err := f.render(p.Text, p.Messages, cfg)
	if err != nil {
		return err
	}
	p.Text = text
	if rendered {
		p.IDs = f.tok.Encode(text) // the template says where a sequence begins
	} else {
		p.IDs = f.tok.EncodePrompt(text)
	}
	return nil
}

// render is a prompt as the model reads it: through the chat template where it
// is a conversation or data.template = "chat" makes it one, else as it is.
func (f *folder) render(text string, messages []rollout.Message, cfg *configs.Data) (out string, rendered bool, err error) {
	if messages == nil && cfg.Template != configs.TemplateChat {
		return cfg.System + text, false, nil
	}
	if cfg.Template == configs.TemplateNone {
		return "", false, fmt.Errorf("it is a conversation, and data.template is %q", configs.TemplateNone)
	}
	if f.chat == nil {
		return "", false, fmt.Errorf("%s has no chat template, which conversations need", f.source)
	}
	in, err := conversation(text, messages, cfg)
	if err != nil {
		return "", false, err
	}
	out, err = f.chat.Render(in)
	return out, true, err
}

// conversation is what the chat template makes a prompt of, up to the beginning
// of the assistant's turn.
func conversation(text string, messages []rollout.Message, cfg *configs.Data) (chat.Input, error) {
	if messages == nil {
		messages = []rollout.Message{{Role: "user", Content: text}}
	}
	in := chat.Input{AddGenerationPrompt: true}
	if !cfg.Thinking {
		in.Extra = map[string]any{"enable_thinking": false}
	}
	if cfg.System != "" && messages[0].Role != "system" {
		in.Messages = append(in.Messages, chat.Message{Role: "system", Content: cfg.System})
	}
	for _, m := range messages {
		t, err := turn(m)
		if err != nil {
			return in, err
		}
		in.Messages = append(in.Messages, t)
	}
	return in, nil
}

// turn is a message with all that it has.
func turn(m rollout.Message) (t chat.Message, err error) {
	t = chat.Message{Role: m.Role, Content: m.Content}
	if len(m.Extra) > 0 {
		t.Raw, err = rawTurn(m)
	}
	return t, err
}

// rawTurn is a message with all that it has as a JSON object.
func rawTurn(m rollout.Message) (json.RawMessage, error) {
	fields := map[string]any{"role": m.Role, "content": m.Content}
	for key, value := range m.Extra {
		fields[key] = value
	}
	return json.Marshal(fields)
}
