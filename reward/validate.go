package reward

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// Fault is a value that cannot be.
type Fault struct {
	Path    []string // of the key, below the section
	Message string   // "is 0, expected 1 or more"
}

// Error is the key and what is wrong with it.
func (f *Fault) Error() string { return strings.Join(f.Path, ".") + " " + f.Message }

// Validate reports all faults of c together, each a *Fault. A response has
// maxTokens at most.
func (c *Config) Validate(maxTokens int) error {
	v := &validation{maxTokens: maxTokens}
	if c.Kind != "" || len(c.Sources) == 0 {
		v.rule(&c.Rule)
	} else {
		v.others(&c.Term)
		v.parts(&c.Rule)
	}
	for _, source := range slices.Sorted(maps.Keys(c.Sources)) {
		below := &validation{[]string{"sources", source}, maxTokens, nil}
		below.rule(c.Sources[source])
		v.faults = append(v.faults, below.faults...)
	}
	return errors.Join(v.faults...)
}

// validation collects the faults of what is at path.
type validation struct {
	path      []string
	maxTokens int
	faults    []error
}

func (v *validation) expect(ok bool, key, format string, args ...any) {
	if !ok {
		v.faults = append(v.faults, &Fault{append(slices.Clone(v.path), key), fmt.Sprintf(format, args...)})
	}
}

func (v *validation) rule(r *Rule) {
	v.term(&r.Term, kinds())
	v.parts(r)
}

func (v *validation) parts(r *Rule) {
	if r.Kind != Sum {
		v.expect(len(r.Parts) == 0, "parts", "has %d parts, expected none with kind %q: they are for kind %q", len(r.Parts), r.Kind, Sum)
		return
	}
	v.expect(len(r.Parts) > 0, "parts", "is empty, expected a [reward.parts.<name>] or more with kind %q", Sum)
	for _, name := range slices.Sorted(maps.Keys(r.Parts)) {
		below := &validation{append(slices.Clone(v.path), "parts", name), v.maxTokens, nil}
		p := r.Parts[name]
		if !goodName(name) {
			v.expect(false, "parts", "has a part named %q, expected names without spaces and slashes", name)
		}
		below.term(&p.Term, slices.DeleteFunc(kinds(), func(kind string) bool { return kind == Sum }))
		below.expect(finite(p.Weight), "weight", "is %v, expected a finite number", p.Weight)
		v.faults = append(v.faults, below.faults...)
	}
}

// goodName reports whether a component may have the name, which is a part of its
// metrics' names.
func goodName(name string) bool { return name != "" && !strings.ContainsAny(name, "/ \t\n") }

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func (v *validation) term(t *Term, allowed []string) {
	if !slices.Contains(allowed, t.Kind) {
		v.expect(false, "kind", `is %q, expected one of "%s"`, t.Kind, strings.Join(allowed, `", "`))
		return
	}
	v.others(t)
	switch t.Kind {
	case GSM8K:
		v.expect(finite(t.FormatScore), "format_score", "is %v, expected a finite number", t.FormatScore)
	case Regex:
		v.expect(t.Compare == compareText || t.Compare == compareMath, "compare", "is %q, expected %q or %q", t.Compare, compareText, compareMath)
		v.section(RegexConfig{Pattern: t.Pattern, Math: t.Compare == compareMath}.validate())
	case Format:
		v.section(FormatConfig{Tags: t.Tags, Start: t.Start}.validate())
	case Overlong:
		v.section(OverlongConfig{MaxTokens: cmp.Or(t.MaxTokens, v.maxTokens), Buffer: t.Buffer}.validate())
	case Repetition:
		v.section(RepetitionConfig{Words: t.Words, Penalty: t.Penalty}.validate())
	case Command:
		v.expect(len(t.Command) > 0 && t.Command[0] != "", "command", "is empty, expected a program and its arguments")
		v.count("processes", t.Processes, 1, mostWorkers)
		v.expect(t.MemoryGiB >= 0 && t.MemoryGiB <= mostMemory, "memory_gib", "is %v, expected 0, which sets no limit, to %d", t.MemoryGiB, mostMemory)
	case HTTP:
		v.urls(t.URL)
		v.count("requests", t.Requests, 1, mostWorkers)
	}
	if t.Kind == Command || t.Kind == HTTP {
		v.count("batch", t.Batch, 1, mostBatch)
		v.expect(t.Timeout > 0 && t.Timeout <= maxTimeout, "timeout", "is %v, expected more than 0 and at most %v seconds", t.Timeout, maxTimeout)
		v.count("retries", t.Retries, 0, mostRetries)
	}
}

// The most that a section may ask for; more is a slip of the keyboard.
const (
	mostWorkers = 1024
	mostBatch   = 1024
	mostRetries = 100
	mostMemory  = 1 << 20
	maxTimeout  = 86400 // a day, in seconds
)

func (v *validation) count(key string, n, least, most int) {
	v.expect(n >= least && n <= most, key, "is %d, expected %d to %d", n, least, most)
}

// section takes the fault of a part that checks itself, which begins with its key.
func (v *validation) section(err error) {
	if err != nil {
		key, rest, _ := strings.Cut(err.Error(), " ")
		v.expect(false, key, "%s", rest)
	}
}

func (v *validation) urls(list []string) {
	v.expect(len(list) > 0, "url", "is not set, expected where the scorer listens")
	for _, text := range list {
		u, err := url.Parse(text)
		v.expect(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "url",
			"has %q, expected a URL such as http://127.0.0.1:9000/score", text)
	}
}

// others reports what is set that the term's kind has no use for.
func (v *validation) others(t *Term) {
	usual := defaultTerm()
	got, want := reflect.ValueOf(t).Elem(), reflect.ValueOf(usual)
	for i := range got.NumField() {
		key := got.Type().Field(i).Tag.Get("toml")
		if t.Takes(key) || reflect.DeepEqual(got.Field(i).Interface(), want.Field(i).Interface()) {
			continue
		}
		v.expect(false, key, "%s", t.Unused(key))
	}
}

// Unused is the message of a Fault about a key that is set and says nothing to the
// term's kind.
func (t *Term) Unused(key string) string {
	var users []string
	for _, kind := range kinds() {
		if slices.Contains(keys(kind), key) {
			users = append(users, kind)
		}
	}
	return fmt.Sprintf(`is set, expected none with kind %q: it is for "%s"`, t.Kind, strings.Join(users, `" and "`))
}
