package expr

import (
	"math/big"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// kind is the kind of a token.
type kind uint8

const (
	tEnd    kind = iota
	tNumber      // node
	tSymbol      // text is its name
	tWord        // text
	tFunc        // text is a function's name
	tOp          // text is one of + - * / ^ _ ! = != < <= > >= ~ in cup cap \ ± ∓ : , ; & | || ' % deg $ row mod mid choose
	tOpen        // text is ( [ { < or group
	tClose       // text is ) ] } > or group
	tMatrix      // the start of a matrix
	tFinish      // the end of an environment
)

type token struct {
	kind   kind
	text   string
	node   *Node
	spaced bool // follows white space
}

// isOp reports whether t is one of the operators.
func (t token) isOp(texts ...string) bool { return t.kind == tOp && slices.Contains(texts, t.text) }

// Mode selects how commas between digits are read.
type Mode struct {
	Thousands bool // 1,234 and 1 234 are numbers, not lists
	Decimal   bool // 1,5 is 1.5
}

// lexer splits a text into tokens.
type lexer struct {
	mode   Mode
	s      string
	at     int
	out    []token
	spaced bool
	prose  bool  // inside \text: letters are words
	digits int   // pending arguments of \frac: a single digit is one
	stack  []int // digits outside each open brace
	depth  int   // open brackets, not counting braces
	matrix int   // open matrices
	failed bool
}

func (l *lexer) emit(k kind, text string) {
	l.out = append(l.out, token{kind: k, text: text, spaced: l.spaced})
	l.spaced = false
	switch {
	case k == tOpen && text != "group":
		l.depth++
	case k == tClose && text != "group":
		l.depth--
	}
	if l.digits > 0 && (k == tSymbol || k == tNumber) {
		l.digits--
	}
}

// plain rewrites common Unicode signs as ASCII or LaTeX.
func plain(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
		return s
	}
	return strings.NewReplacer(
		"−", "-", "–", "-", "—", "-", "×", "*", "·", "*", "⋅", "*", "∙", "*", "÷", "/", "∕", "/", "⁄", "/",
		"π", `\pi `, "∞", `\infty `, "≤", "<=", "≥", ">=", "⩽", "<=", "⩾", ">=", "≠", "!=", "≈", "~",
		"∪", `\cup `, "∩", `\cap `, "∈", `\in `, "°", `^\circ `, "±", `\pm `, "∓", `\mp `, "√", "sqrt ", "∛", "cbrt ",
		"θ", `\theta `, "α", `\alpha `, "β", `\beta `, "∅", `\emptyset `, "ℝ", `\mathbb{R}`,
		"\u00a0", " ", "\u2009", " ", "\u202f", " ", "\u200b", "", "’", "'", "′", "'", "€", "", "£", "", "¥", "", "₹", "",
	).Replace(raised(Fractions(s)))
}

// lex returns the tokens of s and whether all of it was read.
func lex(s string, mode Mode) ([]token, bool) {
	l := &lexer{mode: mode, s: plain(s)}
	l.run()
	return l.out, !l.failed && len(l.out) <= maxTokens
}

func (l *lexer) run() {
	for l.at < len(l.s) && !l.failed && len(l.out) <= maxTokens {
		r, size := utf8.DecodeRuneInString(l.s[l.at:])
		switch {
		case unicode.IsSpace(r) || r == '~' && l.prose:
			l.space(size)
		case r == '\\':
			l.command()
		case isDigit(l.s, l.at) || r == '.' && isDigit(l.s, l.at+1):
			l.number()
		case r < utf8.RuneSelf && unicode.IsLetter(r):
			l.letters()
		case r >= firstIdeograph && unicode.IsLetter(r):
			n := strings.IndexFunc(l.s[l.at:], func(r rune) bool { return r < firstIdeograph || !unicode.IsLetter(r) })
			if n < 0 {
				n = len(l.s) - l.at
			}
			l.at += n
			l.emit(tWord, l.s[l.at-n:l.at])
		case unicode.IsLetter(r):
			l.at += size
			l.emit(tSymbol, string(r))
		default:
			l.sign(r, size)
		}
	}
}

// firstIdeograph is the start of the scripts whose letters form words.
const firstIdeograph = 0x2e80

func (l *lexer) space(size int) {
	l.spaced = true
	l.at += size
}

func isDigit(s string, at int) bool { return at >= 0 && at < len(s) && s[at] >= '0' && s[at] <= '9' }

func isLetter(s string, at int) bool {
	return at >= 0 && at < len(s) && (s[at] >= 'a' && s[at] <= 'z' || s[at] >= 'A' && s[at] <= 'Z')
}

// digitsAt returns the length of the run of digits at at.
func digitsAt(s string, at int) int {
	n := 0
	for isDigit(s, at+n) {
		n++
	}
	return n
}

// separator returns the length of the thousands separator at at, or 0. Exactly three
// digits must follow it.
func (l *lexer) separator(at int) int {
	for _, sep := range []string{`,\!`, `{,}`, `{,\!}`, `\,`, `\!,\!`, `\!,`, `\ `, ",", " "} {
		if !strings.HasPrefix(l.s[at:], sep) {
			continue
		}
		if sep == " " && !l.mode.Thousands || sep == "," && (!l.mode.Thousands || l.depth > 0) {
			return 0 // (100,101) has two items
		}
		n := len(sep)
		for sep != " " && at+n < len(l.s) && l.s[at+n] == ' ' && strings.HasSuffix(sep, `\!`) {
			n++
		}
		if digitsAt(l.s, at+n) == 3 {
			return n
		}
	}
	return 0
}

func (l *lexer) number() {
	if l.digits > 0 && isDigit(l.s, l.at) {
		l.literal(l.s[l.at:l.at+1], 0)
		l.at++
		return
	}
	var b strings.Builder
	n := digitsAt(l.s, l.at)
	b.WriteString(l.s[l.at : l.at+n])
	l.at += n
	if n >= 1 && n <= 3 {
		for l.at < len(l.s) {
			sep := l.separator(l.at)
			if sep == 0 {
				break
			}
			b.WriteString(l.s[l.at+sep : l.at+sep+3])
			l.at += sep + 3
		}
	}
	places := 0
	point := l.at < len(l.s) && (l.s[l.at] == '.' || l.s[l.at] == ',' && l.mode.Decimal)
	if point && (isDigit(l.s, l.at+1) || l.s[l.at] == '.' && !isLetter(l.s, l.at+1)) {
		places = digitsAt(l.s, l.at+1)
		b.WriteString("." + l.s[l.at+1:l.at+1+places])
		l.at += 1 + places
	}
	if point && l.periodic(b.String(), places) {
		return
	}
	l.literal(b.String(), places)
}

// literal emits a number. It reads the exponent of 1.5e-3.
func (l *lexer) literal(digits string, places int) {
	text := strings.TrimSuffix(digits, ".")
	if l.digits == 0 && l.at < len(l.s) && (l.s[l.at] == 'e' || l.s[l.at] == 'E') {
		sign := 0
		if l.at+1 < len(l.s) && (l.s[l.at+1] == '-' || l.s[l.at+1] == '+') {
			sign = 1
		}
		if n := digitsAt(l.s, l.at+1+sign); n >= 1 && n <= 3 {
			text += l.s[l.at : l.at+1+sign+n]
			l.at += 1 + sign + n
		}
	}
	if text[0] == '.' {
		text = "0" + text
	}
	value, ok := new(big.Rat).SetString(text)
	if !ok {
		l.failed = true
		return
	}
	figures := strings.TrimLeft(strings.ReplaceAll(digits, ".", ""), "0")
	l.value(&Node{Kind: Number, Value: value, Places: places, Figures: len(figures), Digits: strings.TrimSuffix(digits, ".")})
}

func (l *lexer) value(n *Node) {
	l.emit(tNumber, "")
	l.out[len(l.out)-1].node = n
}

// sign reads an operator or punctuation.
func (l *lexer) sign(r rune, size int) {
	for _, op := range []string{"<=", ">=", "!=", "==", "=<", "=>", "**", "||", "+-", "->"} {
		if strings.HasPrefix(l.s[l.at:], op) {
			l.at += len(op)
			l.emit(tOp, map[string]string{"==": "=", "=<": "<=", "=>": ">=", "**": "^", "+-": "±", "->": "in"}[op])
			if l.out[len(l.out)-1].text == "" {
				l.out[len(l.out)-1].text = op
			}
			return
		}
	}
	l.at += size
	switch r {
	case '+', '-', '*', '/', '^', '_', '!', '=', '<', '>', '~', ':', ',', ';', '|', '\'', '%':
		l.emit(tOp, string(r))
	case '&':
		if l.matrix > 0 {
			l.emit(tOp, "&")
		}
	case '(', '[':
		l.emit(tOpen, string(r))
	case ')', ']':
		l.emit(tClose, string(r))
	case '{':
		l.open("group")
	case '}':
		l.shut("group")
	case '$':
		if isDigit(l.s, l.at) || l.at < len(l.s) && l.s[l.at] == '.' {
			l.emit(tOp, "$")
		}
	case '.', '"', '`', '?', '…':
		l.spaced = true
	default:
		l.failed = true
	}
}

// open begins a brace group. Any group counts as one argument of a preceding \frac.
func (l *lexer) open(text string) {
	l.stack = append(l.stack, max(0, l.digits-1))
	l.digits = 0
	l.emit(tOpen, text)
}

func (l *lexer) shut(text string) {
	if n := len(l.stack); n > 0 {
		l.digits, l.stack = l.stack[n-1], l.stack[:n-1]
	}
	l.emit(tClose, text)
}

// braced consumes the next brace group and returns its contents.
func (l *lexer) braced() (string, bool) {
	at := l.at
	for at < len(l.s) && l.s[at] == ' ' {
		at++
	}
	if at >= len(l.s) || l.s[at] != '{' {
		return "", false
	}
	depth := 0
	for i := at; i < len(l.s); i++ {
		switch l.s[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				l.at = i + 1
				return l.s[at+1 : i], true
			}
		}
	}
	return "", false
}
