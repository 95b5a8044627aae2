package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/rollout"
)

func generateVerb(std streams) verb {
	v := verb{
		name:    "generate",
		summary: "Sample responses to a prompt.",
		example: `easyrl generate -model DIR -prompt "123+456=" -n 4
			easyrl generate -model DIR -prompt-ids 1 -temperature 0 -json`,
		flags: newFlags(),
	}
	dir := v.flags.String("model", "", "`DIR` of a Hugging Face folder")
	prompt := v.flags.String("prompt", "", "`TEXT` of the prompt")
	promptIDs := v.flags.String("prompt-ids", "", "`IDS` of the prompt's tokens, such as 1,2,3")
	n := v.flags.Int("n", 1, "`N` responses")
	temperature := v.flags.Float64("temperature", 1, "`T` that divides the logits; 0 is greedy")
	topP := v.flags.Float64("top-p", 1, "`P` of the probability mass to keep")
	topK := v.flags.Int("top-k", 0, "`K` likeliest tokens to keep; 0 keeps all")
	minP := v.flags.Float64("min-p", 0, "`P` relative to the likeliest token's to keep")
	maxTokens := v.flags.Int("max-tokens", 200, "`N` tokens of a response at most")
	seed := v.flags.Uint64("seed", 1, "`S` of the draws")
	ignoreEOS := v.flags.Bool("ignore-eos", false, "do not stop at the end-of-sequence token")
	stop := v.flags.String("stop", "", "`TEXT` that ends a response")
	asJSON := v.flags.Bool("json", false, "print one object a response, with text, ids, logprobs and finish")
	threads := v.flags.Int("threads", 0, "`N` threads; 0 takes all cores")
	v.run = func(ctx context.Context, args []string) error {
		if len(args) > 0 || *dir == "" || (*prompt == "") == (*promptIDs == "") {
			return usagef("generate: expected -model DIR and one of -prompt and -prompt-ids (see easyrl generate -h)")
		}
		f, err := openFolder(*dir)
		if err != nil {
			return err
		}
		ids, err := f.promptIDs(*prompt, *promptIDs)
		if err != nil {
			return err
		}
		req := inference.Request{PromptIDs: ids, N: *n, Seed: *seed, Sampling: inference.Sampling{
			Temperature: float32(*temperature), TopP: float32(*topP), TopK: *topK, MinP: float32(*minP), MaxTokens: *maxTokens}}
		if !*ignoreEOS {
			req.Sampling.StopIDs = f.stops
		}
		if *stop != "" {
			req.Sampling.Stop = []string{*stop}
		}
		if err := checkRequest(req, *temperature); err != nil {
			return err
		}
		out, err := f.sample(ctx, *threads, req)
		if errors.Is(err, inference.ErrInvalid) { // for this model
			return usageError{err}
		}
		if err != nil {
			return err
		}
		return printCompletions(std, f, out, *asJSON)
	}
	return v
}

// checkRequest refuses what no instance could serve, on the command line.
func checkRequest(req inference.Request, temperature float64) error {
	if err := inference.CheckTemperature(temperature); err != nil {
		return usagef("temperature %w", err)
	}
	if err := req.Validate(); err != nil {
		return usageError{oneLine(err)}
	}
	return nil
}

// promptIDs are the tokens of a prompt given as text or as ids.
func (f *folder) promptIDs(text, list string) ([]int32, error) {
	if list == "" {
		if f.tok == nil {
			return nil, usagef("%s has no tokenizer files: give the prompt as -prompt-ids", f.dir)
		}
		return f.tok.EncodePrompt(text), nil
	}
	var ids []int32
	for part := range strings.SplitSeq(list, ",") {
		id, err := strconv.ParseInt(strings.TrimSpace(part), 10, 32)
		if err != nil || id < 0 || int(id) >= f.shape.VocabSize {
			return nil, usagef("generate: prompt id %q, expected 0 to %d", part, f.shape.VocabSize-1)
		}
		ids = append(ids, int32(id))
	}
	return ids, nil
}

// sample runs one request on an engine of its own.
func (f *folder) sample(ctx context.Context, threads int, req inference.Request) ([]inference.Completion, error) {
	dev, err := openDevice(configs.CPU, threads)
	if err != nil {
		return nil, err
	}
	defer dev.Close() //nolint:errcheck // nothing is left to do with it
	w, err := f.weights(dev)
	if err != nil {
		return nil, err
	}
	// The cache has room for what is asked, not for the model's whole context.
	room := min(f.shape.MaxPositions, len(req.PromptIDs)+min(req.Sampling.MaxTokens, f.shape.MaxPositions))
	e, err := f.engine(engine.Config{ID: "local", MaxRunning: min(req.N, 64), Context: room}, threads)
	if err != nil {
		return nil, err
	}
	defer e.Close() //nolint:errcheck // its memory goes with the process
	if _, err := e.Publish(ctx, model.NewSnapshot(w, 1)); err != nil {
		return nil, err
	}
	return e.Generate(ctx, req)
}

// engine starts an embedded instance of the folder's shape.
func (f *folder) engine(cfg engine.Config, threads int) (*engine.Engine, error) {
	dev, err := openDevice(configs.CPU, threads)
	if err != nil {
		return nil, err
	}
	var tok engine.Decoder
	if f.tok != nil {
		tok = f.tok
	}
	e, err := engine.New(cfg, f.shape, tok, dev)
	if err != nil {
		_ = dev.Close() // the engine's failure is the one to report
		return nil, err
	}
	return e, nil
}

func printCompletions(std streams, f *folder, out []inference.Completion, asJSON bool) error {
	p := printer{std.out}
	lines := json.NewEncoder(std.out)
	lines.SetEscapeHTML(false)
	for i := range out {
		c := &out[i]
		text := f.text(c.IDs)
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
		case f.tok == nil:
			p.line("%v", c.IDs)
		default:
			p.line("%s", text)
		}
	}
	return nil
}
