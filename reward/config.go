package reward

import (
	"encoding/json"
	"regexp"
	"slices"
)

// The kinds of reward.
const (
	// Exact compares the whole response with the answer.
	Exact = "exact"
	// Prefix gives credit for each leading character that is right.
	Prefix = "prefix"
	// Math grades the answer that a response gives, in whatever form.
	Math = "math"
	// GSM8K compares the number that a response ends with.
	GSM8K = "gsm8k"
	// Regex compares what a regular expression finds.
	Regex = "regex"
	// Format looks for tags such as <think>…</think>.
	Format = "format"
	// Overlong punishes responses that come near the length limit.
	Overlong = "overlong"
	// Repetition punishes words that repeat.
	Repetition = "repetition"
	// Command asks a program, over JSON lines.
	Command = "command"
	// HTTP asks a service, over JSON.
	HTTP = "http"
	// Sum is the weighted sum of named parts. A response is right, for pass@k, where
	// all parts that compare with the answer find it so, whatever their weights.
	Sum = "sum"
)

// Config says how responses are scored.
type Config struct {
	Rule
	// Sources are the rules for prompts of these data sets, by name. Prompts of
	// other data sets take the section's own, if it has a kind.
	Sources map[string]*Rule `toml:"sources"`
}

// Rule says how a response is scored.
type Rule struct {
	Term
	// Parts are what kind "sum" adds up, by name.
	Parts map[string]*Part `toml:"parts"`
}

// Part is one term of a sum.
type Part struct {
	Term
	// Weight that the part's score is multiplied by; with 0 it is logged alone.
	Weight float64 `toml:"weight"`
}

// Term is a kind of reward and what the kinds can be told: each key is for the
// kinds that it names.
type Term struct {
	// Kind of reward: "exact", "prefix", "math", "gsm8k", "regex", "format",
	// "overlong", "repetition", "command", "http" or "sum".
	Kind string `toml:"kind"`
	// Think lets "exact" skip one leading <think>…</think>.
	Think bool `toml:"think"`
	// Trim makes "exact" ignore white space around response and answer.
	Trim bool `toml:"trim"`
	// Flexible lets "gsm8k" take the last number, also without "#### " before it.
	Flexible bool `toml:"flexible"`
	// FormatScore is what "gsm8k" gives for a wrong number in the right place.
	FormatScore float64 `toml:"format_score"`
	// Pattern of "regex", in RE2 syntax. The last match of its group is what is
	// compared with the answer; without a group, to match is enough.
	Pattern string `toml:"pattern"`
	// Compare is how "regex" compares: "text", letter by letter, or "math".
	Compare string `toml:"compare"`
	// Tags of "format", each once and in this order.
	Tags []string `toml:"tags"`
	// Start lets "format" accept nothing but white space before the first tag.
	Start bool `toml:"start"`
	// MaxTokens is the length limit of "overlong"; 0 takes rollout.max_tokens.
	MaxTokens int `toml:"max_tokens" unit:"tokens"`
	// Buffer is the number of tokens before the limit of "overlong" over which the
	// punishment grows.
	Buffer int `toml:"buffer" unit:"tokens"`
	// Words of "repetition" that count as one, in a row.
	Words int `toml:"words" unit:"words"`
	// Penalty of "repetition" for a response that only repeats, less than 0.
	Penalty float64 `toml:"penalty"`
	// Command is the program of "command" and its arguments.
	Command []string `toml:"command"`
	// Processes of "command", at most.
	Processes int `toml:"processes" unit:"processes"`
	// MemoryGiB is what a process of "command" and its children may have in
	// memory; one with more is killed. 0 sets no limit. Linux only.
	MemoryGiB float64 `toml:"memory_gib" unit:"GiB"`
	// URL is where "http" asks; of several each request takes the next.
	URL []string `toml:"url"`
	// Requests of "http" under way at once, at most.
	Requests int `toml:"requests" unit:"requests"`
	// Batch is the most responses that "command" and "http" hand over at once: what
	// waits is taken, and nothing is waited for.
	Batch int `toml:"batch" unit:"responses"`
	// Timeout of "command" and "http" in seconds, for one answer, counted from
	// when it is asked for; a program's first one includes its start.
	Timeout float64 `toml:"timeout" unit:"s"`
	// Retries of "command" and "http" after a failure that may pass. A service
	// that answers nothing at all is tried for a minute, unless this is 0.
	Retries int `toml:"retries" unit:"times"`
}

// Default is the exact comparison.
func Default() Config {
	c := Config{Rule: DefaultRule()}
	c.Kind = Exact
	return c
}

// DefaultRule is a rule without a kind.
func DefaultRule() Rule { return Rule{Term: defaultTerm()} }

// DefaultPart is a part without a kind that counts once.
func DefaultPart() Part { return Part{Term: defaultTerm(), Weight: 1} }

func defaultTerm() Term {
	return Term{Compare: compareText, Tags: DefaultFormat().Tags, Start: DefaultFormat().Start,
		Processes: 4, MemoryGiB: 8, Requests: 8, Batch: 1, Timeout: 30, Retries: 2}
}

const (
	compareText = "text"
	compareMath = "math"
)

// keys are what a kind can be told.
func keys(kind string) []string {
	switch kind {
	case Exact:
		return []string{"think", "trim"}
	case GSM8K:
		return []string{"flexible", "format_score"}
	case Regex:
		return []string{"pattern", "compare"}
	case Format:
		return []string{"tags", "start"}
	case Overlong:
		return []string{"max_tokens", "buffer"}
	case Repetition:
		return []string{"words", "penalty"}
	case Command:
		return []string{"command", "processes", "memory_gib", "batch", "timeout", "retries"}
	case HTTP:
		return []string{"url", "requests", "batch", "timeout", "retries"}
	}
	return nil
}

func kinds() []string {
	return []string{Exact, Prefix, Math, GSM8K, Regex, Format, Overlong, Repetition, Command, HTTP, Sum}
}

// Takes reports whether key says something to the term's kind.
func (t *Term) Takes(key string) bool { return key == "kind" || slices.Contains(keys(t.Kind), key) }

// For is the rule of a data set's prompts, nil where there is none.
func (c *Config) For(source string) *Rule {
	if rule, ok := c.Sources[source]; ok {
		return rule
	}
	if c.Kind == "" {
		return nil
	}
	return &c.Rule
}

// Lacks reports whether the rule compares with the prompt's answer and answer is
// none: null, an empty list or, save for kinds "exact" and "prefix", empty text.
func (r *Rule) Lacks(answer json.RawMessage) bool {
	if r.Kind != Sum {
		return r.compares() && isNone(answer, r.Kind)
	}
	for _, p := range r.Parts {
		if p.compares() && isNone(answer, p.Kind) {
			return true
		}
	}
	return false
}

// compares reports whether the term compares with the prompt's answer.
func (t *Term) compares() bool {
	if t.Kind == Regex {
		expression, err := regexp.Compile(t.Pattern)
		return err == nil && expression.NumSubexp() > 0
	}
	return slices.Contains([]string{Exact, Prefix, Math, GSM8K}, t.Kind)
}
