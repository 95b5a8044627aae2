package expr

import "strings"

// letters reads a run of letters: a function, a constant, a word, or one symbol per
// letter.
func (l *lexer) letters() {
	run := l.word()
	lower := strings.ToLower(run)
	next := strings.TrimLeft(l.rest(), " ")
	last, measured := l.last(1), l.last(1).isMeasure()
	// 20π m^3
	if last.kind == tSymbol && last.text == "pi" && (len(run) > 1 || run == "m" && strings.HasPrefix(next, "^")) {
		measured = true
	}
	fixed, between := fixedWord(run), setWord(lower, last, next)
	unit, ends := "", false // of a measure at the end of the text
	if len(run) == 1 && measured && l.spaced && isUnitLetter(run) {
		unit, ends = unitEnd(l.rest())
	}
	switch {
	case fixed.kind != tEnd:
		l.push(fixed)
	case lower == "to" && last.kind == tNumber && DigitAt(next, 0):
		l.emit(tOp, ":") // 3 to 4
	case (run == "p" || run == "P" || run == "a" || run == "A") && isMeridian(l.rest()):
		l.take(len(".m"))
		l.emit(tWord, lower+"m")
	case between != "":
		l.emit(tOp, between)
	case !l.prose && isFunction(run) && (!measured || lower != "min" && lower != "sec"):
		l.emit(tFunc, run)
	case isWord(run, measured, l.prose):
		l.emit(tWord, run)
	case ends:
		l.emit(tWord, run+l.take(len(unit)))
	case len(run) == 1 && !l.spaced && last.isOp("/") && l.last(2).kind == tWord && l.last(3).kind == tNumber: // km/h
		l.emit(tWord, run)
	default:
		for i := range run {
			l.emit(tSymbol, run[i:i+1])
		}
		if DigitAt(l.s, l.at) && !l.prose && run != "i" { // x1 is x_1, i19 is 19i
			l.out[len(l.out)-1].text += "_" + l.digits()
		}
	}
}

// fixedWord returns the token of a word that means the same everywhere. Its kind is
// tEnd for other words.
func fixedWord(run string) token {
	switch strings.ToLower(run) {
	case "and", "or":
		return token{kind: tOp, text: ","}
	case "percent", "pct":
		return token{kind: tOp, text: "%"}
	case "degrees", "degree", "deg":
		return token{kind: tOp, text: "deg"}
	case "pi":
		return token{kind: tSymbol, text: "pi"}
	case "inf", "infty", "infinity", "oo":
		return token{kind: tSymbol, text: "infty"}
	}
	switch run {
	case "mod":
		return token{kind: tOp, text: run}
	case "sqrt", "cbrt":
		return token{kind: tFunc, text: run}
	}
	return token{}
}

// isMeridian reports whether rest continues "p" or "a" to p.m. or a.m.
func isMeridian(rest string) bool {
	rest = strings.ToLower(rest[:min(len(rest), 4)])
	return strings.HasPrefix(rest, ".m") && !LetterAt(rest, 2)
}

const alphabet = "abcdefghijklmnopqrstuvwxyz"

// unitEnd returns the rest of a unit that ends the text, after the first letter of the unit: the "/s" of "5
// m/s". The rest is empty if the letter is all of the unit, or only an exponent follows it. ok is false if
// there is no such unit.
func unitEnd(rest string) (tail string, ok bool) {
	if strings.TrimSpace(rest) == "" {
		return "", true
	}
	trimmed := strings.TrimRight(rest, " .")
	if trimmed == "^2" || trimmed == "^3" { // 16 m^2
		return "", true
	}
	below, ok := strings.CutPrefix(trimmed, "/")
	return rest, ok && len(below) <= 6 && strings.Trim(below, alphabet+"^23") == "" && LetterAt(below, 0)
}

// isUprightUnit reports whether upright letters are a unit, as in 5\,\mathrm{m/s} and
// \frac{\text{m}}{\text{s}}.
func isUprightUnit(inside string, measured bool) bool {
	single := len(inside) == 1 && isUnitLetter(inside) && inside != "C" && inside != "F"
	if !single && (!measured || inside == "" || len(inside) > 20 ||
		!strings.ContainsAny(inside, "/^") && (len(inside) > 1 || !isUnitLetter(inside))) {
		return false
	}
	return strings.Trim(inside, alphabet+strings.ToUpper(alphabet)+" /^-23{}") == "" && strings.Count(inside, "/") <= 1
}

// setWord returns the operator that a word is between last and the text next, such as
// the U between two sets, or "".
func setWord(lower string, last token, next string) string {
	if next == "" || strings.IndexByte(`([{\`, next[0]) < 0 {
		return ""
	}
	switch {
	case (lower == "u" || lower == "union") && last.kind == tClose:
		return "cup"
	case lower == "in" && last.kind == tSymbol:
		return "in"
	}
	return ""
}

func isFunction(name string) bool {
	const functions Names = `
		sin cos tan cot sec csc arcsin arccos arctan asin acos atan sinh cosh tanh log ln lg exp max min gcd lcm det
		arg abs floor ceil sum prod int lim binom cis`
	return functions.Has(name)
}

func isUnitLetter(run string) bool { return strings.Contains("mgshLlJNWVKCF", run) }

// isWord reports whether a run of letters is a word or a unit rather than a product of
// symbols. A two-letter unit must follow a number.
func isWord(run string, measured, prose bool) bool {
	const (
		short  Names = "is of to by at it be no an we if so on as do he in"
		units  Names = "cm mm km kg mg ft yd lb oz hr mi ml cc sq am pm us in ms dm kw mw hz min st nd rd th"
		common Names = "mph kph kmh hrs lbs sec min usd ice egg sqm yrs the day one two six ten all any are odd"
	)
	lower := strings.ToLower(run)
	switch {
	case len(run) == 1:
		return false
	case prose || len(run) >= 4:
		return true
	case len(run) == 2:
		return short.Has(run) || measured && units.Has(lower)
	}
	return common.Has(lower) || strings.Contains("aeiou", lower[1:2]) && !strings.Contains("aeiou", lower[:1]) &&
		!strings.Contains("aeiou", lower[2:]) ||
		measured && strings.ContainsAny(lower, "aeiou")
}

// Names is a list of names with white space between them.
type Names string

// Has reports whether a name is in the list.
func (l Names) Has(name string) bool {
	for at := 0; name != ""; at++ {
		n := strings.Index(string(l[at:]), name)
		if n < 0 {
			break
		}
		at += n
		end := at + len(name)
		if (at == 0 || l[at-1] <= ' ') && (end == len(l) || l[end] <= ' ') {
			return true
		}
	}
	return false
}
