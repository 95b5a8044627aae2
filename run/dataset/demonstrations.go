package dataset

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/run/evaluate"
	"github.com/easyrl/easyrl/trainer"
)

// Demonstrations reads files of demonstrations and drops those that are too long. It
// returns a list per path.
func (r *Reader) Demonstrations(ctx context.Context, paths []string) ([][]trainer.Demonstration, error) {
	f, cfg := r.folder, r.cfg
	if f.Tokenizer == nil {
		return nil, usage.Errorf("%s has no tokenizer files, required for demonstrations", f.Dir)
	}
	rows, err := data.ReadExamples(paths, data.ExampleOptions{
		PromptKey: cfg.Data.PromptKey, ResponseKey: cfg.SFT.ResponseKey, SourceKey: cfg.Data.SourceKey})
	if err != nil {
		return nil, usage.Wrap(err)
	}
	lists := make([][]trainer.Demonstration, len(paths))
	for k, path := range paths {
		if cfg.SFT.Turns == configs.AllTurns {
			rows[k] = data.EachTurn(rows[k])
		} else if n := data.EarlierTurns(rows[k]); n > 0 {
			r.warn("%s: %d earlier assistant turns in %d demonstrations are not trained. Train them with sft.turns "+
				"= \"all\".", path, n, len(rows[k]))
		}
		var dropped []string
		repeated, seen := 0, make(map[string]struct{}, len(rows[k]))
		for i := range rows[k] {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			row := &rows[k][i]
			e, key, err := r.demonstration(row)
			if err != nil {
				return nil, usage.Errorf("%s: demonstration %s: %w", path, row.ID, err)
			}
			if e == nil {
				dropped = append(dropped, row.ID)
				continue
			}
			if _, again := seen[key]; again {
				repeated++
			}
			seen[key] = struct{}{}
			lists[k] = append(lists[k], *e)
		}
		limits := fmt.Sprintf("limits are data.max_prompt_tokens = %d and the model's context of %d tokens",
			cfg.Data.MaxPromptTokens, f.Shape.MaxPositions)
		if len(lists[k]) == 0 {
			return nil, usage.Errorf("%s: all %d demonstrations are too long: %s", path, len(rows[k]), limits)
		}
		if len(dropped) > 0 {
			r.warn("%s: dropped %d of %d demonstrations that are too long (first %s): %s", path, len(dropped),
				len(rows[k]), dropped[0], limits)
		}
		if repeated > 0 {
			r.warn("%s: %d of %d demonstrations repeat an earlier one", path, repeated, len(lists[k]))
		}
	}
	return lists, nil
}

// demonstration renders and encodes a row, or returns nil if it is too long. Rows with equal
// texts have equal keys.
func (r *Reader) demonstration(row *data.Example) (e *trainer.Demonstration, key string, err error) {
	positions := r.folder.Shape.MaxPositions
	if sizeOf(row.Prompt, row.Messages)+len(row.Response) > r.folder.Tokenizer.Longest(positions) {
		return nil, "", nil
	}
	reply := rollout.Message{Role: "assistant", Content: row.Response, Extra: row.Extra}
	prompt, response, rendered, err := r.renderer().demonstration(row.Prompt, row.Messages, reply)
	if err != nil {
		return nil, "", err
	}
	promptIDs, responseIDs, err := encodeDemonstration(r.folder, prompt, response, rendered)
	if err != nil {
		return nil, "", err
	}
	if len(promptIDs) == 0 || len(responseIDs) == 0 {
		return nil, "", errors.New("an empty prompt or response, expected at least one token each")
	}
	if len(promptIDs) > r.cfg.Data.MaxPromptTokens || len(promptIDs)+len(responseIDs) > positions {
		return nil, "", nil
	}
	e = &trainer.Demonstration{Prompt: promptIDs, Spans: rollout.Demonstrated(responseIDs)}
	return e, prompt + "\x00" + response, nil
}

// encodeDemonstration encodes prompt and response separately, as in sampling. A response
// that no chat template has terminated gets the model's end-of-sequence token.
func encodeDemonstration(
	f *folder.Folder, prompt, response string, rendered bool,
) (promptIDs, responseIDs []int32, err error) {
	encodePrompt := f.Tokenizer.EncodePrompt
	if rendered {
		encodePrompt = f.Tokenizer.Encode
	}
	if promptIDs, err = encodePrompt(prompt); err != nil {
		return nil, nil, err
	}
	if responseIDs, err = f.Tokenizer.Encode(response); err != nil {
		return nil, nil, err
	}
	if n := len(responseIDs); !rendered && len(f.StopIDs) > 0 &&
		(n == 0 || !slices.Contains(f.StopIDs, responseIDs[n-1])) {
		responseIDs = append(responseIDs, f.StopIDs[0])
	}
	return promptIDs, responseIDs, nil
}

// HeldOut reads the demonstrations of sft.eval, which are evaluated but not trained
// on. It returns the first eval.prompts of each set, or all if eval.prompts is 0.
func (r *Reader) HeldOut(ctx context.Context) (sets []trainer.HeldOut, err error) {
	cfg := r.cfg
	if len(cfg.SFT.Eval) == 0 {
		return nil, nil
	}
	files, err := data.Files(cfg.SFT.Eval)
	if err != nil {
		return nil, usage.Wrap(err)
	}
	lists, err := r.Demonstrations(ctx, files)
	if err != nil {
		return nil, err
	}
	for _, named := range evaluate.Names(files) {
		set := trainer.HeldOut{Name: named.Name}
		for _, i := range named.Files {
			set.Examples = append(set.Examples, lists[i]...)
		}
		if n := cfg.Eval.Prompts; n > 0 {
			set.Examples = set.Examples[:min(n, len(set.Examples))]
		}
		sets = append(sets, set)
	}
	return sets, nil
}
