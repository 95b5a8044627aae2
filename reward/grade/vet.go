package grade

import (
	"regexp"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/measure"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// vet returns why a mark is wrong although its value is right, or "". Its words may doubt, deny or
// change the value ("maybe 24"), or be words that neither the question nor a plain answer uses.
func (t *Task) vet(s string, m mark) string {
	if !t.frames(m.says) {
		return answer.Altered
	}
	lead := m.lead
	if words.Before(lead) != "" || words.HasNegation(lead[strings.LastIndexAny(lead, ",;:")+1:]) &&
		!strings.Contains(lead, " but ") {
		return answer.Altered
	}
	if fault := t.vetWords(s); fault != "" {
		return fault
	}
	if t.question.Opposes(s) {
		return answer.Altered
	}
	return t.vetSigns(s)
}

// frames reports whether the words before and after "answer" in a phrase say only that X is the answer to
// the question: "so the final answer is". It allows words of the question and of plain closings, and skips
// what follows "by" and the like, which names a method: "by symmetry".
func (t *Task) frames(says [2]string) bool {
	if slices.ContainsFunc(lettered(says[0]), words.Doubts) {
		return false
	}
	says[0] = says[0][strings.LastIndexAny(says[0], ",;:")+1:]
	says[1] = strings.TrimPrefix(says[1], words.First(says[1]))
	for _, part := range says {
		for _, number := range []string{"one", "two", "three", "four"} {
			part = strings.ReplaceAll(part, number+" decimal", "decimal")
		}
		for _, word := range lettered(part) {
			if words.OneOf(word, "by", "using", "from", "since", "because") {
				break
			}
			if words.OneOf(word, "old", "some", "one") || len(word) > 2 && (!words.Closes(word) &&
				!t.question.Has(word) && !measure.IsUnit(word) || t.question.Names(word)) {
				return false
			}
		}
	}
	return true
}

// lettered returns the words of s in lower case that have only letters a to z.
func lettered(s string) []string {
	return slices.DeleteFunc(words.Split(strings.ToLower(s), ""),
		func(word string) bool { return strings.Trim(word, alphabet) != "" })
}

// vetWords returns why the words of a mark change its value, or "". With a number, only words of the
// question and of plain answers are accepted: "24 eggs", but not "24 pink elephants".
func (t *Task) vetWords(s string) string {
	gold := strings.ToLower(t.gold)
	number := words.HasDigit(gold) && !words.Prose(gold)
	if number && t.altersBefore(shares(markup.Bare(s))) {
		return answer.Altered
	}
	text := withoutCommands(words.WithoutEmphasis(s))
	for _, name := range words.Split(text, "'’") {
		word := strings.ToLower(name)
		fault := ""
		switch {
		case number && words.OneOf(word, "st", "nd", "rd", "th") && t.question.LastHas("how many", "how much"):
			fault = answer.Altered
		case len(word) < 2 || len(word) < 5 && name == strings.ToUpper(name) && t.question.Angular() ||
			strings.Contains(gold, word) || words.Number(word) && !words.HasDigit(s):
		case number:
			fault = t.vetWord(name, text)
		case words.Doubts(word) && !t.question.Has(word):
			fault = answer.Altered
		}
		if fault != "" {
			return fault
		}
	}
	return ""
}

// altersBefore reports whether the words before a number compute with it, bound it or call it
// another quantity than the question asks for: "twice 12", "at least 5", "the area is 9".
func (t *Task) altersBefore(bare string) bool {
	for _, span := range markup.Spans(bare) {
		before := strings.ToLower(bare[:span.Lo])
		switch {
		case before == "":
		case strings.TrimSpace(before) == "in": // "in 16 years"
			if words.Contains(strings.ToLower(bare), "year", "month", "day", "hour", "minute") &&
				!t.question.LastHas("when", "how long", " in ") {
				return true
			}
		case words.Before(before) != "" && !t.question.LastHas("by what", "by how"),
			words.Contains(before, "square ", "cube ") && !t.question.LastHas("square", "cube"),
			t.question.OtherQuantity(before):
			return true
		}
	}
	return false
}

// vetWord returns why a word of text changes the number that text states, or "": "each" in "5 each".
func (t *Task) vetWord(name, text string) string {
	word, q := strings.ToLower(name), t.question
	switch {
	case words.OneOf(word, "each", "every", "apiece") &&
		!q.LastHas("each", " per ", "every", "apiece", "individual", " one "),
		words.Compares(word) && !q.LastHas(word), t.countsOther(word, text), q.Names(word):
		return answer.Altered
	case words.Counts(word) && q.LastHas("what percent", "percentage") && !strings.Contains(text, "percent") &&
		!strings.Contains(text, "%"), words.OneOf(word, "pair", "pairs", "dozen", "dozens", "halves", "scores") &&
		!q.Asks("many "+word, "number of "+word):
		return answer.OtherUnit
	case words.Scales(word), word == "or" && t.allowsOr(),
		word == "mod" && q.Asks("mod", "remainder"), word == "per" &&
			(q.AsksPerUnit() || words.Contains(t.gold, "/", "^{-", " per ")):
		return ""
	case words.Doubts(word) && !q.Has(word), q.Bends(word) && !t.asksNoun(word, text):
		return answer.Altered
	case len(word) < 3, words.Bends(word), words.Neutral(word), words.Counts(word), q.Has(word), q.Means(word),
		measure.IsUnit(name):
		return ""
	}
	return answer.Strange
}

// allowsOr reports whether "or" may join the values of the answer, as it joins solutions: "2 or 3". It may
// not join the values of one solution: x = 2, y = 3.
func (t *Task) allowsOr() bool {
	names := map[string]bool{}
	for part := range strings.SplitSeq(t.gold, ",") {
		if name, _, ok := strings.Cut(part, "="); ok {
			names[strings.TrimSpace(name)] = true
		}
	}
	if len(names) > 1 {
		return false
	}
	if words.Contains(t.gold, " or ", "<", ">", `\le`, `\ge`, `\ne`, `\pm`, "±", "≤", "≥", `\cup`, "∪") {
		return true
	}
	return words.Contains(strings.ToLower(t.gold), ",", " or ", " and ") &&
		t.question.Asks("solve", "root", "solution", "all ", "values", "possible", "inequalit", "<", ">", "zero",
			"which", "find $", "what is $")
}

// countsOther reports whether a word of text is the plural of something else than the question
// counts: "9 sides" for "how many diagonals".
func (t *Task) countsOther(word, text string) bool {
	noun := strings.Trim(words.First(strings.TrimPrefix(t.question.From("how many "), "how many ")), ".,?$")
	if _, other, ok := strings.Cut(t.question.From("how many more "), " than "); ok &&
		strings.HasPrefix(other, word) && !strings.Contains(text, " than ") {
		return true
	}
	return words.Counts(word) && words.Counts(noun) && !measure.IsUnit(noun) &&
		!t.question.LastHas(words.Singular(word)) &&
		words.Singular(word) != words.Singular(noun) && !words.Neutral(word) && !measure.IsUnit(word)
}

// asksNoun reports whether the question asks for what a noun such as "multiple" names, and text does not
// use the noun with "of", as in "a multiple of 56".
func (t *Task) asksNoun(word, text string) bool {
	return words.OneOf(word, "multiple", "factor", "divisor", "root", "square", "cube", "power", "third", "quarter",
		"half") && t.question.LastHas(word) && !strings.Contains(strings.ToLower(text), word+" of")
}

// vetSigns returns why the signs inside a mark make it no answer, or "": "→ 24", "24?", "≈ 3 ≈ 4".
func (t *Task) vetSigns(s string) string {
	if t.otherDerivative(s) {
		return answer.Altered
	}
	for _, arrow := range []string{`\to`, `\rightarrow`, `\mapsto`, `\Rightarrow`, `\implies`, `\leadsto`, "→", "->",
		"↦"} {
		if head, value, ok := words.CutLast(s, arrow); ok && derives(head, value) {
			continue
		}
		if strings.Contains(s, arrow) && !words.Contains(s, arrow+"p", "lim") && !strings.Contains(t.gold, arrow) {
			return answer.Altered
		}
	}
	start := strings.TrimLeft(s, " $*")
	switch asked := t.question.Text; {
	case words.HasDigit(t.gold) && words.Contains(markup.Bare(s), " is a ", " is an "),
		strings.Contains(s, `\angle`) && !strings.Contains(t.gold, `\angle`) &&
			!t.question.Asks("angle", "degree", "°", "circ"):
		return answer.Altered
	case strings.Contains(s, `P(\text{`) && t.question.LastHas(" not ", "n't") && !words.HasNegation(s),
		strings.Contains(strings.ToLower(s), "lcm") && !t.question.Asks("lcm", "est common mult"),
		strings.Contains(strings.ToLower(s), "gcd") &&
			!t.question.Asks("gcd", "gcf", "hcf", "common divisor", "common factor"):
		return answer.Altered
	case t.otherHalf(s):
		return answer.OtherValue
	case words.Begins(strings.ToLower(strings.TrimLeft(markup.Bare(start), " ")), "is it ", "is he ", "is she ",
		"could it ", "would it ", "might it ", "can it "):
		return answer.Altered
	case otherCurrency(s, asked):
		return answer.OtherUnit
	case words.Begins(start, "<", ">") && !strings.ContainsAny(t.gold, "<>\\"):
		return answer.Altered
	case words.Begins(start, `\div`, `\times`, "÷", "×", "/"):
		return answer.Unfinished
	// knight/knave
	case !strings.ContainsAny(t.gold, "/0123456789") && regexp.MustCompile(`[A-Za-z]/[A-Za-z]`).MatchString(s):
		return answer.Several
	case strings.ContainsAny(s, "∨?") && !strings.ContainsAny(t.gold, "∨?"), strings.Count(s, "≈")+strings.Count(s,
		`\approx`) > 1 && !t.question.Asks("round", "nearest", "decimal place", "estimate", "approximat"):
		return answer.Several
	case congruent(s) && !congruent(t.gold) && (t.question.LastHas("smallest", "least ", "largest", "greatest") ||
		!congruent(asked) && !words.Contains(asked, "remainder", "digit")), congruent(s) && t.otherModulus(s),
		words.Contains(s, `\equiv`, "≡") && !strings.Contains(s, "mod") && !congruent(t.gold):
		return answer.Unfinished
	case barred(start) && !barred(t.gold):
		return answer.Altered
	case words.Contains(s[strings.LastIndex(s, "=")+1:], `\div`, "÷") && !words.Contains(t.gold, `\div`, "÷"):
		return answer.Unfinished
	case strings.HasSuffix(s, "{}"), words.Contains(s, `}{}`, `{}^`, `\frac{}`, `\sqrt{}`, `\tag`, `\cancel`):
		return answer.NoAnswer
	case words.Contains(s, "in decimal", "in base ten", "in base 10") &&
		t.question.Asks("in octal", "to octal", "in binary", "to binary", "in hex", "to hex"):
		return answer.OtherForm
	case t.otherDegree(s), strings.Contains(s, "‰") && !strings.Contains(t.gold, "‰"):
		return answer.OtherUnit
	}
	return ""
}

// approximates reports whether a mark only says that its value is near a number that is exact.
func (t *Task) approximates(s string) bool {
	if strings.ContainsAny(t.gold, `.\√π`) || !words.HasDigit(t.gold) ||
		t.question.Asks("nearest", "round", "approx", "about", "estimat", "decimal place", "significant") {
		return false
	}
	if s = strings.TrimLeft(s, " $"); expr.LetterAt(s, 0) && !expr.LetterAt(s, 1) {
		s = strings.TrimLeft(s[1:], " ")
	}
	return words.Begins(s, "≈", `\approx`, `\sim`, "~", "∼", `\simeq`, "≃", "≅", `\cong`) && !strings.HasPrefix(s, "~~")
}

// derives reports whether an equation follows from another one before an arrow, and does not give the
// same name a second value: "2x = 6 → x = 3".
func derives(head, value string) bool {
	before, _, ok := strings.Cut(head, "=")
	name, _, both := strings.Cut(value, "=")
	return ok && both && markup.Compact(before) != markup.Compact(name)
}

// otherDerivative reports whether text writes a first or a second derivative that neither the
// question nor the reference answer has.
func (t *Task) otherDerivative(text string) bool {
	known := t.question.Text + t.gold
	if asked, _, _ := strings.Cut(t.question.Last(), " if "); words.Contains(asked, "f'(x)", "g'(x)", "y'") &&
		!strings.Contains(text, "'") && words.Contains(strings.ReplaceAll(text, " ", ""), "f(x)=", "g(x)=") &&
		!strings.Contains(t.gold, "(x)") {
		return true
	}
	if t.question.AsksSlope() && strings.Contains(strings.ReplaceAll(text, " ", ""), "F(x)=") &&
		!strings.Contains(known, "F(x)") {
		return true
	}
	return strings.Contains(text, "''") && !strings.Contains(known, "''") &&
		!strings.Contains(t.question.Text, "econd") ||
		strings.Contains(text, "'(") && !strings.Contains(known, "'") && !t.question.AsksSlope() &&
			words.HasDigit(t.gold)
}

// withoutCommands returns s without the names of LaTeX commands and environments.
func withoutCommands(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return regexp.MustCompile(`\\(?:begin|end)\{[^}]*\}|\\[A-Za-z]+`).ReplaceAllString(s, " ")
}

// barred reports whether s begins with digits under a bar or another accent: a class of integers,
// digits of a number, a vector.
func barred(s string) bool {
	accent, inside, ok := strings.Cut(s, "{")
	rest := strings.TrimLeft(inside, "0123456789")
	return ok && len(rest) < len(inside) && (rest == "" || rest[0] == '}') &&
		words.OneOf(accent, `\overline`, `\bar`, `\vec`, `\hat`, `\widehat`, `\tilde`, `\widetilde`,
			`\overrightarrow`, `\dot`, `\ddot`, `\check`)
}

// otherHalf reports whether s is a time in the other half of the day than the only one that the question
// names: "3 am" for "at what time after 1 pm". It is false if the reference answer names a half.
func (t *Task) otherHalf(s string) bool {
	halves := func(s string) (am, pm bool) {
		s = strings.NewReplacer(".", "", " ", "", `\text{`, "", `\`, "").Replace(strings.ToLower(s))
		after := func(half string) bool {
			at := strings.Index(s, half)
			return at > 0 && (expr.DigitAt(s, at-1) || s[at-1] == '}')
		}
		return after("am"), after("pm")
	}
	am, pm := halves(s)
	askedAM, askedPM := halves(t.question.Text)
	wantAM, wantPM := halves(t.gold)
	return !wantAM && !wantPM && askedAM != askedPM && (am && !askedAM || pm && !askedPM)
}

// otherCurrency reports whether an answer is in a currency that the question does not use, while the
// question uses another one: "€10" for "$5 each".
func otherCurrency(text, question string) bool {
	question = strings.ToLower(question)
	if slices.ContainsFunc(lettered(question), func(word string) bool { return words.OneOf(word, "cent", "cents") }) {
		question += " dollar"
	}
	currencies := [][]string{{`\$`, "dollar", "$"}, {"€", "euro"}, {"£", "pounds sterling"}, {"¥", " yen", "yuan"},
		{"₹", "rupee"}}
	return slices.ContainsFunc(currencies, func(names []string) bool {
		return words.Contains(text, names[:min(2, len(names))]...) && !words.Contains(question, names...) &&
			slices.ContainsFunc(currencies, func(others []string) bool { return words.Contains(question, others...) })
	})
}

// otherDegree reports whether text gives a temperature on another scale than the question asks for, as in
// "20 °F" for "in degrees Celsius", or gives a plain number in degrees.
func (t *Task) otherDegree(text string) bool {
	scale := func(s string) (celsius, fahrenheit int) {
		s = strings.NewReplacer(`\text`, "", `\mathrm`, "", "{", "", "}", "", "$", "", " ", "", `\ `, "", `^\circ`,
			"°", `\circ`, "°", "℃", "°C", "℉", "°F").Replace(s)
		return max(strings.LastIndex(s, "°C"), strings.LastIndex(s, "Celsius")), max(strings.LastIndex(s, "°F"),
			strings.LastIndex(s, "Fahrenheit"))
	}
	if words.Contains(text[strings.LastIndex(text, "=")+1:], `^\circ`, `^{\circ`, "°", `\degree`) &&
		!words.Contains(t.gold, "circ", "°", "degree") &&
		!t.question.Angular() {
		return true
	}
	if !words.Contains(text, "C", "F") {
		return false
	}
	c, f := scale(text)
	askedC, askedF := scale(t.question.Text)
	if t.question.LastHas("kelvin") {
		return max(c, f) >= 0
	}
	if t.question.LastHas("how many degrees c", "in °c", "in degrees c", "in celsius", "to celsius", "to °c") {
		return f >= 0 && c < 0
	}
	return c >= 0 && f < 0 && askedF > askedC || f >= 0 && c < 0 && askedC > askedF
}

// otherModulus reports whether an answer is modulo a number that the question does not have: "3 (mod 5)"
// for "modulo 7". If the question asks for digits, any power of ten will do.
func (t *Task) otherModulus(text string) bool {
	_, after, _ := strings.Cut(text, "mod")
	digits := strings.TrimLeft(after, "ulo {}")
	digits = digits[:len(digits)-len(strings.TrimLeft(digits, "0123456789"))]
	return !strings.Contains(t.question.Text, digits) &&
		!(t.question.Asks("digit") && strings.HasPrefix(digits, "1") && strings.Trim(digits[1:], "0") == "")
}

// congruent reports whether s states a congruence or a modulus.
func congruent(s string) bool {
	return words.Contains(s, "(mod", `\pmod`, " mod", "≡", `\equiv`, "congruent")
}
