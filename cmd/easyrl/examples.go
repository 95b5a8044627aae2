package main

import (
	"cmp"
	"fmt"
	"slices"

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
		if cfg.SFT.Turns == configs.AllTurns {
			rows[k] = data.EachTurn(rows[k])
		} else if n := data.EarlierTurns(rows[k]); n > 0 {
			warn("%s: %d earlier turns of the assistant's in %d demonstrations are not trained, sft.turns = \"all\" trains them", path, n, len(rows[k]))
		}
		var dropped []string
		repeated, seen := 0, make(map[string]struct{}, len(rows[k]))
		for i := range rows[k] {
			row := &rows[k][i]
			reply := rollout.Message{Role: "assistant", Content: row.Response, Extra: row.Extra}
			prompt, response, rendered, err := f.turns(&cfg.Data).Demonstration(row.Prompt, row.Messages, reply)
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
