package grade

import (
	"strings"
	"unicode"

	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/measure"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// judge returns why the text of a mark is not the task's answer, or "".
func (t *Task) judge(m mark) string {
	s := strings.TrimSpace(markup.Respelled(markup.Undecorated(m.text)))
	s = strings.TrimSpace(strings.ReplaceAll(s, "__", ""))
	if m.box && !strings.Contains(s, "~~") {
		s = strings.TrimSpace(strings.ReplaceAll(s, "~", " ")) // a space in LaTeX
	}
	for _, quote := range []string{"**", "*", "_", "`"} { // Markdown
		if inside, ok := strings.CutPrefix(s, quote); ok && strings.HasSuffix(inside, quote) &&
			!strings.Contains(strings.TrimSuffix(inside, quote), quote) {
			s = strings.TrimSuffix(inside, quote)
		}
	}
	switch {
	case s == "" || hidden(s, t.gold):
		return answer.NoAnswer
	case len(s) <= maxMark && !isWhole(s) && isWhole(t.gold):
		return BrokenOff
	}
	fault := answer.NoAnswer
	for i, got := range readings(s) {
		other := answer.Fault(t.question, t.gold, got)
		if other == "" {
			if t.question.Text == "" {
				return ""
			}
			if t.approximates(s) {
				return answer.Altered
			}
			return t.vet(s, m.lead)
		}
		if i == 0 || fault == answer.OtherValue {
			fault = other
		}
	}
	return fault
}

// isWhole reports whether a short answer neither breaks off nor lacks a bracket.
func isWhole(s string) bool { return !breaksOff(s) && balanced(s) }

// hidden reports whether s has signs that change how its text is shown: combining marks and
// changes of direction that the reference answer lacks.
func hidden(s, gold string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		return (unicode.In(r, unicode.Mn, unicode.Me) || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 ||
			r == 0x200e || r == 0x200f) && !strings.ContainsRune(gold, r)
	})
}

// readings returns the readings of the text of a mark: the text, and the value in it if it is a
// sentence with one value, a commented value or an evaluated expression. A text beyond the
// bound of a mark is only read as a whole.
func readings(s string) []string {
	if len(s) > maxMark {
		return []string{s}
	}
	s = equation(withoutTotal(shares(s)))
	all := []string{s}
	if name, value, ok := strings.Cut(s, ": "); ok && strings.Trim(name,
		alphabet+strings.ToUpper(alphabet)+"{}\\ ") == "" && len(name) <= maxBare*16 {
		all = append(all, value) // "Ann: 16"
	}
	if letter, ok := chosen(s); ok {
		return append(all, letter)
	}
	if head, ok := commented(s); ok {
		return append(all, head)
	}
	if value, ok := evaluated(s); ok {
		return append(all, value)
	}
	if strings.ContainsAny(s, "<>≤≥≠") || relates(s) {
		return all
	}
	bare := markup.Bare(s)
	if digits, ok := words.Spelled(bare); ok && !words.HasDigit(bare) {
		return append(all, digits)
	}
	if spans := markup.Spans(bare); len(spans) == 1 && words.Prose(bare) { // "they have 25 apples"
		value, rest := bare[spans[0].Lo:spans[0].Hi], bare[spans[0].Hi:]
		if end := strings.IndexAny(rest, ",;:("); end >= 0 {
			rest = rest[:end]
		}
		if _, after, ok := strings.Cut(value, "="); ok && strings.Count(value, "=") == 1 {
			value = after
		}
		if _, parses := expr.Parse(markup.Clean(value+rest), expr.Mode{Thousands: true}); parses {
			return append(all, value+rest)
		}
		return append(all, value)
	}
	return all
}

const alphabet = "abcdefghijklmnopqrstuvwxyz"

// shares writes "3/4 of 240" as a product.
func shares(s string) string {
	head, rest, ok := strings.Cut(s, " of ")
	head = strings.TrimSuffix(head, "\\")
	if !ok || head == "" || strings.Trim(head, `0123456789./%\fracdt{} `) != "" || !words.HasDigit(head) ||
		!expr.DigitAt(rest, 0) {
		return s
	}
	return head + " * " + rest
}

// withoutTotal returns s without "in total" and the like at its end.
func withoutTotal(s string) string {
	for _, end := range []string{" altogether", " in total", " in all", " altogether}", " in total}", " in all}"} {
		if head, ok := strings.CutSuffix(s, end); ok {
			return head + strings.TrimLeft(end, " abcdefghijklmnopqrstuvwxyz")
		}
	}
	return s
}

// equation rewrites "x is 9" and "x equals 9" as "x = 9".
func equation(s string) string {
	if head, value, ok := strings.Cut(s, "="); ok && isDerivative(head) {
		s = "y' = " + value
	}
	for _, name := range []string{`\gcd`, `\lcm`, `\max`, `\min`, `\det`, `\dim`, `\deg`} {
		if value, ok := strings.CutPrefix(s, name); ok && strings.HasPrefix(strings.TrimLeft(value, " "), "=") {
			return strings.TrimLeft(value, " =")
		}
	}
	for _, verb := range []string{" equals ", " is "} {
		name, value, ok := strings.Cut(s, verb)
		if plain := strings.Trim(name, "$ "); ok && len(plain) == 1 && expr.LetterAt(plain, 0) && value != "" &&
			strings.IndexByte("-$\\0123456789", value[0]) >= 0 {
			return name + " = " + value
		}
	}
	return s
}

// isDerivative reports whether s is a derivative in Leibniz's notation: \frac{dy}{dx}.
func isDerivative(s string) bool {
	s = strings.NewReplacer(" ", "", "$", "", `\dfrac`, `\frac`, `\mathrm{d}`, "d", "(x)", "", "(t)", "").Replace(s)
	return len(s) == len(`\frac{dy}{dx}`) && strings.HasPrefix(s, `\frac{d`) && s[8:11] == "}{d" && s[12] == '}'
}

// chosen returns the letter of a choice that a comment follows: "C (the third)".
func chosen(s string) (string, bool) {
	letter := strings.Trim(words.First(s), ".,*;:")
	_, comment, ok := strings.Cut(s, " (")
	if _, is := words.Choice(letter); !is || !ok || words.Hedges(comment) ||
		strings.ContainsFunc(comment, func(r rune) bool { return r >= 'A' && r <= 'J' }) {
		return "", false
	}
	return letter, true
}

// evaluated returns the value that an integral, a limit or a sum equals in s.
func evaluated(s string) (string, bool) {
	left, value, ok := strings.Cut(s, "=")
	if !ok || strings.Contains(value, "=") {
		return "", false
	}
	return value, words.Begins(strings.TrimLeft(left, " $"), `\int`, `\iint`, `\lim`, `\left[`, `\Big[`, `\big[`) ||
		strings.HasPrefix(strings.TrimLeft(left, " $"), "[") && strings.Contains(left, "]_")
}

// balanced reports whether each bracket of a short bare answer has a counterpart, as the
// ends of an interval have in any combination.
func balanced(s string) bool {
	depth, braces := 0, 0
	for i, c := range s {
		switch c {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case '{', '}':
			if i > 0 && s[i-1] == '\\' {
				continue
			}
			if braces += int('|' - c); braces < 0 { // { is one below | and } is one above
				return false
			}
		}
		if depth < -1 { // "1) 5" is a label
			return false
		}
	}
	return depth <= 1 && braces == 0
}

// commented splits a bare answer from a comment that neither takes it back nor has
// another value: "9 (i.e. 9.0)", "360 seats, all counted".
func commented(s string) (string, bool) {
	s = markup.Bare(s)
	for _, sep := range []string{" (", ", ", "; "} {
		head, comment, ok := strings.Cut(s, sep)
		comment = strings.TrimRight(comment, ")")
		if !ok || !words.HasDigit(head) {
			continue
		}
		if _, parses := expr.Parse(markup.Clean(head), expr.Mode{Thousands: true}); !parses {
			continue
		}
		if rest := strings.Trim(comment, "() $"); sep == " (" && words.Contains(rest, `\ne`, "≠", "!=") {
			return head, true // where it is defined
		}
		if words.Hedges(comment) || words.Contains(comment, "base", "mod") ||
			strings.Contains(strings.ToLower(comment), "or ") && !strings.Contains(comment, "written") {
			return "", false
		}
		same, value := true, answer.NewValue(head)
		for _, span := range markup.Spans(comment) {
			same = same && value.Same(comment[span.Lo:span.Hi])
		}
		return head, same && (words.HasLetter(comment) || words.HasDigit(comment))
	}
	return "", false
}

// relates reports whether s says in LaTeX that a value is bounded or excluded.
func relates(s string) bool {
	return words.Contains(strings.NewReplacer(`\left`, "", `\neg`, "").Replace(s), `\ne`, `\le`, `\ge`, `\lt`, `\gt`,
		`\not`, `\nmid`, `\mid`, `\to`, `\vee`, `\lor`, `\oplus`, `\pm`, `\mp`, "~~", `\cancel`)
}

// breaksOff reports whether s ends in an operator.
func breaksOff(s string) bool {
	if strings.HasSuffix(strings.TrimSpace(s), " *") {
		return true
	}
	s = strings.TrimRight(s, " $*\n)]}\\")
	return words.Ends(s, "/.", "+", "-", "=", "×", "÷", "/", "^", "_", `\times`, `\cdot`, `\div`, "−", "·")
}

// vet returns why a mark with the right value is no answer all the same, or "": its words
// doubt, deny or change the value, or say what neither the question nor a plain answer does.
func (t *Task) vet(s, lead string) string {
	if words.Before(lead) != "" || words.HasNegation(lead[strings.LastIndexAny(lead, ",;:")+1:]) &&
		!strings.Contains(lead, " but ") {
		return answer.Altered
	}
	if fault := t.vetWords(s); fault != "" {
		return fault
	}
	if answer.Opposes(t.question, s) {
		return answer.Altered
	}
	return t.vetSigns(s)
}

// vetWords returns why the words of a mark change its value, or "". A number stands beside no
// words but those of the question and of plain answers.
func (t *Task) vetWords(s string) string {
	gold := strings.ToLower(t.gold)
	number := words.HasDigit(gold) && !words.Prose(gold)
	text := withoutCommands(words.WithoutEmphasis(s))
	bare := shares(markup.Bare(s))
	for _, span := range markup.Spans(bare) {
		before := strings.ToLower(bare[:span.Lo])
		if !number || before == "" {
			continue
		}
		if words.Begins(before, "in ") && strings.TrimSpace(before) == "in" &&
			words.Contains(strings.ToLower(bare), "year", "month", "day", "hour", "minute") &&
			!t.question.LastHas("when", "how long", " in ") {
			return answer.Altered
		}
		if words.Before(before) != "" && !t.question.LastHas("by what", "by how") ||
			answer.OtherQuantity(t.question, before) || words.Contains(before, "square ", "cube ") &&
			!t.question.LastHas("square", "cube") {
			return answer.Altered
		}
	}
	for _, name := range strings.FieldsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && r != '\'' &&
			r != '’'
	}) {
		word := strings.ToLower(name)
		switch {
		case len(word) < 2 || strings.Contains(gold, word):
		case number && words.OneOf(word, "each", "every", "apiece") &&
			!t.question.LastHas("each", " per ", "every", "apiece", "individual", " one "):
			return answer.Altered
		case number && words.Compares(word) && !t.question.LastHas(word), number && t.countsOther(word):
			return answer.Altered
		case number && words.OneOf(word, "pair", "pairs", "dozen", "dozens", "halves", "scores") &&
			!t.question.Asks("many "+word, "number of "+word):
			return answer.OtherUnit
		case number && word == "lcm" && !t.question.Asks("lcm", "least common", "lowest common", "smallest common"),
			number && word == "gcd" && !t.question.Asks("gcd", "greatest common", "gcf", "hcf", "highest common",
				"largest common"):
			return answer.Altered
		case words.Scales(word) && number, word == "or" && isSeveral(gold) && t.allowsOr(),
			word == "mod" && t.question.Asks("mod", "remainder"), word == "per" && t.question.AsksPerUnit(),
			words.Number(word) && !words.HasDigit(s):
		case words.Doubts(word) && !t.question.Has(word), number && answer.Bends(t.question, word) &&
			!t.asksNoun(word, text), number && t.question.Names(word):
			return answer.Altered
		case !number || len(word) < 3 || words.Bends(word) || words.Neutral(word) || measure.IsUnit(word) ||
			measure.IsQuantity(name) || t.question.Has(word) || words.Counts(word):
		default:
			return answer.Strange
		}
	}
	return ""
}

// isSeveral reports whether a reference answer has several values.
func isSeveral(gold string) bool {
	return words.Contains(gold, ",", "<", ">", " or ", " and ", `\le`, `\ge`, `\ne`, `\pm`, `\cup`, "±", "∪", "≤", "≥")
}

// allowsOr reports whether "or" may join the values of the answer: those of solutions.
func (t *Task) allowsOr() bool {
	return words.Contains(t.gold, " or ", "<", ">", `\le`, `\ge`, `\ne`, `\pm`, "±", "≤", "≥", `\cup`, "∪") ||
		t.question.Asks("solve", "root", "solution", "all ", "values", "possible", "inequalit", "<", ">", "zero",
			"which", "find $", "what is $")
}

// countsOther reports whether a word is the plural of something else than the question counts: "9
// sides" for "how many diagonals".
func (t *Task) countsOther(word string) bool {
	noun := strings.Trim(words.First(t.question.From("how many ")[min(len("how many "),
		len(t.question.From("how many "))):]), ".,?$")
	return words.Counts(word) && words.Counts(noun) && !t.question.Has(word) &&
		words.Singular(word) != words.Singular(noun) && !words.Neutral(word) && !measure.IsQuantity(word)
}

// asksNoun reports whether the question asks for what a noun such as "multiple" names, and text
// does not say that of something else: "a multiple of 56".
func (t *Task) asksNoun(word, text string) bool {
	return words.OneOf(word, "multiple", "factor", "divisor", "root", "square", "cube", "power", "third", "quarter",
		"half") && t.question.LastHas(word) && !strings.Contains(strings.ToLower(text), word+" of")
}

// vetSigns returns why the signs inside a mark make it no answer, or "".
func (t *Task) vetSigns(s string) string {
	if t.otherDerivative(s) {
		return answer.Altered
	}
	for _, arrow := range []string{`\to`, `\rightarrow`, `\mapsto`, `\Rightarrow`, `\implies`, `\leadsto`, "→", "->",
		"↦"} {
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
	case !strings.ContainsAny(t.gold, "/0123456789") && joinsWords(s):
		return answer.Several
	case strings.ContainsAny(s, "∨?") && !strings.ContainsAny(t.gold, "∨?"), strings.Count(s, "≈")+strings.Count(s,
		`\approx`) > 1:
		return answer.Several
	case congruent(s) && !congruent(t.gold) && (t.question.LastHas("smallest", "least ", "largest", "greatest") ||
		!congruent(asked) && !strings.Contains(asked, "remainder")), congruent(s) && t.otherModulus(s):
		return answer.Unfinished
	case barred(start) && !barred(t.gold):
		return answer.Altered
	case misgrouped(s), words.Contains(s, `}{}`, `{}^`, `\frac{}`, `\sqrt{}`, `\tag`, `\cancel`):
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

// joinsWords reports whether a slash stands between two words: "knight/knave".
func joinsWords(s string) bool {
	for i := range s {
		if s[i] == '/' && expr.LetterAt(s, i-1) && expr.LetterAt(s, i+1) {
			return true
		}
	}
	return false
}

// withoutCommands returns s without the names of LaTeX commands and environments.
func withoutCommands(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || !expr.LetterAt(s, i+1) {
			b.WriteByte(s[i])
			continue
		}
		end := i + 1
		for expr.LetterAt(s, end) {
			end++
		}
		if name := s[i+1 : end]; (name == "begin" || name == "end") && strings.HasPrefix(s[end:], "{") {
			if n := strings.IndexByte(s[end:], '}'); n > 0 {
				end += n + 1
			}
		}
		b.WriteByte(' ')
		i = end - 1
	}
	return b.String()
}

// barred reports whether s begins with digits under a bar: a class of integers, or digits of a
// number.
func barred(s string) bool {
	digits, ok := strings.CutPrefix(s, `\overline{`)
	digits, _, _ = strings.Cut(digits, "}")
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// otherHalf reports whether a time is in the half of the day that the question, which names the
// other one, does not name, and the reference answer names none.
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

// misgrouped reports whether thin spaces group the digits of a number other than by three.
func misgrouped(text string) bool {
	_, rest, ok := strings.Cut(text, `\,`)
	for ; ok; _, rest, ok = strings.Cut(rest, `\,`) {
		n := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		if n > 0 && n != 3 && strings.HasPrefix(rest[n:], `\,`) && n+2 < len(rest) && expr.DigitAt(rest, n+2) {
			return true
		}
	}
	return false
}

// otherCurrency reports whether an answer has the sign of a currency that the question,
// which has another one, does not use.
func otherCurrency(text, question string) bool {
	const signs = "$€£¥₹"
	for _, sign := range "€£¥₹" {
		if strings.ContainsRune(text, sign) && !strings.ContainsRune(question, sign) {
			return strings.ContainsAny(question, signs) || strings.Contains(question, "dollar")
		}
	}
	return false
}

// otherDegree reports whether a temperature is on a scale that the question does not mention,
// or mentions before the other one.
func (t *Task) otherDegree(text string) bool {
	scale := func(s string) (celsius, fahrenheit int) {
		s = strings.NewReplacer(`\text`, "", `\mathrm`, "", "{", "", "}", "", "$", "", " ", "", `\ `, "", `^\circ`,
			"°", `\circ`, "°", "℃", "°C", "℉", "°F").Replace(s)
		return max(strings.LastIndex(s, "°C"), strings.LastIndex(s, "Celsius")), max(strings.LastIndex(s, "°F"),
			strings.LastIndex(s, "Fahrenheit"))
	}
	if !words.Contains(text, "C", "F", "℃", "℉") {
		return false
	}
	c, f := scale(text)
	askedC, askedF := scale(t.question.Text)
	if t.question.LastHas("kelvin") {
		return max(c, f) >= 0
	}
	if t.question.LastHas("in °c", "in degrees c", "in celsius", "to celsius", "to °c") {
		return f >= 0 && c < 0
	}
	return c >= 0 && f < 0 && askedF > askedC || f >= 0 && c < 0 && askedC > askedF
}

// otherModulus reports whether an answer is modulo a number that the question, which is about
// numbers modulo another, does not have.
func (t *Task) otherModulus(text string) bool {
	_, after, _ := strings.Cut(text, "mod")
	digits := strings.TrimLeft(after, "ulo {}")
	digits = digits[:len(digits)-len(strings.TrimLeft(digits, "0123456789"))]
	return !strings.Contains(t.question.Text, digits)
}

// congruent reports whether s speaks of numbers modulo another.
func congruent(s string) bool {
	return words.Contains(s, "(mod", `\pmod`, " mod", "≡", `\equiv`, "congruent")
}
