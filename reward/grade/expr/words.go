package expr

import "strings"

// letters reads a run of letters: a function, a constant, a word, or one symbol per
// letter.
func (l *lexer) letters() {
	start := l.at
	for isLetter(l.s, l.at) {
		l.at++
	}
	run := l.s[start:l.at]
	lower := strings.ToLower(run)
	measured := l.measured()
	switch {
	case lower == "and" || lower == "or":
		l.emit(tOp, ",")
	case lower == "to" && len(l.out) > 0 && l.out[len(l.out)-1].kind == tNumber && isDigit(strings.TrimLeft(l.s[l.at:], " "), 0):
		l.emit(tOp, ":") // 3 to 4
	case run == "mod":
		l.emit(tOp, "mod")
	case lower == "percent" || lower == "pct":
		l.emit(tOp, "%")
	case lower == "degrees" || lower == "degree" || lower == "deg":
		l.emit(tOp, "deg")
	case len(run) == 1 && (lower == "p" || lower == "a") && l.meridian():
		l.emit(tWord, lower+"m")
	case lower == "pi":
		l.emit(tSymbol, lower)
	case lower == "inf" || lower == "infty" || lower == "infinity" || lower == "oo":
		l.emit(tSymbol, "infty")
	case run == "sqrt" || run == "cbrt":
		l.emit(tFunc, run)
	case l.setWord(lower):
	case measured && (lower == "min" || lower == "sec"):
		l.emit(tWord, run)
	case !l.prose && isFunction(run):
		l.emit(tFunc, run)
	case isWord(run, measured, l.prose):
		l.emit(tWord, run)
	case len(run) == 1 && measured && l.spaced && isUnitLetter(run) && strings.TrimSpace(l.s[l.at:]) == "":
		l.emit(tWord, run)
	case len(run) == 1 && measured && l.spaced && isUnitLetter(run) && l.rate():
	case len(run) == 1 && l.perWord():
		l.emit(tWord, run)
	default:
		for i := range run {
			l.emit(tSymbol, run[i:i+1])
		}
		if isDigit(l.s, l.at) && !l.prose { // x1 is x_1
			n := digitsAt(l.s, l.at)
			l.out[len(l.out)-1].text += "_" + l.s[l.at:l.at+n]
			l.at += n
		}
	}
}

// meridian consumes the rest of "p.m." and reports whether it was there.
func (l *lexer) meridian() bool {
	rest := strings.ToLower(l.s[l.at:min(len(l.s), l.at+4)])
	if !strings.HasPrefix(rest, ".m") || len(rest) > 2 && isLetter(rest, 2) {
		return false
	}
	l.at += 2
	return true
}

// rate reads the denominator of a unit, as in "5 m/s", at the end of an answer.
func (l *lexer) rate() bool {
	if power := strings.TrimRight(l.s[l.at:], " ."); power == "^2" || power == "^3" { // 16 m^2
		l.emit(tWord, l.s[l.at-1:l.at])
		return true
	}
	rest, ok := strings.CutPrefix(l.s[l.at:], "/")
	rest = strings.TrimRight(rest, " .")
	if !ok || rest == "" || len(rest) > 6 || strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz^23") != "" || !isLetter(rest, 0) {
		return false
	}
	l.emit(tWord, l.s[l.at-1:])
	l.at = len(l.s)
	return true
}

// perWord reports whether a unit and "/" precede, as in km/h.
func (l *lexer) perWord() bool {
	n := len(l.out)
	return n >= 3 && !l.spaced && l.out[n-1].kind == tOp && l.out[n-1].text == "/" && l.out[n-2].kind == tWord && l.out[n-3].kind == tNumber
}

// measured reports whether a number or its unit precedes.
func (l *lexer) measured() bool {
	if len(l.out) == 0 {
		return false
	}
	last := l.out[len(l.out)-1]
	return last.kind == tNumber || last.kind == tWord || last.kind == tClose || last.kind == tOp && (last.text == "/" || last.text == "%" || last.text == "deg")
}

// measuredUnit reads upright letters as a unit, as in 5\,\mathrm{m/s} and
// \frac{\text{m}}{\text{s}}.
func (l *lexer) measuredUnit(inside string) bool {
	inside = strings.TrimSpace(inside)
	single := len(inside) == 1 && isUnitLetter(inside) && inside != "C" && inside != "F"
	if !single && (!l.measured() || inside == "" || len(inside) > 20 || !strings.ContainsAny(inside, "/^") && (len(inside) > 1 || !isUnitLetter(inside))) {
		return false
	}
	for i := range len(inside) {
		if !isLetter(inside, i) && strings.IndexByte(" /^-23{}", inside[i]) < 0 || strings.Count(inside, "/") > 1 {
			return false
		}
	}
	l.emit(tWord, inside)
	return true
}

// setWord reads words used as operators between sets.
func (l *lexer) setWord(lower string) bool {
	next := strings.TrimLeft(l.s[l.at:], " ")
	opens := next != "" && strings.ContainsRune(`([{\`, rune(next[0]))
	closed := len(l.out) > 0 && l.out[len(l.out)-1].kind == tClose
	switch {
	case (lower == "u" || lower == "union") && closed && opens:
		l.emit(tOp, "cup")
	case lower == "in" && opens && len(l.out) > 0 && l.out[len(l.out)-1].kind == tSymbol:
		l.emit(tOp, "in")
	default:
		return false
	}
	return true
}

func isFunction(name string) bool {
	switch name {
	case "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
		"log", "ln", "lg", "exp", "max", "min", "gcd", "lcm", "det", "arg", "abs", "floor", "ceil",
		"sum", "prod", "int", "lim", "binom", "cis":
		return true
	}
	return false
}

func isUnitLetter(run string) bool { return strings.Contains("mgshLlJNWVKCF", run) }

// isWord reports whether a run of letters is a word or a unit rather than a product of
// symbols. A two-letter unit must follow a number.
func isWord(run string, measured, prose bool) bool {
	lower := strings.ToLower(run)
	switch {
	case len(run) == 1:
		return false
	case prose || len(run) >= 4:
		return true
	case len(run) == 2:
		if strings.Contains(" is of to by at it be no an we if so on as do he in ", " "+lower+" ") && lower == run {
			return true
		}
		return measured && strings.Contains(" cm mm km kg mg ft yd lb oz hr mi ml cc sq am pm us in ms dm kw mw hz min st nd rd th ", " "+lower+" ")
	}
	if strings.Contains(" mph kph kmh hrs lbs sec min usd ice egg sqm yrs the day one two six ten all any are odd ", " "+lower+" ") {
		return true
	}
	return strings.Contains("aeiou", lower[1:2]) && !strings.Contains("aeiou", lower[:1]) && !strings.Contains("aeiou", lower[2:]) ||
		measured && strings.ContainsAny(lower, "aeiou")
}
