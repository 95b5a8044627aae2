package grade

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// Final returns the part of a response after the reasoning and before the next turn, without common HTML
// tags. It is empty if the reasoning does not end.
func Final(response string) string {
	text, _ := final(response)
	return text
}

// final is Final. ok is false if the response starts to reason and never stops.
func final(response string) (text string, ok bool) {
	const channel = "<|channel|>" // of gpt-oss, whose turns end within the response
	if !strings.Contains(response, channel) {
		response = untilEnd(response)
	}
	if response, ok = reasoned(response); !ok {
		return "", false
	}
	return tidy(untilNext(uncommented(untilEnd(opened(response))))), true
}

// opened returns a response without a special token at its start, such as <|START_RESPONSE|>.
func opened(response string) string {
	rest, special := strings.CutPrefix(strings.TrimLeft(response, " \n"), "<|")
	name, after, ok := strings.Cut(rest[:min(len(rest), maxLead)], "|>")
	if special && ok && !strings.ContainsAny(name, " \n<>") {
		return rest[len(rest[:min(len(rest), maxLead)])-len(after):]
	}
	return response
}

// thoughts returns the pairs of tags that enclose the reasoning of a model.
func thoughts() [][2]string {
	return [][2]string{
		{"<think>", "</think>"}, {"<thinking>", "</thinking>"}, {"<thought>", "</thought>"},
		{"<reasoning>", "</reasoning>"}, {"<reflection>", "</reflection>"}, {"<scratchpad>", "</scratchpad>"},
		{"◁think▷", "◁/think▷"},                        // Kimi
		{"<seed:think>", "</seed:think>"},              // Seed
		{"[THINK]", "[/THINK]"},                        // Magistral
		{"<|begin_of_thought|>", "<|end_of_thought|>"}, // Sky
		{"<|START_THINKING|>", "<|END_THINKING|>"},     // Command
		{"<|channel>thought", "<channel|>"},            // Gemma
		{"<|inner_prefix|>", "<|inner_suffix|>"},       // Apertus
	}
}

// reasoned returns what follows the reasoning of a response. ok is false if some reasoning does not end.
func reasoned(response string) (string, bool) {
	const channel, message = "<|channel|>", "<|message|>"
	if at := strings.LastIndex(response, channel); at >= 0 { // gpt-oss: only the last channel counts
		name, body, ok := strings.Cut(response[at+len(channel):], message)
		if name, _, _ = strings.Cut(strings.TrimSpace(name), " "); !ok || name != "final" {
			return "", false
		}
		response = body
	}
	const plain, finally = "analysis", "assistantfinal" // gpt-oss with its special tokens removed
	if strings.HasPrefix(response, plain) && len(response) > len(plain) && (response[len(plain)] < 'a' ||
		response[len(plain)] > 'z') && response[len(plain)] > ' ' {
		at := strings.LastIndex(response, finally)
		if at < 0 {
			return "", false
		}
		response = response[at+len(finally):]
	}
	response = response[thoughtEnd(response):]
	return response, !slices.ContainsFunc(thoughts(), func(pair [2]string) bool {
		return strings.Contains(response, pair[0])
	})
}

// thoughtEnd returns the offset after the last reasoning of s, or 0.
func thoughtEnd(s string) (end int) {
	for _, pair := range thoughts() {
		for rest, ok := s, true; ok; {
			if _, rest, ok = strings.Cut(rest, pair[1]); ok {
				end = max(end, len(s)-len(rest))
			}
		}
	}
	return end
}

// uncommented returns a response without HTML comments and without lines that are LaTeX comments.
func uncommented(s string) string {
	if strings.Contains(s, "<!--") {
		s = regexp.MustCompile(`(?s)<!--.*?(?:-->|\z)`).ReplaceAllString(s, "")
	}
	if strings.HasPrefix(s, "%") || strings.Contains(s, "\n%") {
		s = regexp.MustCompile(`(?m)^%.*(?:\n|\z)`).ReplaceAllString(s, "")
	}
	return s
}

// untilEnd cuts a response before the first token that ends a turn.
func untilEnd(response string) string {
	for _, token := range []string{"[INST]", "<|im_end|>", "<|im_start|>", "<|endoftext|>", "<|eot_id|>",
		"<|end_of_text|>", "<|start_header_id|>", "</s>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<end_of_turn>",
		"<start_of_turn>", "<|user|>", "<|end|>", "<|start|>", "<|return|>", "<|call|>", "<eos>", "<|end_of_solution|>",
		"<|END_RESPONSE|>"} {
		response, _, _ = strings.Cut(response, token)
	}
	return response
}

// untilNext cuts a response before the next question of a base model, provided that the
// text before it has an answer.
func untilNext(s string) string {
	for at, tries := 0, 0; ; {
		i := strings.IndexByte(s[at:], '\n')
		if i < 0 {
			return s
		}
		at += i + 1
		if at == len(s) {
			return s
		}
		title := s[at] == '#' || s[at] == '*'
		if line := strings.TrimLeft(s[at:min(len(s), at+40)], "*#> "); asks(line, title) {
			m := find(s[:at])
			if tries++; tries > 16 || m.ok && !m.cut {
				return s[:at]
			}
		}
	}
}

// asks reports whether a line starts a question or another speaker's turn.
func asks(line string, title bool) bool {
	if line == "" || strings.IndexByte("QPHUIEN", line[0]) < 0 {
		return false
	}
	return slices.ContainsFunc([]string{"Question", "Problem", "Q", "Human", "User", "Instruction", "Exercise",
		"Example", "Next problem", "Next question", "Input"}, func(name string) bool {
		rest, ok := strings.CutPrefix(line, name)
		rest = strings.TrimLeft(rest, " 0123456789*")
		return ok && (strings.HasPrefix(rest, ":") || (title || name == "Instruction") && strings.HasPrefix(rest, "\n"))
	})
}

// maxTicks is how many check marks a response may use as decoration. With more, they may form a grid and
// stay.
const maxTicks = 4

// tidy removes common HTML tags and rewrites full-width forms, used in Chinese and
// Japanese text, as ASCII.
func tidy(s string) string {
	s = withoutCalculator(norm.NFC.String(s))
	if words.Contains(s, "</", "<br") {
		s = strings.NewReplacer("<b>", "", "</b>", "", "<strong>", "", "</strong>", "", "<i>", "", "</i>", "", "<em>",
			"", "</em>", "", "<u>", "", "</u>", "",
			"<p>", "\n", "</p>", "\n", "<br>", "\n", "<br/>", "\n", "<br />", "\n", "<sup>2</sup>", "^2",
			"<sup>3</sup>", "^3").Replace(s)
	}
	s = strings.NewReplacer("¢", " cents").Replace(markup.Rows(expr.Fractions(s)))
	if strings.Count(s, "✅")+strings.Count(s, "✓")+strings.Count(s, "✔") <= maxTicks { // no grid of them
		s = strings.NewReplacer("✓", "", "✔", "", "✅", "").Replace(s)
	}
	if strings.IndexFunc(s, isWide) < 0 {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case isWide(r) && r >= '！':
			return r - '！' + '!'
		case r == '。':
			return '.'
		case r == '、':
			return ','
		}
		return r
	}, s)
}

// isWide reports whether r is one of the full-width forms that tidy rewrites.
func isWide(r rune) bool {
	return r >= utf8.RuneSelf && (r >= '！' && r <= '～' || r == '。' || r == '、')
}

// withoutCalculator removes GSM8K's calculator marks, as the <<2+1=3>> in "2+1=<<2+1=3>>3".
func withoutCalculator(s string) string {
	if !strings.Contains(s, "<<") {
		return s
	}
	return regexp.MustCompile(`<<[-0-9+*/().,% $x]*=[-0-9+*/().,=% $x]*>>`).ReplaceAllString(s, "")
}
