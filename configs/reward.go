package configs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/internal/secret"
	"github.com/easyrl/easyrl/internal/spelling"
	"github.com/easyrl/easyrl/reward"
)

// reward checks the section, including its named tables.
func (c *checks) reward() {
	r := c.resolved
	var reported []string
	err := r.Reward.Validate(r.Rollout.MaxTokens)
	if faults, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // errors.Join's own form is meant
		for _, err := range faults.Unwrap() {
			var f *reward.KeyFault
			if errors.As(err, &f) {
				key := joinKey(append([]string{"reward"}, f.Path...))
				c.faults = append(c.faults, &Fault{r.nearestOrigin(key), key + " " + f.Message})
				reported = append(reported, key)
			}
		}
	}
	c.idle(reported)
	c.checkHidden("reward.")
}

// checkMarks expects that a training reward grades no numbers without a mark.
func (c *checks) checkMarks() {
	for _, path := range c.resolved.Reward.Gameable() {
		key := joinKey(append([]string{"reward"}, path...))
		c.expect(false, key,
			"is %q, expected \"\" for training: a policy learns to end in numbers. "+
				"Set eval.marks to evaluate models that never mark", reward.AnyMarks)
	}
}

// checkHidden expects the keys with a prefix to have their passwords, which WriteFile hides.
func (c *checks) checkHidden(prefix string) {
	for _, f := range shapeOf(&c.resolved.Config).fields {
		if strings.HasPrefix(f.key, prefix) && !c.resolved.unused(f) && secret.Hidden(format(f.value)) {
			c.expect(false, f.key,
				"is %s, whose password is hidden in a run's %s; set the key in an overlay or with -set",
				format(f.value), RunFile)
		}
	}
}

// idle reports keys that are set, even to the default, although their kind of reward does not use them. It accepts
// a key from an earlier layer than the kind, since an earlier kind may have used it, and a key that several layers
// set, since the last one may undo the others. It skips keys in reported, whose faults are already known.
func (c *checks) idle(reported []string) {
	r := c.resolved
	for _, f := range shapeOf(&r.Config).fields {
		origin, kind := r.origins[f.key], parent(f.key)+".kind"
		isSet := origin.layer > 0
		olderThanKind := origin.layer < r.origins[kind].layer
		accepted := !f.idle || !isSet || origin.again || olderThanKind
		if accepted || slices.Contains(reported, f.key) || slices.Contains(reported, kind) {
			continue
		}
		c.faults = append(c.faults, &Fault{origin, f.key + " " + f.term.Unused(f.key[lastDot(f.key)+1:])})
	}
}

// CheckSources returns a *Fault for the first data source of the reward that no prompt
// has. found lists the data sources of the prompts.
func (r *Resolved) CheckSources(found []string) error {
	for _, source := range slices.Sorted(maps.Keys(r.Reward.Sources)) {
		if slices.Contains(found, source) || len(found) == 0 {
			continue
		}
		const shown = 10
		key, others := joinKey([]string{"reward", "sources", source}), quoted(found[:min(shown, len(found))])
		if more := len(found) - shown; more > 0 {
			others += fmt.Sprintf(" and %d more", more)
		}
		meant := "; prompts have"
		if near, ok := spelling.Near(source, found); ok {
			meant = fmt.Sprintf(", did you mean %q? Prompts have", near)
		}
		return &Fault{r.nearestOrigin(key + ".kind"),
			fmt.Sprintf("%s: no prompt has this data source%s %s", key, meant, others)}
	}
	return nil
}

// nearestOrigin returns where key was set or, for a default, the first line of its table.
func (r *Resolved) nearestOrigin(key string) Origin {
	if o, ok := r.origins[key]; ok {
		return o
	}
	table := parent(key)
	if o, ok := r.origins[table]; ok {
		return o
	}
	var first Origin
	for _, k := range slices.Sorted(maps.Keys(r.origins)) {
		if o := r.origins[k]; parent(k) == table && (first.File == "" || o.File == first.File && o.Line < first.Line) {
			first = o
		}
	}
	return first
}
