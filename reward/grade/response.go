package grade

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/sentence"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// Final returns the part of a response after the reasoning and before the next turn,
// without HTML. It is empty if the reasoning does not end.
func Final(response string) string {
	for _, name := range []string{"think", "thinking"} {
		if i := strings.LastIndex(response, "</"+name+">"); i >= 0 {
			response = response[i+len("</>")+len(name):]
		} else if strings.Contains(response, "<"+name+">") {
			return ""
		}
	}
	for _, mark := range ends() {
		if i := strings.Index(response, mark); i >= 0 {
			response = response[:i]
		}
	}
	return tidy(untilNext(response))
}

// ends returns the tokens that end a model's turn.
func ends() []string {
	return []string{
		"<|im_end|>", "<|im_start|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|start_header_id|>", "</s>", "<｜end▁of▁sentence｜>", "<｜User｜>",
		"<end_of_turn>", "<start_of_turn>", "<|user|>", "<|end|>", "[INST]", "<eos>",
	}
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
		if line := strings.TrimLeft(s[at:min(len(s), at+40)], "*#> "); asks(line, title) || strings.HasSuffix(s[:at], "\n\n") && poses(s[at:]) {
			if tries++; tries > 16 || answered(s[:at]) {
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
	return slices.ContainsFunc([]string{"Question", "Problem", "Q", "Human", "User", "Instruction", "Exercise", "Example", "Next problem", "Next question", "Input"}, func(name string) bool {
		rest, ok := strings.CutPrefix(line, name)
		rest = strings.TrimLeft(rest, " 0123456789*")
		return ok && (strings.HasPrefix(rest, ":") || (title || name == "Instruction") && strings.HasPrefix(rest, "\n"))
	})
}

// poses reports whether a paragraph begins with another question: "John has 3 apples
// and buys 4. How many does he have?"
func poses(s string) bool {
	line, _, _ := strings.Cut(s[:min(len(s), 600)], "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 || !strings.HasSuffix(strings.TrimSpace(line), "?") || !words.HasDigit(line) || words.Corrects(line) || words.IsChat(line) {
		return false
	}
	return !words.OneOf(strings.Trim(fields[0], ",."), "But", "And", "So", "Hmm", "Is", "Does", "Do", "Did", "Are", "Now", "Let", "Let's")
}

// answered reports whether text ends with an answer.
func answered(text string) bool {
	if _, found := explicit(text); len(found.readings) > 0 {
		return true
	}
	all := sentence.Split(text[max(0, len(text)-maxFinal):])
	return len(all) > 0 && strings.TrimSpace(text) != "" && words.Concludes(all[len(all)-1].Text) && len(all[len(all)-1].Values()) > 0
}

// tidy removes common HTML tags and rewrites full-width forms, used in Chinese and
// Japanese text, as ASCII.
func tidy(s string) string {
	s = withoutCalculator(s)
	if words.Contains(s, "</", "<br") {
		s = strings.NewReplacer("<b>", "", "</b>", "", "<strong>", "", "</strong>", "", "<i>", "", "</i>", "", "<em>", "", "</em>", "", "<u>", "", "</u>", "",
			"<p>", "\n", "</p>", "\n", "<br>", "\n", "<br/>", "\n", "<br />", "\n", "<sup>2</sup>", "^2", "<sup>3</sup>", "^3").Replace(s)
	}
	s = strings.NewReplacer("≡", "=", "¢", " cents", "✓", "", "✔", "", "✅", "").Replace(markup.Rows(expr.Fractions(s)))
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

func isWide(r rune) bool {
	return r >= utf8.RuneSelf && (r >= '！' && r <= '～' || r == '。' || r == '、')
}

// withoutCalculator removes GSM8K's calculator marks, as the <<2+1=3>> in "2+1=<<2+1=3>>3".
func withoutCalculator(s string) string {
	if !strings.Contains(s, "<<") {
		return s
	}
	var b strings.Builder
	for {
		head, rest, found := strings.Cut(s, "<<")
		b.WriteString(head)
		if !found {
			return b.String()
		}
		inside, after, closed := strings.Cut(rest[:min(len(rest), 200)], ">>")
		if closed && strings.Contains(inside, "=") && strings.Trim(inside, "0123456789+-*/().,=% $x") == "" {
			s = rest[len(rest[:min(len(rest), 200)])-len(after):]
			continue
		}
		b.WriteString("<<")
		s = rest
	}
}
