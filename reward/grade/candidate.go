package grade

import (
	"slices"
	"strings"
	"unicode"

	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/wording"
)

// candidate is a part of a sentence that may be the answer.
type candidate struct {
	segment
	text  string
	aside bool // after a preposition or in parentheses: about something else
	inner bool // in parentheses
	bold  bool
	sum   bool // result of arithmetic, as the 5 in "2 + 3 = 5"
	aim   bool // part of an infinitive of purpose, as in "to make 1 robe"
}

// candidates returns the numbers and the mathematics of a sentence. Callers must not
// modify the result.
func (s sentence) candidates() []candidate {
	if *s.memo == nil {
		*s.memo = append([]candidate{}, s.find()...)
	}
	return *s.memo
}

func (s sentence) find() []candidate {
	var found []candidate
	depth, next, bold := 0, 0, false
	for i := 0; i < len(s.text); {
		for next < len(s.math) && s.math[next].lo < i {
			next++
		}
		if n := s.measureAt(i); n > 0 {
			found = append(found, candidate{segment: segment{i, i + n}, text: s.text[i : i+n], aside: depth > 0 || s.isAside(i), inner: depth > 0, bold: bold, aim: s.isAim(i), sum: s.isResult(i)})
			i += n
			continue
		}
		if next < len(s.math) && s.math[next].lo == i {
			span := s.math[next]
			next++
			i = span.hi
			text := inner(s.text[span.lo:span.hi])
			if strings.TrimSpace(text) != "" {
				if !strings.Contains(text, "_") {
					text += s.baseAt(span.hi)
				}
				found = append(found, candidate{segment: span, text: text, aside: depth > 0 || s.isAside(span.lo), inner: depth > 0, bold: bold, aim: s.isAim(span.lo)})
			}
			continue
		}
		switch c := s.text[i]; {
		case c == '(' && s.isGroup(i):
		case c == '(':
			depth++
		case c == ')':
			depth = max(0, depth-1)
		case strings.HasPrefix(s.text[i:], "**"):
			bold = !bold
			i++
		}
		limit := len(s.text)
		if next < len(s.math) {
			limit = s.math[next].lo
		}
		c, n := s.plainAt(i, limit)
		if n == 0 {
			i++
			continue
		}
		c.aside, c.inner, c.bold = c.aside || depth > 0, depth > 0, bold
		if n := len(found); n > 0 && found[n-1].aside && !c.sum && wording.GoesOn(s.text[found[n-1].hi:i]) {
			c.aside = true
		} else if n > 0 && found[n-1].aim && !c.sum && wording.GoesOn(s.text[found[n-1].hi:i]) {
			c.aim = true
		}
		found = append(found, c)
		i += n
	}
	return found
}

// measureAt returns the length of the compound measure at i, or 0.
func (s sentence) measureAt(i int) int {
	if i > 0 && (isLetterAt(s.text, i-1) || isDigitAt(s.text, i-1) || strings.IndexByte(".,-$/", s.text[i-1]) >= 0) || !isDigitAt(s.text, i) && !isLetterAt(s.text, i) && s.text[i] != '$' && s.text[i] != '\\' {
		return 0
	}
	return answer.Measure(s.text[i:])
}

// baseAt returns the base that the words at i give a number, as in "(base 8)" and "in
// base eight".
func (s sentence) baseAt(i int) string {
	rest := strings.ToLower(strings.TrimLeft(s.text[i:min(len(s.text), i+24)], " *$()"))
	rest, ok := strings.CutPrefix(strings.TrimPrefix(rest, "in "), "base")
	if !ok || rest == "" || rest[0] != ' ' && rest[0] != '-' && rest[0] != '~' {
		return ""
	}
	return " base " + strings.Trim(firstField(strings.TrimLeft(rest, " -~")), ".,;:)*$")
}

// isGroup reports whether a bracket at i belongs to mathematics: it is a tuple, or an
// expression continues after it.
func (s sentence) isGroup(i int) bool {
	n := expressionAt(s.text, i)
	if n == 0 {
		return false
	}
	run := s.text[i : i+n]
	return strings.Contains(run, ",") || !strings.HasSuffix(run, ")") || strings.Count(run, "(") > 1 || i == 0 || strings.HasSuffix(s.text[:i], "**")
}

// plainAt reads an expression or a number outside LaTeX at i and returns how far to
// advance.
func (s sentence) plainAt(i, limit int) (candidate, int) {
	if n := expressionAt(s.text[:limit], i); n > 0 {
		run := strings.TrimRight(s.text[i:i+n], ".,:;*=+-/ ")
		lo := i
		c := candidate{aside: s.isAside(i), aim: s.isAim(i)}
		if at := strings.LastIndexByte(run, '='); at >= 0 && !isRelation(run, at) {
			c.sum = strings.IndexFunc(strings.ReplaceAll(run[:at], " x ", ""), unicode.IsLetter) < 0
			lo = i + at + 1
			if name := strings.TrimSpace(run[at+1:]); len(name) == 1 && isLetterAt(name, 0) && c.sum { // 20 = A
				run = strings.TrimRight(run[:at], " ")
				lo = i + strings.LastIndexByte(run, '=') + 1
			}
		}
		text := strings.TrimSpace(s.text[lo : i+len(run)])
		if measure := strings.TrimRight(text, "²³"); measure != text && isMeasure(measure) {
			text = measure
		}
		if n := len(text); n > 1 && isDigitAt(text, n-2) && strings.Trim(text[:n-1], "-$0123456789.,") == "" && strings.IndexByte("mgshlL", text[n-1]) >= 0 {
			text = text[:n-1] // a unit
		}
		c.segment, c.text = segment{lo, i + len(run)}, text+s.magnitude(i+len(run))
		return c, n
	}
	n := s.numberAt(i)
	if n == 0 {
		return candidate{}, 0
	}
	end := min(i+n, limit)
	text := strings.TrimRight(s.text[i:end], ".,:*-+/_")
	hi := i + len(text)
	if n := len(text); n > 1 && (text[n-1]|0x20 == 'k' || text[n-1] == 'M' && text[0] == '$') && strings.Trim(text[:n-1], "-$0123456789.,") == "" {
		text = map[bool]string{true: "1000*", false: "1000000*"}[text[n-1]|0x20 == 'k'] + strings.TrimPrefix(text[:n-1], "$")
	}
	c := candidate{segment: segment{i, hi}, text: text + s.magnitude(hi), aside: s.isAside(i) || s.isMark(i, end), aim: s.isAim(i)}
	c.sum = s.isResult(i)
	return c, end - i
}

// isMeasure reports whether text is a number and a unit of length without a space, as
// in 5m.
func isMeasure(text string) bool {
	number := strings.TrimRight(text, "cmk")
	return number != text && strings.HasSuffix(text, "m") && strings.Trim(number, "-$0123456789.,") == ""
}

// isRelation reports whether run, with its last = at at, is a relation rather than a
// value for its right side: an inequality, or an equation such as 2x - y + 3 = 0.
func isRelation(run string, at int) bool {
	if strings.ContainsAny(run, "<>≤≥≠") {
		return true
	}
	left := strings.TrimSpace(run[:at])
	right := strings.TrimSpace(run[at+1:])
	named := strings.IndexFunc(strings.TrimRight(right, "mgshlL"), unicode.IsLetter) >= 0 // rather than measured
	curve := strings.ContainsAny(left, "²³^")                                             // x² + y² = 25
	return (right == "0" || named || curve) && strings.ContainsAny(left, "+-−") && strings.IndexFunc(left, unicode.IsLetter) >= 0
}

// isResult reports whether "=", "equals" or "rounds to" precedes i.
func (s sentence) isResult(i int) bool {
	before := strings.TrimRight(strings.ToLower(s.text[max(0, i-24):i]), " $*")
	if strings.HasSuffix(before, "=") || strings.HasSuffix(before, " equals") {
		return true
	}
	return strings.Contains(before, "round") && strings.HasSuffix(before, " to")
}

// numberAt returns the length of the number or space-free expression at i, or 0.
func (s sentence) numberAt(i int) int {
	t := s.text
	j := i
	for j < len(t) && (t[j] == '-' || t[j] == '$' || t[j] == '.' || t[j] == '+') && j < i+3 {
		j++
	}
	if rest, ok := strings.CutPrefix(t[j:], "−"); ok && isDigitAt(rest, 0) {
		j += len("−")
	}
	if !isDigitAt(t, j) || i > 0 && (isLetterAt(t, i-1) || isDigitAt(t, i-1)) {
		return 0
	}
	if (t[i] == '-' || t[i] == '+') && i > 0 && t[i-1] != ' ' && t[i-1] != '(' && t[i-1] != '=' && t[i-1] != '*' && t[i-1] != ':' {
		return 0
	}
	for j < len(t) {
		c := t[j]
		switch {
		case isDigitAt(t, j), strings.IndexByte("%/^:_", c) >= 0:
			j++
		case (c == '.' || c == ',') && isDigitAt(t, j+1), c == ',' && j+1 < len(t) && t[j+1] == '-' && isDigitAt(t, j+2):
			j++
		case c == ' ' && (s.mixed(j) || s.grouped(i, j)):
			j++
		case (c == '-' || c == '+' || c == '*') && isDigitAt(t, j+1):
			j++
		case strings.HasPrefix(t[j:], "°"):
			j += len("°")
		case isLetterAt(t, j) && !isLetterAt(t, j+1) && strings.IndexByte("mgshlL", c) < 0: // 2k+3
			j++
		default:
			return j - i
		}
	}
	return j - i
}

// grouped reports whether the space at j is a thousands separator of the number at i,
// as in 1 000.
func (s sentence) grouped(i, j int) bool {
	t := s.text
	head := strings.TrimLeft(t[i:j], "-$")
	return len(head) <= 3 && head != "" && head[0] != '0' && strings.Trim(head, "0123456789") == "" &&
		isDigitAt(t, j+1) && isDigitAt(t, j+2) && isDigitAt(t, j+3) && !isDigitAt(t, j+4) && !isLetterAt(t, j+4)
}

// mixed reports whether the space at i is part of a mixed number such as 3 1/2.
func (s sentence) mixed(i int) bool {
	t := s.text
	j := i + 1
	for isDigitAt(t, j) {
		j++
	}
	return isDigitAt(t, i-1) && j > i+1 && j < len(t) && t[j] == '/' && isDigitAt(t, j+1)
}

// magnitude returns the factor or base that the words after a number, such as million,
// give it.
func (s sentence) magnitude(i int) string {
	if base := s.baseAt(i); base != "" && !strings.HasSuffix(s.text[:i], "_") {
		return base
	}
	rest := strings.ToLower(s.text[i:min(len(s.text), i+10)])
	for _, m := range [][2]string{{" thousand", "*1000"}, {" million", "*1000000"}, {" billion", "*1000000000"}} {
		if strings.HasPrefix(rest, m[0]) {
			return m[1]
		}
	}
	for _, m := range []string{" p.m", " pm", " a.m", " am"} {
		if strings.HasPrefix(rest, m) && !isLetterAt(rest, len(m)) {
			return s.text[i : i+len(m)]
		}
	}
	if word := firstField(strings.TrimPrefix(s.text[i:min(len(s.text), i+16)], " ")); answer.IsUnit(strings.Trim(word, ".,")) && len(word) > 1 && word != "in" {
		return " " + strings.Trim(word, ".,")
	}
	return ""
}

// isMark reports whether a number is a list label or part of a word: "3. Add",
// "5-year-old", "2nd".
func (s sentence) isMark(lo, hi int) bool {
	t := s.text
	before := strings.Trim(t[:lo], " *#\n")
	if before == "" && hi < len(t) && (t[hi-1] == '.' || t[hi] == '.' || t[hi] == ')') && strings.TrimSpace(t[hi+1:]) != "" {
		return true
	}
	if rest, ok := strings.CutPrefix(t[hi:], " times "); ok && (strings.HasPrefix(rest, "a ") || strings.HasPrefix(rest, "per ")) { // 3 times a week
		return true
	}
	for _, ordinal := range []string{"st", "nd", "rd", "th"} {
		if strings.HasPrefix(t[hi:], ordinal) && !isLetterAt(t, hi+2) {
			return true
		}
	}
	if strings.HasSuffix(strings.TrimRight(t[:lo], "$ "), "which is") { // "which is 5 more than"
		word := firstField(t[hi:min(len(t), hi+20)])
		return word == "more" || word == "less" || word == "fewer" || word == "times"
	}
	return hi+1 < len(t) && t[hi] == '-' && isLetterAt(t, hi+1)
}

// isAside reports whether the text at i is about something other than the sentence's
// subject: the nearest word before it, not counting articles and the like, is a
// preposition.
func (s sentence) isAside(i int) bool {
	before := s.text[max(0, i-60):i]
	if strings.HasSuffix(strings.TrimRight(before, " $*"), "=") {
		return false
	}
	if k := max(strings.LastIndex(before, " than "), strings.LastIndex(before, "as many as "), strings.LastIndex(before, "as much as ")); k >= 0 && !strings.ContainsAny(before[k:], ",=:;") && !strings.Contains(before[k:], " are ") && !strings.Contains(before[k:], " is ") {
		return true
	}
	if k := max(strings.LastIndex(before, " from "), strings.LastIndex(before, "times as ")); k >= 0 && !strings.ContainsAny(before[k:], ",=:;") && (strings.Contains(before[k:], " to ") || strings.Contains(before[k:], " as ")) {
		return true
	}
	fields := strings.FieldsFunc(strings.ToLower(before), func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' && r != ',' && r != '=' && r != ':' })
	for k := len(fields) - 1; k >= max(0, len(fields)-4); k-- {
		f := fields[k]
		if strings.ContainsAny(f, ",=:") && f != fields[len(fields)-1] || strings.TrimRight(f, ",=:") == "" {
			return false
		}
		f = strings.TrimRight(f, ",=:")
		if slices.Contains(skipped(), f) || strings.HasSuffix(f, "ing") || strings.HasSuffix(f, "'s") {
			continue
		}
		switch {
		case f == "total" || f == "all" && k == len(fields)-1:
			return false
		case f == "of" && isShare(before):
			return true
		case f == "of":
			return k < len(fields)-1 || k > 0 && slices.Contains([]string{"each", "end", "out", "all", "both", "any", "most", "some", "rest", "one", "every"}, fields[k-1])
		}
		return slices.Contains(prepositions(), f)
	}
	return false
}

// isShare reports whether text ends in a fraction of something: "1/8 of", "a third of
// the".
func isShare(text string) bool {
	head := strings.TrimRight(text[:max(0, strings.LastIndex(text, "of"), strings.LastIndex(text, "Of"))], " $*")
	if head == "" {
		return false
	}
	word := strings.ToLower(head[strings.LastIndexAny(head, " $*")+1:])
	return strings.HasSuffix(word, "%") || isDigitAt(word, 0) && isDigitAt(word, len(word)-1) ||
		slices.Contains([]string{"half", "third", "thirds", "quarter", "quarters", "fourth", "fourths", "fifth", "fifths", "percent"}, word)
}

func skipped() []string {
	return []string{"the", "a", "an", "his", "her", "their", "its", "these", "those", "only", "about", "next", "first", "last", "other",
		"just", "exactly", "approximately", "additional", "extra", "remaining", "original", "away", "up", "out", "off", "back"}
}

func prepositions() []string {
	return []string{"for", "in", "from", "after", "with", "at", "by", "per", "every", "each", "on", "within", "during", "over", "among", "between",
		"if", "when", "since", "because", "than", "step", "day", "week", "year", "month", "part", "case", "question", "problem", "all", "both",
		"using", "through", "until", "across", "into", "versus", "against", "base", "above", "below", "beyond", "past", "modulo", "mod", "when", "where", "given", "without", "despite", "not"}
}

// isAim reports whether the text at i belongs to an infinitive of purpose: "to make 1
// robe", but not "has to pay 5", "adds 5 to this" or "to get 5".
func (s sentence) isAim(i int) bool {
	fields := strings.Fields(strings.ToLower(s.text[max(0, i-60):i]))
	for k := len(fields) - 2; k >= max(0, len(fields)-7); k-- {
		if strings.ContainsAny(fields[k], ",;:=0123456789") {
			return false
		}
		if fields[k] != "to" {
			continue
		}
		if slices.Contains([]string{"this", "that", "the", "it", "get", "give", "obtain", "find", "be", "a", "his", "her", "their"}, fields[k+1]) {
			return false
		}
		return k == 0 || !slices.Contains([]string{"needs", "need", "needed", "has", "have", "had", "having", "able", "going", "equal", "out", "comes", "up",
			"amounts", "want", "wants", "wanted", "required", "expected", "likely", "decides", "decided", "manages", "managed"}, fields[k-1])
	}
	return false
}
