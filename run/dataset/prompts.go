// Package dataset reads a run's prompts and demonstrations as token ids that its
// model takes.
package dataset

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/sourcegraph/conc/iter"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/run/evaluate"
)

// Reader reads the files of one run. It is not safe for concurrent use.
type Reader struct {
	folder       *folder.Folder
	cfg          *configs.Config
	canaryTokens int
	warn         func(format string, args ...any)

	sources []string // data sources of all prompts read
	plain   string   // first file with plain-text prompts; empty if there is none
	canary  []int32
}

// New returns a reader for a model and a run. The reader keeps the first prompts' tokens for CanaryTokens, at least
// canaryTokens if all prompts together have as many. warn receives a line for each kind of row that is dropped or
// looks wrong.
func New(f *folder.Folder, cfg *configs.Config, canaryTokens int, warn func(format string, args ...any)) *Reader {
	return &Reader{folder: f, cfg: cfg, canaryTokens: canaryTokens, warn: warn}
}

// CanaryTokens returns the first tokens of the prompts read.
func (r *Reader) CanaryTokens() []int32 { return r.canary }

// Prompts reads files of prompts. It returns a list per path and the number of prompts
// dropped from each because they are too long or have no reference answer that their reward
// finds right.
func (r *Reader) Prompts(ctx context.Context, paths []string) (lists [][]rollout.Prompt, dropped []int, err error) {
	f := r.folder
	if f.Tokenizer == nil {
		return nil, nil, usage.Errorf("%s has no tokenizer files, required for prompts", f.Dir)
	}
	if lists, err = data.ReadAll(paths, r.keys()); err != nil {
		return nil, nil, usage.Wrap(err)
	}
	for k, path := range paths {
		all := len(lists[k])
		r.sources = data.Sources(r.sources, lists[k])
		var huge []string
		if lists[k], huge, err = r.encodeAll(ctx, path, lists[k]); err != nil {
			return nil, nil, err
		}
		if lists[k], err = r.scorable(path, lists[k]); err != nil {
			return nil, nil, err
		}
		if lists[k], err = r.fitting(path, lists[k], huge); err != nil {
			return nil, nil, err
		}
		dropped = append(dropped, all-len(lists[k]))
		for i := 0; i < len(lists[k]) && len(r.canary) < r.canaryTokens; i++ {
			r.canary = append(r.canary, lists[k][i].IDs...)
		}
	}
	return lists, dropped, nil
}

// encodeAll encodes prompts. huge holds the IDs of prompts with so many bytes that they must have too many tokens;
// encodeAll does not encode them.
func (r *Reader) encodeAll(ctx context.Context, path string, all []rollout.Prompt) (
	kept []rollout.Prompt, huge []string, err error) {
	maxBytes := r.folder.Tokenizer.Longest(longestPrompt(r))
	for i := range all {
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		p := &all[i]
		if sizeOf(p.Text, p.Messages) > maxBytes {
			huge = append(huge, p.ID)
			continue
		}
		if p.Messages == nil {
			r.plain = cmp.Or(r.plain, path)
		}
		if err := r.encode(p); err != nil {
			return nil, nil, usage.Errorf("%s: prompt %s: %w", path, p.ID, err)
		}
		if p.Text == "" || len(p.IDs) == 0 {
			return nil, nil, usage.Errorf("%s: prompt %s is empty", path, p.ID)
		}
		kept = append(kept, *p)
	}
	if len(kept) == 0 {
		return nil, nil, allTooLong(path, huge, longestPrompt(r))
	}
	return kept, huge, nil
}

// allTooLong returns the error of a file none of whose prompts fits.
func allTooLong(path string, dropped []string, limit int) error {
	return usage.Errorf("%s: all %d prompts are longer than %d tokens", path, len(dropped), limit)
}

// longestPrompt returns the maximum number of tokens of a prompt. It leaves room for one token of the response.
func longestPrompt(r *Reader) int {
	return min(r.cfg.Data.MaxPromptTokens, r.folder.Shape.MaxPositions-1)
}

// sizeOf returns the number of bytes of a text and of a conversation.
func sizeOf(text string, messages []rollout.Message) int {
	n := len(text)
	for _, m := range messages {
		n += len(m.Content)
		for _, v := range m.Extra {
			n += len(v)
		}
	}
	return n
}

// CheckSources returns an error if a reward is for a data source without prompts.
func (r *Reader) CheckSources(resolved *configs.Resolved) error {
	return usage.Wrap(resolved.CheckSources(r.sources))
}

// WarnPlainText warns if the model has a chat template but prompts are plain text that
// it does not render.
func (r *Reader) WarnPlainText() {
	if r.folder.Template != nil && r.cfg.Data.Template == configs.TemplateAuto && r.plain != "" {
		r.warn("%s: the model has a chat template but these prompts are plain text. Set data.template to %q to "+
			"apply the template, or to %q to silence this warning.",
			r.plain, configs.TemplateChat, configs.TemplateNone)
	}
}

// EvalSets reads the held-out prompts of data.eval. It returns the first eval.prompts of
// each set, or all if eval.prompts is 0.
func (r *Reader) EvalSets(ctx context.Context) ([]evaluate.Set, error) {
	cfg := r.cfg
	if len(cfg.Data.Eval) == 0 {
		return nil, nil
	}
	files, err := data.Files(cfg.Data.Eval)
	if err != nil {
		return nil, usage.Wrap(err)
	}
	lists, dropped, err := r.Prompts(ctx, files)
	if err != nil {
		return nil, err
	}
	var sets []evaluate.Set
	for _, named := range evaluate.Names(files) {
		set := evaluate.Set{Name: named.Name}
		for _, i := range named.Files {
			set.Prompts = append(set.Prompts, lists[i]...)
			set.LeftOut += dropped[i]
		}
		if n := cfg.Eval.Prompts; n > 0 {
			set.Prompts = set.Prompts[:min(n, len(set.Prompts))]
		}
		sets = append(sets, set)
	}
	return sets, nil
}

// Endless returns the endless training order: a function from a place in it to a prompt,
// drawn from the lists by their weights and seed. It is safe for concurrent use.
func (r *Reader) Endless(lists [][]rollout.Prompt, seed uint64) (func(place int) rollout.Prompt, error) {
	sizes := make([]int, len(lists))
	for i := range lists {
		sizes[i] = len(lists[i])
	}
	order, err := data.NewMix(sizes, r.cfg.Data.Weights, seed, r.cfg.Data.Shuffle)
	if err != nil {
		return nil, usage.Wrap(err)
	}
	all := slices.Concat(lists...)
	var mu sync.Mutex
	return func(place int) rollout.Prompt {
		mu.Lock()
		defer mu.Unlock()
		return all[order.At(place)]
	}, nil
}

// scorable returns the prompts whose reward can find a response right, and warns about the others: those without
// the reference answer that their reward needs, and those whose answer it finds wrong (gradable). A data source
// without a reward is an error.
func (r *Reader) scorable(path string, all []rollout.Prompt) (kept []rollout.Prompt, err error) {
	first, kind := "", ""
	for i := range all {
		p := &all[i]
		rule := r.cfg.Reward.For(p.Source)
		if rule == nil {
			return nil, usage.Errorf("%s: prompt %s has data source %q, which has no reward; set "+
				"[reward.sources.%q], or reward.kind for all other sources",
				path, p.ID, p.Source, p.Source)
		}
		if !rule.Lacks(p.Answer) {
			kept = append(kept, *p)
		} else if first == "" {
			first, kind = p.ID, rule.Kind
		}
	}
	dropped := len(all) - len(kept)
	if len(kept) == 0 {
		return nil, usage.Errorf("%s: none of %d prompts has a reference answer, required by reward %q (first %s)%s",
			path, dropped, kind, first, r.answerFields(path))
	}
	if dropped > 0 {
		r.warn("%s: dropped %d of %d prompts without a reference answer (first %s)%s", path, dropped, len(all), first,
			r.answerFields(path))
	}
	r.warnForwarded(path, kept)
	r.warnForms(path, kept)
	return r.gradable(path, kept)
}

const (
	maxRefused = 0.01 // share of a file's prompts that may be refused; more fail the file
	maxNamed   = 10   // number of refused prompts that a message names
)

// gradable returns the prompts whose reference answer their reward finds right, and warns about
// the others. A file with many others is an error: its answers are not for this reward.
func (r *Reader) gradable(path string, all []rollout.Prompt) (kept []rollout.Prompt, err error) {
	reasons := iter.Map(all, func(p *rollout.Prompt) string { return r.cfg.Reward.For(p.Source).Refuses(p) })
	if !slices.ContainsFunc(reasons, func(reason string) bool { return reason != "" }) {
		return all, nil
	}
	var named []string
	kind := ""
	for i, reason := range reasons {
		if reason == "" {
			kept = append(kept, all[i])
		} else if len(named) < maxNamed {
			named = append(named, fmt.Sprintf("%s: %s", all[i].ID, reason))
			kind = cmp.Or(kind, r.cfg.Reward.For(all[i].Source).Kind)
		}
	}
	refused := len(all) - len(kept)
	first := strings.Join(named, ", ")
	if float64(refused) > maxRefused*float64(len(all)) {
		return nil, usage.Errorf("%s: reward %q finds %d of %d reference answers wrong, expected at most %v%% "+
			"(first %s); correct or remove them, or set another reward.kind",
			path, kind, refused, len(all), 100*maxRefused, first)
	}
	r.warn("%s: dropped %d of %d prompts whose reference answer reward %q finds wrong (first %s)", path, refused,
		len(all), kind, first)
	return kept, nil
}

// fitting returns the prompts that are short enough and warns about the others, also those
// that were too large to encode. It also warns about repeated prompts and unknown
// characters.
func (r *Reader) fitting(path string, all []rollout.Prompt, huge []string) ([]rollout.Prompt, error) {
	limit := longestPrompt(r)
	kept, dropped := data.OverLong(all, limit)
	dropped = append(dropped, huge...)
	if len(kept) == 0 {
		return nil, allTooLong(path, dropped, limit)
	}
	if len(dropped) > 0 {
		r.warn("%s: dropped %d of %d prompts longer than %d tokens (first %s)", path, len(dropped),
			len(kept)+len(dropped), limit, dropped[0])
	}
	if n := data.Duplicates(kept); n > 0 {
		r.warn("%s: %d of %d prompts repeat an earlier one", path, n, len(kept))
	}
	if names := data.Having(kept, r.folder.Tokenizer.Unknown()); len(names) > 0 {
		r.warn("%s: %d of %d prompts have characters that the model's tokenizer lacks (first %s)", path, len(names),
			len(kept), names[0])
	}
	return kept, nil
}

// encode renders a prompt's text with the chat template and sets its token ids.
func (r *Reader) encode(p *rollout.Prompt) error {
	tok := r.folder.Tokenizer
	text, rendered, err := r.renderer().prompt(p.Text, p.Messages)
	if err != nil {
		return err
	}
	p.Text = text
	if rendered {
		p.IDs, err = tok.Encode(text) // the template includes the beginning-of-sequence token
	} else {
		p.IDs, err = tok.EncodePrompt(text)
	}
	return err
}

// renderer returns the renderer of conversations for the folder's model.
func (r *Reader) renderer() *renderer {
	d := &r.cfg.Data
	return &renderer{template: r.folder.Template, model: r.folder.Source, never: d.Template == configs.TemplateNone,
		always: d.Template == configs.TemplateChat, system: d.System, thinking: d.Thinking}
}

// CheckContext returns an error if rollout.max_tokens cannot fit into the model's
// context, and warns if it does not fit after the longest prompt.
func (r *Reader) CheckContext(prompts []rollout.Prompt) error {
	positions, maxTokens := r.folder.Shape.MaxPositions, r.cfg.Rollout.MaxTokens
	if maxTokens >= positions {
		return usage.Errorf(
			"rollout.max_tokens is %d, expected %d at most: the model's context is %d tokens, prompt included",
			maxTokens, positions-1, positions)
	}
	longest := 0
	for i := range prompts {
		longest = max(longest, len(prompts[i].IDs))
	}
	if longest+maxTokens > positions {
		r.warn("the longest prompt has %d tokens; its responses end at the model's context of %d tokens, before "+
			"rollout.max_tokens = %d",
			longest, positions, maxTokens)
	}
	return nil
}
