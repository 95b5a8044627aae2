package grade

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/sentence"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// conclusion reads the last sentence with a number or mathematics. If that sentence
// only remarks on the concluding one, it reads the concluding one.
func conclusion(text string) claim {
	if isAlone(text) {
		text = strings.TrimPrefix(strings.TrimSpace(text), "A: ")
		return claim{readings: []string{text}, text: text}
	}
	all := sentence.Split(text[max(0, len(text)-maxFinal):])
	if k := len(all) - 1; k >= 0 && words.IsCutOff(all[k].Text) {
		return claim{readings: []string{all[k].Text}, text: all[k].Text}
	}
	var said []sentence.Sentence
	for k := len(all) - 1; k >= 0 && len(said) < 4; k-- {
		if words.GivesUp(all[k].Text) {
			if words.HasDigit(all[k].Text) {
				return claim{}
			}
			return claim{readings: []string{all[k].Text}, text: all[k].Text}
		}
		if !words.IsChat(all[k].Text) && (len(all[k].Values()) > 0 || all[k].SpellsNumber() || words.Concludes(all[k].Text)) {
			said = append(said, all[k])
		}
	}
	if len(said) == 0 {
		return wordsOnly(all)
	}
	rest := "" // after the sentence with a number
	for _, s := range all {
		if s.Lo > said[0].Lo && !words.IsChat(s.Text) {
			rest += s.Text
		}
	}
	var last []string // a sentence without numbers after the one with a number
	if k := len(all) - 1; !words.IsChat(all[k].Text) && all[k].Lo > said[0].Lo {
		last = []string{all[k].Text}
	}
	pick := said[0]
	if words.Remarks(pick.Text) {
		if k := slices.IndexFunc(said, func(s sentence.Sentence) bool { return words.Concludes(s.Text) }); k > 0 {
			pick = said[k]
		} else if len(said) > 1 && strings.Contains(strings.ToLower(pick.Text[:min(len(pick.Text), 20)]), "double-check") {
			pick = said[1]
		}
	}
	pick = pick.After(all[:slices.IndexFunc(all, func(s sentence.Sentence) bool { return s.Lo == pick.Lo })])
	if words.RepeatsQuestion(pick.Text) {
		return claim{readings: last, text: pick.Concluding() + rest}
	}
	return claim{readings: append(pick.Readings(), last...), text: pick.Concluding() + rest}
}

// isAlone reports whether a response is a bare answer without a sentence around it.
func isAlone(text string) bool {
	text = strings.TrimPrefix(strings.TrimSpace(text), "A: ")
	word, _, titled := strings.Cut(text, ":")
	titled = titled && len(word) > 1 && strings.IndexFunc(word, func(r rune) bool { return !unicode.IsLetter(r) }) < 0
	foreign := func(r rune) bool { return r >= utf8.RuneSelf && unicode.IsLetter(r) && !unicode.Is(unicode.Greek, r) }
	counted := words.Contains(text, "thousand", "illion", " base ")
	if titled || counted || strings.Contains(text, "i.e.") || len(text) > 200 || strings.ContainsAny(text, "\n'") || words.Prose(text) || strings.IndexFunc(text, foreign) >= 0 || strings.HasPrefix(text, "=>") || words.Concludes(text) {
		return false
	}
	n, ok := expr.Parse(markup.Clean(text), expr.Mode{Thousands: true})
	return ok && !n.Has(func(m *expr.Node) bool { return m.Kind == expr.Label || m.Kind == expr.Text })
}

// wordsOnly reads the last sentence of a short response without numbers.
func wordsOnly(all []sentence.Sentence) claim {
	for k := len(all) - 1; k >= 0; k-- {
		if !words.IsChat(all[k].Text) {
			return claim{readings: all[k].Readings(), text: all[k].Concluding()}
		}
	}
	return claim{}
}

// corrected returns the answer of the text that follows an answer, if that text takes
// the answer back and reaches its own conclusion.
func corrected(rest string) claim {
	all := sentence.Split(rest[:min(len(rest), maxTail)])
	for _, s := range all[:min(len(all), 3)] {
		if after, ok := words.Replaces(s.Text); ok && len(after) <= maxFinal {
			return claim{readings: []string{after}, text: s.Text}
		}
	}
	k := slices.IndexFunc(all, func(s sentence.Sentence) bool { return words.Corrects(s.Text) })
	if k < 0 {
		return claim{}
	}
	for last := len(all) - 1; last > k; last-- {
		if s := all[last]; len(s.Text) <= maxFinal && words.Concludes(s.Text) && len(s.Values()) > 0 {
			return claim{readings: s.Readings(), text: s.Concluding()}
		}
	}
	return claim{}
}
