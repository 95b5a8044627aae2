package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/easyrl/easyrl/chat"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/trainer"
)

// examples reads files of demonstrations as token ids, without those that are
// too long: one list for each path.
func (f *folder) examples(paths []string, cfg *configs.Config, warn func(format string, args ...any)) ([][]trainer.Example, error) {
	if f.tok == nil {
		return nil, usagef("%s has no tokenizer files, which demonstrations need", f.dir)
	}
	rows, err := data.ReadExamples(paths, data.ExampleOptions{
		PromptKey: cmp.Or(cfg.SFT.PromptKey, cfg.Data.PromptKey), ResponseKey: cfg.SFT.ResponseKey, SourceKey: cfg.Data.SourceKey})
	if err != nil {
		return nil, usageError{err}
	}
	lists := make([][]trainer.Example, len(paths))
	for k, path := range paths {
		var dropped []string
		repeated, seen := 0, make(map[string]struct{}, len(rows[k]))
		for i := range rows[k] {
			row := &rows[k][i]
			prompt, response, rendered, err := f.demonstration(row, &cfg.Data)
			if err != nil {
				return nil, usagef("%s: demonstration %s: %w", path, row.ID, err)
			}
			e := f.encodeExample(prompt, response, rendered)
			if len(e.Prompt) == 0 || len(e.Response) == 0 {
				return nil, usagef("%s: demonstration %s: prompt and response need at least one token each", path, row.ID)
			}
			if len(e.Prompt) > cfg.Data.MaxPromptTokens || len(e.Prompt)+len(e.Response) > f.shape.MaxPositions {
				dropped = append(dropped, row.ID)
				continue
			}
			key := prompt + "\x00" + response
			if _, again := seen[key]; again {
				repeated++
			}
			seen[key] = struct{}{}
			lists[k] = append(lists[k], e)
		}
		limits := fmt.Sprintf("with a prompt of more than %d tokens or more than the model's context of %d in all", cfg.Data.MaxPromptTokens, f.shape.MaxPositions)
		if len(lists[k]) == 0 {
			return nil, usagef("%s: all %d demonstrations are too long, %s", path, len(rows[k]), limits)
		}
		if len(dropped) > 0 {
			warn("%s: left out %d of %d demonstrations, %s (%s first)", path, len(dropped), len(rows[k]), limits, dropped[0])
		}
		if repeated > 0 {
			warn("%s: %d of %d demonstrations repeat an earlier one", path, repeated, len(lists[k]))
		}
	}
	return lists, nil
}

// encodeExample is a demonstration as token ids. Prompt and response are encoded
// apart, as they are where the response is sampled. A response that no template
// ended ends with the model's end-of-sequence token.
func (f *folder) encodeExample(prompt, response string, rendered bool) trainer.Example {
	if rendered {
		return trainer.Example{Prompt: f.tok.Encode(prompt), Response: f.tok.Encode(response)}
	}
	e := trainer.Example{Prompt: f.tok.EncodePrompt(prompt), Response: f.tok.Encode(response)}
	if n := len(e.Response); len(f.stops) > 0 && (n == 0 || !slices.Contains(f.stops, e.Response[n-1])) {
		e.Response = append(e.Response, f.stops[0])
	}
	return e
}

// demonstration is a row's prompt, as it would be sampled from, and its response.
// Where the chat template renders the prompt, the two together are what it makes
// of the whole conversation, so that the response has the end of a turn.
func (f *folder) demonstration(row *data.Example, cfg *configs.Data) (prompt, response string, rendered bool, err error) {
	prompt, rendered, err = f.render(row.Prompt, row.Messages, cfg)
	if err != nil || !rendered {
		return prompt, row.Response, false, err
	}
	in, err := conversation(row.Prompt, row.Messages, cfg)
	if err != nil {
		return "", "", false, err
	}
	in.AddGenerationPrompt = false
	response, err = f.reply(in, prompt, rollout.Message{Role: "assistant", Content: row.Response, Extra: row.Extra})
	return prompt, response, true, err
}

// reply is the assistant's turn that follows a rendered prompt: what the template
// makes of the message. Where that leaves a part of the message out, as templates
// do with thoughts of turns gone by, or the prompt has the message's first words
// already, as <think>, it is the message itself from there on, with the end that
// the template gives a turn.
func (f *folder) reply(in chat.Input, prompt string, m rollout.Message) (string, error) {
	with := func(m rollout.Message) (string, error) {
		t, err := turn(m)
		if err != nil {
			return "", err
		}
		all := in
		all.Messages = append(slices.Clone(in.Messages), t)
		return f.chat.Render(all)
	}
	whole, err := with(m)
	if err != nil {
		return "", err
	}
	rest, continues := strings.CutPrefix(whole, prompt)
	shared := overlap(prompt, m.Content)
	if continues && strings.Contains(withoutSpace(shared+rest), withoutSpace(m.Content)) {
		return rest, nil
	}
	const marker = "where the message stands"
	frame, err := with(rollout.Message{Role: m.Role, Content: marker})
	if err != nil {
		return "", err
	}
	at := strings.LastIndex(frame, marker)
	if at < 0 {
		return "", errors.New("the chat template leaves the response out")
	}
	said := shared // by the prompt, of the turn
	if !strings.HasPrefix(frame, prompt) {
		said = prompt[common(prompt, frame):]
	}
	content, goesOn := strings.CutPrefix(m.Content, strings.TrimSpace(said))
	if !goesOn || strings.TrimSpace(said) == "" && !continues {
		return "", fmt.Errorf("the chat template ends the prompt with %q, expected a response that goes on from there, found one that begins with %q",
			tail(prompt, 30), head(m.Content, 30))
	}
	if said != "" {
		content = strings.TrimLeft(content, "\n")
	}
	return content + frame[at+len(marker):], nil
}

// overlap is the longest end of prompt, of a few words, that content begins with.
func overlap(prompt, content string) string {
	for n := min(len(prompt), len(content), 64); n > 0; n-- {
		if strings.HasSuffix(prompt, content[:n]) {
			return content[:n]
		}
	}
	return ""
}

// common is the length of what a and b both begin with.
func common(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func withoutSpace(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}

// tail is the end of s, of n runes at most, and head its beginning.
func tail(s string, n int) string {
	runes := []rune(s)
	return string(runes[max(0, len(runes)-n):])
}

func head(s string, n int) string {
	runes := []rune(s)
	return string(runes[:min(n, len(runes))])
}
