package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/chat"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/trainer"
)

// prompts reads files of prompts as token ids, without those that are too long:
// one list for each path.
func (f *folder) prompts(paths []string, cfg *configs.Config, warn func(format string, args ...any)) ([][]rollout.Prompt, error) {
	if f.tok == nil {
		return nil, usagef("%s has no tokenizer files, which prompts need", f.dir)
	}
	lists, err := data.ReadAll(paths, data.Options{PromptKey: cfg.Data.PromptKey, AnswerKey: cfg.Data.AnswerKey})
	if err != nil {
		return nil, usageError{err}
	}
	compares := cfg.Reward.Kind != reward.Command // with the answer; a program may not need it
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
		if compares {
			kept, dropped := data.Unanswered(lists[k])
			if len(kept) == 0 {
				return nil, usagef("%s: prompt %s has no answer, which reward %q compares with, and so have all %d",
					path, dropped[0], cfg.Reward.Kind, len(dropped))
			}
			if len(dropped) > 0 {
				warn("%s: left out %d of %d prompts without an answer (%s first)", path, len(dropped), len(lists[k]), dropped[0])
			}
			lists[k] = kept
		}
		if lists[k], err = f.fitting(path, lists[k], cfg, warn); err != nil {
			return nil, err
		}
	}
	return lists, nil
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
		turn := chat.Message{Role: m.Role, Content: m.Content}
		if len(m.Extra) > 0 {
			if turn.Raw, err = rawTurn(m); err != nil {
				return "", false, err
			}
		}
		in.Messages = append(in.Messages, turn)
	}
	out, err = f.chat.Render(in)
	return out, true, err
}

// rawTurn is a message with all that it has as a JSON object.
func rawTurn(m rollout.Message) (json.RawMessage, error) {
	fields := map[string]any{"role": m.Role, "content": m.Content}
	for key, value := range m.Extra {
		fields[key] = value
	}
	return json.Marshal(fields)
}

// examples reads the demonstrations; a response ends with the model's
// end-of-sequence token.
func (f *folder) examples(cfg *configs.Config) ([]trainer.Example, error) {
	if f.tok == nil {
		return nil, usagef("%s has no tokenizer files, which demonstrations need", f.dir)
	}
	lists, err := data.ReadExamples(cfg.SFT.Data, data.ExampleOptions{PromptKey: cfg.Data.PromptKey})
	if err != nil {
		return nil, usageError{err}
	}
	var out []trainer.Example
	for _, row := range slices.Concat(lists...) {
		p := rollout.Prompt{ID: row.ID, Text: row.Prompt, Messages: row.Messages}
		if err := f.encode(&p, &cfg.Data); err != nil {
			return nil, usagef("%s: %w", row.ID, err)
		}
		e := trainer.Example{Prompt: p.IDs, Response: f.tok.Encode(row.Response)}
		if n := len(e.Response); len(f.stops) > 0 && (n == 0 || !slices.Contains(f.stops, e.Response[n-1])) {
			e.Response = append(e.Response, f.stops[0])
		}
		if len(e.Prompt) == 0 || len(e.Response) == 0 {
			return nil, usagef("%s: %s: prompt and response need at least one token each", strings.Join(cfg.SFT.Data, ", "), row.ID)
		}
		if n := len(e.Prompt) + len(e.Response); n > f.shape.MaxPositions {
			return nil, usagef("%s: %s: %d tokens, but the model's context is %d", strings.Join(cfg.SFT.Data, ", "), row.ID, n, f.shape.MaxPositions)
		}
		out = append(out, e)
	}
	return out, nil
}
