package main

import (
	"cmp"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/data/turns"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// prompts reads files of prompts as token ids: one list for each path, and the
// number of those that it leaves out, too long or without an answer.
func (f *folder) prompts(paths []string, cfg *configs.Config, warn func(format string, args ...any)) (lists [][]rollout.Prompt, leftOut []int, err error) {
	if f.tok == nil {
		return nil, nil, usagef("%s has no tokenizer files, which prompts need", f.dir)
	}
	keys := data.Options{PromptKey: cfg.Data.PromptKey, AnswerKey: cfg.Data.AnswerKey, SourceKey: cfg.Data.SourceKey}
	if lists, err = data.ReadAll(paths, keys); err != nil {
		return nil, nil, usageError{err}
	}
	for k, path := range paths {
		all := len(lists[k])
		f.sources = data.Sources(f.sources, lists[k])
		for i := range lists[k] {
			p := &lists[k][i]
			if p.Messages == nil {
				f.plain = cmp.Or(f.plain, path)
			}
			if err := f.encode(p, &cfg.Data); err != nil {
				return nil, nil, usagef("%s: prompt %s: %w", path, p.ID, err)
			}
			if p.Text == "" || len(p.IDs) == 0 {
				return nil, nil, usagef("%s: prompt %s is empty", path, p.ID)
			}
		}
		if lists[k], err = scored(path, lists[k], &cfg.Reward, warn); err != nil {
			return nil, nil, err
		}
		if lists[k], err = f.fitting(path, lists[k], cfg, warn); err != nil {
			return nil, nil, err
		}
		leftOut = append(leftOut, all-len(lists[k]))
		for i := 0; i < len(lists[k]) && len(f.begins) < remote.CanaryTokens; i++ {
			f.begins = append(f.begins, lists[k][i].IDs...)
		}
	}
	return lists, leftOut, nil
}

// checkPrompts looks at all prompts of a run together: each data source that has a
// reward of its own has to have prompts, save where only the evaluation's prompts
// of a run that trains too were read, and text that goes to a chat model as it is
// is noted.
func (f *folder) checkPrompts(resolved *configs.Resolved, all bool, warn func(format string, args ...any)) error {
	if err := resolved.CheckSources(f.sources); all && err != nil {
		return usageError{err}
	}
	if f.chat != nil && resolved.Data.Template == configs.TemplateAuto && f.plain != "" {
		warn("%s: the model has a chat template, and these prompts are plain text: data.template = %q uses it, %q leaves this note out",
			f.plain, configs.TemplateChat, configs.TemplateNone)
	}
	return nil
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
		if !rule.Lacks(p.Answer) {
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
	if names := data.Having(kept, f.tok.Unknown()); len(names) > 0 {
		warn("%s: %d of %d prompts have characters that the model's tokenizer lacks (%s first)", path, len(names), len(kept), names[0])
	}
	return kept, nil
}

// encode sets a prompt's text, as the template renders it, and its token ids.
func (f *folder) encode(p *rollout.Prompt, cfg *configs.Data) error {
	text, rendered, err := f.turns(cfg).Prompt(p.Text, p.Messages)
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

// turns says how the folder's model reads conversations.
func (f *folder) turns(cfg *configs.Data) *turns.Renderer {
	return &turns.Renderer{Template: f.chat, Model: f.source, Never: cfg.Template == configs.TemplateNone,
		Always: cfg.Template == configs.TemplateChat, System: cfg.System, Thinking: cfg.Thinking}
}

// checkRoom refuses responses that the model's context can never hold, and says
// where some will end early.
func (r *trainRun) checkRoom(prompts []rollout.Prompt) error {
	context, most := r.folder.shape.MaxPositions, r.cfg.Rollout.MaxTokens
	if most >= context {
		return usagef("rollout.max_tokens is %d, expected %d at most: the model's context of %d holds the prompt too", most, context-1, context)
	}
	longest := 0
	for i := range prompts {
		longest = max(longest, len(prompts[i].IDs))
	}
	if longest+most > context {
		r.warn("the longest prompt has %d tokens: its responses end at the model's context of %d, before rollout.max_tokens = %d",
			longest, context, most)
	}
	return nil
}
