package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/internal/plain"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/run"
)

func generateVerb(std streams) cli.Verb {
	v := cli.Verb{
		Name:    "generate",
		Summary: "Sample responses to a prompt.",
		Example: `easyrl generate -model DIR -prompt "123+456=" -n 4
			easyrl generate -model DIR -prompt-ids 1 -temperature 0 -json`,
		Flags: cli.NewFlags(),
	}
	dir := v.Flags.String("model", "", "`DIR` Hugging Face model folder")
	prompt := v.Flags.String("prompt", "", "`TEXT` prompt")
	promptIDs := v.Flags.String("prompt-ids", "", "`IDS` prompt as token ids, such as 1,2,3")
	n := v.Flags.Int("n", 1, "`N` number of responses")
	temperature := v.Flags.Float64("temperature", 1, "`T` sampling temperature; 0 is greedy")
	topP := v.Flags.Float64("top-p", 1, "`P` sample from the likeliest tokens that make up probability P; 1 keeps all")
	topK := v.Flags.Int("top-k", 0, "`K` sample from the K likeliest tokens; 0 keeps all")
	minP := v.Flags.Float64("min-p", 0, "`P` drop tokens less likely than P times the likeliest")
	maxTokens := v.Flags.Int("max-tokens", 200, "`N` maximum tokens per response")
	seed := v.Flags.Uint64("seed", 1, "`S` random seed")
	ignoreEOS := v.Flags.Bool("ignore-eos", false, "do not stop at the end-of-sequence token")
	stop := v.Flags.String("stop", "", "`TEXT` end a response when it contains TEXT")
	asJSON := v.Flags.Bool("json", false, "print one JSON object per response, with its exact text, ids, logprobs "+
		"and finish; without -json control characters are printed as escapes")
	threads := v.Flags.Int("threads", 0, "`N` CPU threads; 0 uses all cores")
	device, numerics := deviceFlags(v.Flags)
	v.Run = func(ctx context.Context, args []string) error {
		if len(args) > 0 || *dir == "" || (*prompt == "") == (*promptIDs == "") {
			return usage.Errorf(
				"generate: expected -model DIR and one of -prompt and -prompt-ids (see easyrl generate -h)")
		}
		f, err := folder.Open(*dir)
		if err != nil {
			return err
		}
		ids, err := tokensOf(f, *prompt, *promptIDs)
		if err != nil {
			return err
		}
		req := inference.Request{PromptIDs: ids, N: *n, Seed: *seed, Sampling: inference.Sampling{
			Temperature: float32(*temperature), TopP: float32(*topP), TopK: *topK, MinP: float32(*minP),
			MaxTokens: *maxTokens}}
		if !*ignoreEOS {
			req.Sampling.StopIDs = f.StopIDs
		}
		if *stop != "" {
			req.Sampling.Stop = []string{*stop}
		}
		if err := checkRequest(req, *temperature); err != nil {
			return err
		}
		out, err := run.Sample(ctx, f, *device, *numerics, *threads, req)
		if errors.Is(err, inference.ErrInvalid) { // the request does not fit this model
			return usage.Wrap(err)
		}
		if err != nil {
			return err
		}
		return printCompletions(std, f, out, *asJSON)
	}
	return v
}

// checkRequest returns a usage error for a request that no instance can serve. temperature is the
// request's, before rounding to float32.
func checkRequest(req inference.Request, temperature float64) error {
	if err := inference.CheckTemperature(temperature); err != nil {
		return usage.Errorf("temperature %w", err)
	}
	if err := req.Validate(); err != nil {
		return usage.Wrap(usage.OneLine(err))
	}
	return nil
}

// tokensOf returns the tokens of a prompt: of text, or if list is not empty, the ids in it.
func tokensOf(f *folder.Folder, text, list string) ([]int32, error) {
	if list == "" {
		if f.Tokenizer == nil {
			return nil, usage.Errorf("%s has no tokenizer files; pass the prompt as -prompt-ids", f.Dir)
		}
		return f.Tokenizer.EncodePrompt(text)
	}
	var ids []int32
	for part := range strings.SplitSeq(list, ",") {
		id, err := strconv.ParseInt(strings.TrimSpace(part), 10, 32)
		if err != nil || id < 0 || int(id) >= f.Shape.VocabSize {
			return nil, usage.Errorf("generate: prompt id is %q, expected 0 to %d", part, f.Shape.VocabSize-1)
		}
		ids = append(ids, int32(id))
	}
	return ids, nil
}

// printCompletions prints a line for each response: its text, its ids if the model has no tokenizer, or JSON.
func printCompletions(std streams, f *folder.Folder, out []inference.Completion, asJSON bool) error {
	p := cli.Printer{W: std.out}
	lines := json.NewEncoder(plain.JSONWriter{W: std.out})
	lines.SetEscapeHTML(false)
	for i := range out {
		c := &out[i]
		text := f.Text(c.IDs)
		switch {
		case asJSON:
			err := lines.Encode(struct {
				Text     string         `json:"text"`
				IDs      []int32        `json:"ids"`
				Logprobs []float32      `json:"logprobs"`
				Finish   rollout.Finish `json:"finish"`
			}{text, c.IDs, c.Logprobs, c.Finish})
			if err != nil {
				return err
			}
		case f.Tokenizer == nil:
			p.Line("%v", c.IDs)
		default:
			p.Line("%s", text)
		}
	}
	return nil
}
