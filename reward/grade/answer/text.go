package answer

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Clean strips what surrounds an answer: white space, Markdown, math delimiters, a box,
// the final period.
func Clean(s string) string {
	s = strings.TrimSpace(s)
	if boxed, _, ok := Boxed(s); ok && !strings.Contains(s, "\\boxed{}") {
		s = boxed
	}
	for _, arrow := range []string{`\implies`, `\Rightarrow`, `\Longrightarrow`, `\iff`, "⇒", "⟹"} {
		if _, after, ok := cutLast(s, arrow); ok && strings.Contains(after, "=") {
			s = strings.TrimSpace(after)
		}
	}
	s = strings.ReplaceAll(s, "^{-1}(", "(") // the inverse of a function
	s = strings.NewReplacer(" x 10^", ` \times 10^`, " × 10^", ` \times 10^`).Replace(s)
	s = Rows(s)
	if strings.Contains(s, `\begin`) && !strings.Contains(s, `\\begin`) { // rows may begin with brackets
		s = strings.ReplaceAll(s, `\\`, `\\ `)
	}
	s = strings.NewReplacer(`\\ `, `\\ `, `\(`, " ", `\)`, " ", `\[`, " ", `\]`, " ", `$$`, " ", "**", "", "`", "", "...", `\ldots `, "…", `\ldots `).Replace(s)
	s = unwrapDollars(s)
	if digits, ok := digitsApart(s); ok {
		return digits
	}
	for range 4 {
		s = strings.TrimSpace(s)
		s = strings.TrimSuffix(strings.TrimRight(s, ".,;:*\" \n"), `\`)
		s = strings.TrimLeft(s, "*\"=: \n")
		if strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}") && strings.Count(s, "{") == 1 {
			s = s[1 : len(s)-1]
		}
	}
	return s
}

// digitsApart returns the number that \underline{2}\,\underline{7} spells digit by
// digit.
func digitsApart(s string) (string, bool) {
	if !strings.Contains(s, `\underline`) || len(s) > 1000 {
		return "", false
	}
	fields := strings.Fields(strings.NewReplacer(`\underline`, " ", `\,`, " ", `\;`, " ", `\!`, " ", `\ `, " ", "{", " ", "}", " ").Replace(s))
	for _, f := range fields {
		if len(f) != 1 || f[0] < '0' || f[0] > '9' {
			return "", false
		}
	}
	return strings.Join(fields, ""), len(fields) > 0
}

// unwrapDollars removes paired $ around mathematics and keeps amounts of money.
func unwrapDollars(s string) string {
	count := strings.Count(s, "$") - strings.Count(s, `\$`)
	if count == 0 {
		return s
	}
	if at := strings.IndexByte(s, '$') + 1; count%2 == 1 && (count > 1 || at < len(s) && isDigit(s[at])) {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if s[i] == '$' && (i == 0 || s[i-1] != '\\') {
			b.WriteByte(' ')
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// BareText returns s without LaTeX text commands and braces.
func BareText(s string) string {
	for _, name := range []string{`\text`, `\textbf`, `\textit`, `\textrm`, `\mbox`, `\mathrm`, `\mathbf`, `\textnormal`, `\operatorname`} {
		s = strings.ReplaceAll(s, name+"{", "{")
	}
	return strings.NewReplacer("{", "", "}", "", `\left`, "", `\right`, "", `\,`, "", `\!`, "", `\;`, "", `\ `, " ", `\quad`, " ", "~", " ",
		`\dfrac`, `\frac`, `\tfrac`, `\frac`).Replace(s)
}

// compact returns s without white space, for a quick comparison.
func compact(s string) string {
	s = strings.NewReplacer("~", "", `\!`, "", `\,`, " ", `\;`, " ", `\ `, " ", `\left`, "", `\right`, "", `\dfrac`, `\frac`, `\tfrac`, `\frac`).Replace(s)
	for _, name := range []string{`\text`, `\mbox`, `\mathrm`, `\textnormal`} {
		s = strings.ReplaceAll(s, name+"{", "{")
	}
	if !strings.ContainsAny(s, `\^/`) { // braces that group nothing
		s = strings.NewReplacer("{", "", "}", "").Replace(s)
	}
	var b strings.Builder
	for _, f := range strings.Fields(s) {
		if text := b.String(); text != "" && isDigit(text[len(text)-1]) && isDigit(f[0]) {
			b.WriteByte(' ') // 2 1/3 is not 21/3
		}
		b.WriteString(f)
	}
	return b.String()
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// Choice returns the letter that s chooses: C, (C), "(C) 42", "C. Evelyn".
func Choice(s string) (byte, bool) {
	s = strings.TrimSpace(BareText(s))
	for _, word := range []string{"option ", "choice ", "answer "} {
		if len(s) > len(word) && strings.EqualFold(s[:len(word)], word) {
			s = strings.TrimSpace(s[len(word):])
		}
	}
	open := strings.HasPrefix(s, "(")
	s = strings.TrimPrefix(s, "(")
	if s == "" || s[0] < 'A' || s[0] > 'J' {
		return 0, false
	}
	rest := s[1:]
	if at := strings.IndexByte(rest, '('); open && at >= 0 && at+2 < len(rest) && rest[at+1] >= 'A' && rest[at+1] <= 'J' && rest[at+2] == ')' {
		return 0, false // two choices
	}
	switch {
	case open && strings.HasPrefix(rest, ")"), !open && rest == "":
	case !open && rest != "" && (rest[0] == ')' || rest[0] == '.' || rest[0] == ':') && (len(rest) == 1 || rest[1] == ' '):
	default:
		return 0, false
	}
	return s[0], true
}

// chosen returns the text after the letter of a choice: 42 for "(C) 42".
func chosen(s string) (string, bool) {
	if _, ok := Choice(s); !ok {
		return "", false
	}
	at := strings.IndexAny(s, ").:")
	if at < 0 {
		return "", false
	}
	rest := s[at+1:]
	for before := ""; rest != before; {
		before = rest
		rest = strings.TrimLeft(rest, " }~\n")
		for _, space := range []string{`\ `, `\,`, `\;`, `\quad`} {
			rest = strings.TrimPrefix(rest, space)
		}
	}
	return rest, rest != ""
}

// words returns the words and numbers of s in lower case, without filler.
func words(s string) []string {
	fields := strings.FieldsFunc(strings.ToLower(strings.ReplaceAll(s, "'s ", " ")), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '.' && r != '+' && r != '-' && r != '='
	})
	kept := fields[:0]
	for _, f := range fields {
		if f = strings.Trim(f, "."); len(f) < 2 || f[0] != '-' || f[1] < '0' || f[1] > '9' {
			f = strings.TrimLeft(f, ".-")
		}
		f = strings.TrimRight(f, ".-")
		if n := len(f); n > 2 && f[0] >= '0' && f[0] <= '9' && slices.Contains([]string{"st", "nd", "rd", "th"}, f[n-2:]) {
			f = f[:n-2]
		}
		switch f {
		case "", "the", "a", "an", "is", "are", "it", "be", "would", "will", "its", "so", "that":
			continue
		case "cannot", "can't":
			f = "not"
		}
		kept = append(kept, f)
	}
	return kept
}

func sameList(a, b []string) bool { return slices.Equal(a, b) }

// sameWords compares answers in words. Besides the wanted words, a response may name what
// they answer and comment on it: "The day is Friday", "Evelyn can win", "even, since 2
// divides it". It may neither deny them nor list others.
func (q *Question) sameWords(w, g string) bool {
	w, g = BareText(w), strings.Replace(BareText(g), "none other than ", "", 1)
	if at := strings.Index(g, " for all "); at > 0 && len(g)-at < 24 {
		g = g[:at]
	}
	if strings.EqualFold(w, strings.TrimSuffix(strings.TrimSuffix(g, " does"), " did")) {
		return true // Will, which is no filler here
	}
	a, b := words(w), words(g)
	if len(a) == 0 || len(b) == 0 || !isProse(w) && (len(a) != 1 || a[0] != "no") {
		return false
	}
	if sameList(a, b) || isNothing(a) && (isNothing(b) || endsInNothing(b)) {
		return true
	}
	if len(g) > maxSentence {
		return false
	}
	if len(a) == 1 && (a[0] == "yes" || a[0] == "no") {
		return b[0] == a[0] && len(b) > 1 && strings.ContainsAny(g[:min(len(g), 5)], ",.;") && !slices.Contains(b, map[string]string{"yes": "no", "no": "yes"}[a[0]])
	}
	if len(a) == 1 && a[0] == "neither" && slices.Contains(b, "nor") {
		return slices.Contains(b, a[0])
	}
	text := g
	if !strings.ContainsAny(w, ",;:") {
		text = uncommented(g)
		if q.retracts(a, g[len(text):]) {
			return false
		}
	}
	if sameList(a, words(text)) && !possessive(a, g) {
		return true
	}
	for _, verb := range []string{" is ", " are ", " was ", ": ", " be ", " gives ", " get ", " got ", " really ", " by ", " that ", " namely ", " named ", " called ", " belongs to ", " turns ", " makes it ", " becomes ", " remains ", " moves ", " goes ", " points ", " it's ", ", "} {
		head, tail, ok := cutLast(unbracketed(g), verb)
		tail = uncommented(tail)
		if ok && len(strings.Fields(head)) <= maxLead && !negates(head, a) && (verb != ", " || strings.HasSuffix(head, "day") && !rival(a, strings.ToLower(head[strings.LastIndexByte(head, ' ')+1:])) || strings.HasSuffix(strings.ToLower(head), "hence")) && q.saysOnly(a, strings.Count(w, ","), tail) {
			return true
		}
	}
	return q.saysOnly(a, strings.Count(w, ","), text)
}

// endsInNothing reports whether a sentence ends by stating that something does not exist.
func endsInNothing(b []string) bool {
	n := len(b)
	return n >= 3 && b[n-1] == "exist" && b[n-2] == "not" && !negates(strings.Join(b[:n-2], " "), nil)
}

// uncommented returns an answer without a comment after it, in parentheses or after a
// comma or a semicolon.
func uncommented(g string) string {
	g, _, _ = strings.Cut(g, " (")
	g, _, _ = strings.Cut(g, "; ")
	for at := 0; ; {
		i := strings.Index(g[at:], ", ")
		if i < 0 {
			return g
		}
		at += i + 2
		word, _, _ := strings.Cut(g[at:], " ")
		switch strings.ToLower(word) {
		case "not", "with", "after", "before", "since", "because", "as", "so", "which", "who", "whose", "the", "a", "an", "by", "for", "in", "at", "where", "when", "while", "although",
			"being", "that", "it", "this", "he", "she", "they", "rather":
			return g[:at-2]
		}
		if strings.HasSuffix(word, "'s") { // Bob, Alice's opponent
			return g[:at-2]
		}
	}
}

// saysOnly reports whether text has the words a, and besides them only words of the
// question and others that say nothing more.
func (q *Question) saysOnly(a []string, wantedCommas int, text string) bool {
	if head, rest, ok := strings.Cut(text, ","); ok && slices.Contains([]string{"therefore", "thus", "hence", "so", "finally"}, strings.ToLower(strings.TrimSpace(head))) {
		text = rest
	}
	b := words(text)
	for len(b) > 0 && slices.Contains([]string{"therefore", "thus", "hence", "finally"}, b[0]) {
		b = b[1:]
	}
	at := -1
	for i := 0; i+len(a) <= len(b); i++ {
		if sameList(b[i:i+len(a)], a) {
			if at >= 0 {
				return false
			}
			at = i
		}
	}
	if at < 0 || len(b) > maxLead || strings.ContainsAny(text, "<>≤≥≠|&\\/") || strings.Count(text, ",") != wantedCommas || possessive(a, text) {
		return false
	}
	if extra := len(b) - len(a); q.Text != "" && extra > len(a)+3 {
		return false
	}
	names := map[string]bool{} // that the text capitalizes
	for _, f := range strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) }) {
		if unicode.IsUpper(rune(f[0])) {
			names[strings.ToLower(f)] = true
		}
	}
	if denies(strings.Join(b, " "), a) {
		return false
	}
	for i, word := range b {
		if i >= at && i < at+len(a) || slices.Contains([]string{"named", "called", "day", "month", "facing", "does", "did", "can", "on", "in", "at", "one", "correct", "right", "answer", "choice", "option",
			"solution", "solutions", "roots", "ones", "person", "always", "exactly", "to", "say", "there", "here"}, word) || i > at && slices.Contains([]string{"for", "all", "x", "everywhere", "of", "has"}, word) && q.has(word) {
			continue
		}
		if slices.Contains(a, word) || rival(a, word) || q.offers(word) || names[word] && i > 0 || q.Text != "" && !q.has(word) || word[0] >= '0' && word[0] <= '9' {
			return false
		}
		if q.Text == "" && i == at+len(a) && !isVerb(word) && len(b) > len(a)+1 {
			return false
		}
	}
	return true
}

// unbracketed returns g without a remark in parentheses at its end.
func unbracketed(g string) string {
	if at := strings.LastIndex(g, " ("); at > 0 && strings.HasSuffix(strings.TrimRight(g, "."), ")") {
		return g[:at]
	}
	return g
}

// retracts reports whether a comment takes an answer back or names another: "(not)", "(no
// if it is slanted)", ", the sum is odd".
func (q *Question) retracts(a []string, comment string) bool {
	if comment == "" {
		return false
	}
	b := words(comment)
	if len(b) == 0 {
		return false
	}
	inside := strings.HasPrefix(strings.TrimSpace(comment), "(")
	for i, word := range b {
		other := !slices.Contains(a, word) && (rival(a, word) || q.offers(word))
		if inside && i == 0 && (word == "not" || word == "no" || word == "false" || word == "wrong" || word == "or" || word == "if" || word == "maybe" || other) || word == "wrong" || word == "incorrect" {
			return true
		}
		if other && i > 0 && strings.Contains(strings.ToLower(comment), " is "+word) {
			return true
		}
	}
	return false
}

// possessive reports whether text names something of the answer: "Olivia's sister".
func possessive(a []string, text string) bool {
	return strings.Contains(strings.ToLower(text), a[len(a)-1]+"'s ")
}

// offers reports whether the question offers a word as an alternative: next to "or", or
// before a comma of a list that ends in "or".
func (q *Question) offers(word string) bool {
	q.prepare()
	return q.offered[word]
}

// rival reports whether a word is of the same kind as the wanted word: another weekday,
// odd for even.
func rival(a []string, word string) bool {
	return slices.ContainsFunc(kinds(), func(kind []string) bool {
		return slices.Contains(kind, word) && !slices.Contains(a, word) && slices.ContainsFunc(a, func(want string) bool { return slices.Contains(kind, want) })
	})
}

// kinds returns sets of mutually exclusive answer words.
func kinds() [][]string {
	return [][]string{
		{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"},
		{"january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"},
		{"even", "odd", "neither", "both"}, {"yes", "no"}, {"true", "false"}, {"prime", "composite"}, {"rational", "irrational"}, {"positive", "negative", "zero"},
		{"increasing", "decreasing"}, {"increase", "decrease"}, {"heads", "tails"}, {"east", "west", "north", "south"}, {"left", "right"}, {"up", "down"}, {"first", "last"},
		{"ellipse", "parabola", "hyperbola", "circle", "line", "point"}, {"acute", "obtuse", "equilateral", "isosceles", "scalene"},
		{"red", "green", "blue", "yellow", "black", "white", "orange", "purple", "pink", "brown"},
	}
}

// isVerb reports whether a word after a name may be its verb.
func isVerb(word string) bool {
	return strings.HasSuffix(word, "s") || strings.HasSuffix(word, "ed") || slices.Contains([]string{"has", "had", "will", "can", "did", "won", "got", "sat", "ran"}, word)
}

// The bounds on a sentence that states an answer in words: its bytes, and the words
// before the answer.
const (
	maxSentence = 240
	maxLead     = 16
)

// cutLast slices s around the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// negates reports whether a text has a negation that is not among the wanted words.
func negates(text string, wanted []string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' }), func(word string) bool {
		switch word {
		case "not", "no", "isn't", "aren't", "never", "neither", "nor", "wrong", "incorrect", "false", "untrue", "cannot", "can't", "wasn't", "hardly", "if", "unless", "whether", "doubt", "opposite", "or", "fails", "fail", "lacks":
			return !slices.Contains(wanted, word)
		}
		return false
	})
}

// denies reports whether a text denies, doubts or conditions what it says, by words
// that are not among the wanted ones.
func denies(text string, wanted []string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' }), func(word string) bool {
		switch word {
		case "not", "no", "isn't", "aren't", "never", "neither", "nor", "or", "and", "either", "if", "unless", "maybe", "perhaps", "might", "could", "wrong", "incorrect", "false",
			"instead", "rather", "except", "cannot", "can't", "unlike", "whether", "possibly", "but", "than", "wasn't", "think", "guess", "assume", "suppose", "before", "after", "opposite",
			"non", "anything", "everything", "any", "every", "other", "until", "from", "loses", "excluding", "without", "anti", "far", "hardly", "rarely", "less", "least":
			return !slices.Contains(wanted, word)
		}
		return false
	})
}

// isNothing reports whether the words mean that there is no answer.
func isNothing(a []string) bool {
	switch strings.Join(a, " ") {
	case "none", "no solution", "no solutions", "no real solutions", "no real solution", "no real roots", "no integer solutions", "no such", "empty", "empty set",
		"does not exist", "not exist", "dne", "undefined", "not defined", "emptyset", "varnothing", "there no solution", "there no solutions", "there no real solutions":
		return true
	}
	return false
}

// saysNothing reports whether an answer states that there is none.
func saysNothing(s string) bool {
	switch compact(s) {
	case `\emptyset`, `\varnothing`, `\{\}`, "∅", "{}":
		return true
	}
	return !strings.ContainsAny(s, "=<>^+*/0123456789") && isNothing(words(BareText(s)))
}

// isProse reports whether s contains a word rather than mathematics alone.
func isProse(s string) bool {
	if strings.ContainsAny(s, `=<>^_+*/`) || strings.Contains(s, `\`) {
		return false
	}
	run := 0
	for _, r := range s {
		if unicode.IsLetter(r) {
			if run++; run >= 3 {
				return true
			}
		} else {
			run = 0
		}
	}
	return false
}

// small returns the words for the numbers below twenty.
func small() []string {
	return []string{"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
		"thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"}
}

func tens() []string {
	return []string{"", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"}
}

// Spelled rewrites a leading number in words as digits: "twenty five apples" becomes
// "25 apples".
func Spelled(s string) (string, bool) {
	fields := strings.Fields(strings.ReplaceAll(strings.ToLower(BareText(s)), "-", " "))
	fields = slices.DeleteFunc(fields, func(f string) bool { return strings.Trim(f, ".,") == "" })
	total, part, used := 0, 0, 0
	for _, f := range fields {
		f = strings.Trim(f, ".,")
		i, j := slices.Index(small(), f), slices.Index(tens(), f)
		switch {
		case f == "half" && used == 0 && len(fields) > 1 && (fields[1] == "a" || fields[1] == "an"):
			return "1/2 " + strings.Join(fields[2:], " "), true
		case i >= 0:
			part += i
		case j >= 2:
			part += 10 * j
		case f == "hundred" && part < 100:
			part = 100 * max(1, part)
		case f == "thousand" && part < 1000 && total == 0:
			total, part = 1000*max(1, part), 0
		case f == "and" && part >= 100:
		case f == "and" && used > 0: // two and a half
			return mixed(total+part, used, fields)
		default:
			if den := denominator(f); den > 0 && used > 0 {
				return strconv.Itoa(total+part) + "/" + strconv.Itoa(den) + " " + strings.Join(fields[used+1:], " "), true
			}
			return digits(total+part, used, fields)
		}
		if used++; used > 12 {
			return "", false
		}
	}
	return digits(total+part, used, fields)
}

// denominator returns the denominator that a word such as thirds names, or 0.
func denominator(f string) int {
	for d, name := range []string{"half", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"} {
		if f == name || f == name+"s" || d == 0 && f == "halves" || d == 2 && (f == "quarter" || f == "quarters") {
			return d + 2
		}
	}
	return 0
}

// mixed reads a whole number and a fraction in words.
func mixed(v, used int, fields []string) (string, bool) {
	rest := fields[used+1:]
	if len(rest) > 0 && rest[0] == "a" {
		rest = append([]string{"one"}, rest[1:]...)
	}
	if len(rest) > 1 {
		above, below := slices.Index(small(), rest[0]), denominator(strings.Trim(rest[1], ".,"))
		if above > 0 && below > above {
			return strconv.Itoa(v) + " " + strconv.Itoa(above) + "/" + strconv.Itoa(below) + " " + strings.Join(rest[2:], " "), true
		}
	}
	return digits(v, used, fields)
}

func digits(v, used int, fields []string) (string, bool) {
	if used == 0 || used > len(fields) {
		return "", false
	}
	return strconv.Itoa(v) + " " + strings.Join(fields[used:], " "), true
}
