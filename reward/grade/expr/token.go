package expr

import (
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
	// text is one of + - * / ^ _ ! = != < <= > >= ~ in cup cap \ ± ∓ : , ; & | || ' % deg $ row mod mid choose
	tOp
	tOpen   // text is ( [ { < or group
	tClose  // text is ) ] } > or group
	tMatrix // the start of a matrix
	tFinish // the end of an environment
)

// token is a piece of a text. The zero token stands for none.
type token struct {
	kind   kind
	text   string
	node   *Node
	spaced bool // follows white space
}

// isOp reports whether t is one of the operators.
func (t token) isOp(texts ...string) bool { return t.kind == tOp && slices.Contains(texts, t.text) }

// isBrace reports whether t is a bracket that LaTeX writes with a brace.
func (t token) isBrace() bool { return t.text == "group" || t.text == "{" || t.text == "}" }

// isMeasure reports whether t may end a number or its unit.
func (t token) isMeasure() bool {
	return t.kind == tNumber || t.kind == tWord || t.kind == tClose || t.isOp("/", "%", "deg")
}

// Mode selects how commas between digits are read.
type Mode struct {
	Thousands bool // 1,234 and 1 234 are numbers, not lists
	Decimal   bool // 1,5 is 1.5
}

// lexer splits a text into tokens.
type lexer struct {
	cursor
	mode    Mode
	out     []token
	spaced  bool
	prose   bool  // inside \text: letters are words
	missing int   // arguments of a \frac yet to come: a single digit is one
	stack   []int // missing outside each open brace
	depth   int   // open brackets, not counting braces
	matrix  int   // open matrices
	failed  bool
}

// last returns the n-th token from the end, the last one for 1.
func (l *lexer) last(n int) token {
	if n > len(l.out) {
		return token{}
	}
	return l.out[len(l.out)-n]
}

func (l *lexer) emit(k kind, text string) { l.push(token{kind: k, text: text}) }

func (l *lexer) push(t token) {
	t.spaced, l.spaced = l.spaced, false
	l.out = append(l.out, t)
	switch t.kind {
	case tSymbol, tNumber:
		l.missing = max(0, l.missing-1)
	case tOpen:
		if t.isBrace() { // any group counts as one argument of a preceding \frac
			l.stack, l.missing = append(l.stack, max(0, l.missing-1)), 0
		}
		if t.text != "group" {
			l.depth++
		}
	case tClose:
		if n := len(l.stack); n > 0 && t.isBrace() {
			l.missing, l.stack = l.stack[n-1], l.stack[:n-1]
		}
		if t.text != "group" {
			l.depth--
		}
	}
}

// plain rewrites common Unicode signs as ASCII or LaTeX.
func plain(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
		return s
	}
	return strings.NewReplacer(
		"−", "-", "–", "-", "—", "-", "×", "*", "·", "*", "⋅", "*", "∙", "*", "÷", "/", "∕", "/", "⁄", "/",
		"π", `\pi `, "∞", `\infty `, "≤", "<=", "≥", ">=", "⩽", "<=", "⩾", ">=", "≠", "!=", "≈", "~", "≡", `\equiv `,
		"∪", `\cup `, "∩", `\cap `, "∈", `\in `, "°", `^\circ `, "±", `\pm `, "∓", `\mp `, "√", "sqrt ", "∛", "cbrt ",
		"θ", `\theta `, "α", `\alpha `, "β", `\beta `, "∅", `\emptyset `, "ℝ", `\mathbb{R}`,
		"\u00a0", " ", "\u2009", " ", "\u202f", " ", "\u200b", "", "’", "'", "′", "'", "€", "", "£", "",
		"¥", "", "₹", "",
	).Replace(raised(Fractions(s)))
}

// lex returns the tokens of s and whether all of it was read.
func lex(s string, mode Mode) ([]token, bool) {
	l := &lexer{cursor: cursor{s: plain(s)}, mode: mode}
	l.run()
	return l.out, !l.failed && len(l.out) <= maxTokens
}

// firstIdeograph is the start of the scripts whose letters form words.
const firstIdeograph = 0x2e80

// run reads tokens until the end of the text, a fault or too many tokens.
func (l *lexer) run() {
	for !l.done() && !l.failed && len(l.out) <= maxTokens {
		r, size := utf8.DecodeRuneInString(l.rest())
		switch {
		case unicode.IsSpace(r) || r == '~' && l.prose:
			l.spaced = true
			l.at += size
		case r == '\\':
			l.backslash()
		case DigitAt(l.s, l.at) || r == '.' && DigitAt(l.s, l.at+1):
			l.number()
		case r < utf8.RuneSelf && unicode.IsLetter(r):
			l.letters()
		case r >= firstIdeograph && unicode.IsLetter(r):
			word := l.rest()
			if n := strings.IndexFunc(word,
				func(r rune) bool { return r < firstIdeograph || !unicode.IsLetter(r) }); n >= 0 {
				word = word[:n]
			}
			l.emit(tWord, l.take(len(word)))
		case unicode.IsLetter(r):
			l.emit(tSymbol, l.take(size))
		default:
			l.sign(r, size)
		}
	}
}

// number reads a number. As a LaTeX argument without braces, it is a single digit: \frac12.
func (l *lexer) number() {
	form := notation{Mode: l.mode, listed: l.depth > 0, argument: l.missing > 0}
	t := token{kind: tNumber}
	if form.argument && DigitAt(l.s, l.at) {
		t.node = form.decimal(&l.cursor, l.take(1), "")
	} else {
		t.node = form.read(&l.cursor)
	}
	if l.failed = t.node == nil; !l.failed {
		l.push(t)
	}
}

// sign reads an operator or punctuation.
func (l *lexer) sign(r rune, size int) {
	for _, op := range [][2]string{{"<=", "<="}, {">=", ">="}, {"!=", "!="}, {"==", "="}, {"=<", "<="}, {"=>", ">="},
		{"**", "^"}, {"||", "||"}, {"+-", "±"}, {"->", "in"}} {
		if op[0] == "!=" && !l.spaced && (l.last(1).kind == tNumber || l.last(1).kind == tClose) { // 5!=120
			continue
		}
		if l.accept(op[0]) {
			l.emit(tOp, op[1])
			return
		}
	}
	text := l.take(size)
	switch r {
	case '+', '-', '*', '/', '^', '_', '!', '=', '<', '>', '~', ':', ',', ';', '|', '\'', '%':
		l.emit(tOp, text)
	case '&':
		if l.matrix > 0 {
			l.emit(tOp, text)
		}
	case '(', '[':
		l.emit(tOpen, text)
	case ')', ']':
		l.emit(tClose, text)
	case '{':
		l.emit(tOpen, "group")
	case '}':
		l.emit(tClose, "group")
	case '$':
		if DigitAt(l.s, l.at) || strings.HasPrefix(l.rest(), ".") {
			l.emit(tOp, text)
		}
	case '.', '"', '`', '?', '…':
		l.spaced = true
	default:
		l.failed = true
	}
}
