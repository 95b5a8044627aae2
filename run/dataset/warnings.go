package dataset

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/run/evaluate"
	"github.com/easyrl/easyrl/trainer"
)

// keys returns the fields that the run names.
func (r *Reader) keys() data.Options {
	d := &r.cfg.Data
	return data.Options{PromptKey: d.PromptKey, AnswerKey: d.AnswerKey, SourceKey: d.SourceKey}
}

// answerFields returns the end of a message about missing reference answers: which fields the
// rows have.
func (r *Reader) answerFields(path string) string {
	fields := data.Fields(path, r.keys())
	switch key := r.cfg.Data.AnswerKey; {
	case fields == "":
		return ""
	case key != "":
		return fmt.Sprintf("; data.answer_key is %q and its rows have the fields %s", key, fields)
	}
	return fmt.Sprintf("; its rows have the fields %s: set data.answer_key to the one with the answer", fields)
}

// warnForwarded warns about prompts without a reference answer whose reward hands answers to a
// program or service.
func (r *Reader) warnForwarded(path string, all []rollout.Prompt) {
	first, kind, n := "", "", 0
	for i := range all {
		rule := r.cfg.Reward.For(all[i].Source)
		if missing(all[i].Answer) && rule.Forwards() {
			n++
			if n == 1 {
				first, kind = all[i].ID, rule.Kind
			}
		}
	}
	if n > 0 {
		r.warn("%s: %d of %d prompts have no reference answer, so reward %q gets null (first %s)%s", path, n, len(all),
			kind, first, r.answerFields(path))
	}
}

// warnForms warns about reference answers that are no text and that their reward compares as
// JSON, which no response is likely to equal.
func (r *Reader) warnForms(path string, all []rollout.Prompt) {
	count, first := map[string]int{}, map[string]*rollout.Prompt{}
	for i := range all {
		p := &all[i]
		rule, form := r.cfg.Reward.For(p.Source), formOf(p.Answer)
		if form == "" || rule.Forwards() || form != objects && !rule.Verbatim() {
			continue
		}
		count[form]++
		if count[form] == 1 {
			first[form] = p
		}
	}
	for _, f := range []struct{ form, remedy string }{
		{objects, `set data.answer_key to the field inside that holds the answer, such as "answer.value"`},
		{lists, `reward.kind = "math" accepts any answer of a list; data.answer_key = "answer.0" selects the first`},
		{decimals, "a response must state all of it; write whole numbers without a point"},
	} {
		if p := first[f.form]; p != nil {
			r.warn("%s: %d of %d reference answers are %s, which reward %q compares as JSON text (first %s: %.40s); %s",
				path, count[f.form], len(all), f.form, r.cfg.Reward.For(p.Source).Kind, p.ID, p.Answer, f.remedy)
		}
	}
}

// Forms of answers that are no text.
const (
	objects  = "objects"
	lists    = "lists"
	decimals = "whole numbers with a decimal point"
)

// formOf returns the form of an answer that is no text, or "" for text and other answers.
func formOf(answer json.RawMessage) string {
	switch text := string(answer); {
	case strings.HasPrefix(text, "{"):
		return objects
	case strings.HasPrefix(text, "["):
		return lists
	case strings.HasSuffix(text, ".0"):
		return decimals
	}
	return ""
}

// missing reports whether an answer is absent or null.
func missing(answer json.RawMessage) bool { return len(answer) == 0 || string(answer) == "null" }

// Warn receives a line about data that looks wrong.
type Warn func(format string, args ...any)

// WarnRepeats warns if a step has more rows (size) than the data (count), so that it repeats some. key is the
// configuration key of size, files the key of the data.
func WarnRepeats(warn Warn, size, count int, key, files string) {
	if size <= count {
		return
	}
	warn("%s is %d but %s has only %d usable rows, so each step repeats some. Lower %s to %d, or add data.", key, size,
		files, count, key, count)
}

// WarnOverlap warns about held-out prompts that the run also trains on.
func WarnOverlap(warn Warn, training []rollout.Prompt, sets []evaluate.Set) {
	trained := map[string]struct{}{}
	for i := range training {
		trained[training[i].Text] = struct{}{}
	}
	for i := range sets {
		shared := 0
		for j := range sets[i].Prompts {
			if _, ok := trained[sets[i].Prompts[j].Text]; ok {
				shared++
			}
		}
		warnShared(warn, "data.eval", "data.train", sets[i].Name, "prompts", shared, len(sets[i].Prompts))
	}
}

// WarnHeldOut warns about held-out demonstrations that the run also trains on.
func WarnHeldOut(warn Warn, training []trainer.Demonstration, sets []trainer.HeldOut) {
	key := func(d *trainer.Demonstration) string { return fmt.Sprint(d.Prompt, d.Spans.IDs()) }
	trained := map[string]struct{}{}
	if len(sets) > 0 {
		for i := range training {
			trained[key(&training[i])] = struct{}{}
		}
	}
	for i := range sets {
		shared := 0
		for j := range sets[i].Examples {
			if _, ok := trained[key(&sets[i].Examples[j])]; ok {
				shared++
			}
		}
		warnShared(warn, "sft.eval", "sft.data", sets[i].Name, "demonstrations", shared, len(sets[i].Examples))
	}
}

// warnShared warns if some of a held-out set's rows are also trained on. held and training are configuration keys.
func warnShared(warn Warn, held, training, name, what string, shared, all int) {
	if shared > 0 {
		warn("%s: %d of %d %s of set %q are also in %s, so results on them do not show how the model does on new ones",
			held, shared, all, what, name, training)
	}
}
