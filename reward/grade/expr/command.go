package expr

import "strings"

// command is the name of a LaTeX command, without its backslash.
type command string

// backslash reads a LaTeX command or an escaped sign.
func (l *lexer) backslash() {
	l.at++
	switch {
	case l.done():
	case LetterAt(l.s, l.at):
		l.command()
	default:
		l.escaped(l.take(1)[0])
	}
}

// The names of commands: those that only change how what follows looks, those whose argument is
// text, and those that leave space in place of their argument.
const (
	looks Names = `
	left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr middle displaystyle textstyle limits
	nolimits mathbf mathit mathtt mathscr tt mathsf mathcal boldsymbol bm boxed fbox underline vec hat widehat
	overrightarrow mathstrut hline rm bf it large Large huge normalsize`
	texts Names = `
	text textbf textit textrm textsf texttt textnormal mbox hbox mathrm operatorname emph mathbb mathop
	textsuperscript`
	spaces Names = "hspace vspace hfill newline label tag color textcolor noalign"
)

// command reads the name of a command and what it needs of the text after it.
func (l *lexer) command() {
	name := command(l.word())
	for _, space := range []string{"qquad", "quad"} {
		if rest, ok := strings.CutPrefix(string(name), space); ok {
			l.at -= len(rest)
			name = "quad"
			break
		}
	}
	switch {
	case looks.Has(string(name)):
		l.accept(".") // \left. has no bracket
	case name == "overline" || name == "bar":
		look := l.cursor
		if inside, ok := look.braced(); !ok && LetterAt(strings.TrimLeft(l.rest(), " "), 0) ||
			ok && strings.Trim(inside, "ABCDEFGHIJKLMNOPQRSTUVWXYZ'_{}0123456789 ") != "" {
			l.emit(tFunc, "conj")
		}
	case texts.Has(string(name)):
		if inside, ok := l.braced(); ok {
			l.text(name, inside)
		}
	case name == "begin" || name == "end":
		l.environment(name)
	case name == "cr" || name == "tabularnewline":
		l.row()
	case name == "quad":
		l.spaced = true
	case spaces.Has(string(name)):
		l.braced()
		l.spaced = true
	case name == "phantom" || name == "hphantom" || name == "vphantom":
		if _, ok := l.braced(); !ok {
			l.take(min(2, len(l.rest())))
		}
	case name == "pmod" || name == "pod":
		if _, ok := l.braced(); !ok {
			l.skipSpaces()
			l.digits()
		}
	default:
		t := name.token()
		l.push(t)
		if t.kind == tFunc && (t.text == "frac" || t.text == "binom") {
			l.missing = 2
		}
	}
}

// escaped reads a backslash followed by a non-letter.
func (l *lexer) escaped(c byte) {
	switch c {
	case '\\':
		// A doubled backslash before a command name is an extra escape.
		if n := lettersAt(l.s, l.at); n > 1 && command(l.s[l.at:l.at+n]).known() {
			l.command()
			return
		}
		l.row()
	case '{':
		l.emit(tOpen, "{")
	case '}':
		l.emit(tClose, "}")
	case '%', '$':
		l.emit(tOp, string(c))
	case '|':
		l.emit(tOp, "||")
	case '&':
		l.emit(tSymbol, "&")
	case '(', ')', '[', ']', '!':
	case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		l.failed = true
	default: // spacing such as \, \; \: \>
		l.spaced = true
	}
}

// row ends a row of a matrix or a line of several equations.
func (l *lexer) row() {
	next := strings.TrimLeft(l.rest(), " &\n\t")
	switch {
	case l.matrix > 0:
		l.emit(tOp, "row")
	// the equation continues
	case next == "" || strings.IndexByte("=<>~", next[0]) >= 0 || strings.HasPrefix(next, `\le`) ||
		strings.HasPrefix(next, `\ge`) || strings.HasPrefix(next, `\approx`):
	default:
		l.emit(tOp, ",")
	}
}

// environment reads the name of the environment that begins or ends.
func (l *lexer) environment(name command) {
	env, _ := l.braced()
	env = strings.TrimSuffix(env, "*")
	switch {
	case !strings.HasSuffix(env, "matrix") && env != "array":
	case name == "begin":
		if env == "array" {
			l.braced() // the columns
		}
		l.matrix++
		l.emit(tMatrix, env)
	default:
		l.matrix--
		l.emit(tFinish, env)
	}
}

// text reads the argument of a command that holds words.
func (l *lexer) text(name command, inside string) {
	trimmed := strings.TrimSpace(inside)
	switch {
	case trimmed == "to" && l.last(1).kind == tNumber:
		l.emit(tOp, ":")
	case isUprightUnit(trimmed, l.last(1).isMeasure()):
		l.emit(tWord, trimmed)
	case name == "mathbb":
		l.emit(tSymbol, "mathbb "+inside)
	case name == "operatorname" && (isFunction(inside) || strings.HasPrefix(strings.TrimLeft(l.rest(), " "), "(") &&
		strings.Trim(inside, alphabet) == ""):
		l.emit(tFunc, inside)
	case len(l.stack) > maxDepth || strings.Count(inside, `\`) > 16:
		l.failed = true
	default:
		sub := &lexer{cursor: cursor{s: inside}, mode: l.mode, prose: true, spaced: l.spaced}
		sub.run()
		l.failed = l.failed || sub.failed
		l.out = append(l.out, sub.out...)
		l.spaced = true
		l.missing = max(0, l.missing-1)
	}
}

// known reports whether c is so common a command that it cannot be letters after a line break.
func (c command) known() bool {
	const common Names = `
		frac dfrac tfrac sqrt left right boxed text le leq ge geq lt gt neq ne pi infty cup cap in cdot times pm
		circ mathrm mathbf begin end quad theta textbf`
	return common.Has(string(c))
}

// token returns the bracket, operator, function or symbol that the command stands for.
func (c command) token() token {
	name := string(c)
	switch c {
	case "frac", "dfrac", "tfrac", "cfrac":
		return token{kind: tFunc, text: "frac"}
	case "binom", "dbinom", "tbinom":
		return token{kind: tFunc, text: "binom"}
	case "lbrace", "lbrack", "langle", "lfloor", "lceil", "lparen":
		return token{kind: tOpen, text: map[string]string{"brace": "{", "brack": "[", "angle": "<", "floor": "floor",
			"ceil": "ceil", "paren": "("}[name[1:]]}
	case "rbrace", "rbrack", "rangle", "rfloor", "rceil", "rparen":
		return token{kind: tClose, text: map[string]string{"brace": "}", "brack": "]", "angle": ">", "floor": "floor",
			"ceil": "ceil", "paren": ")"}[name[1:]]}
	}
	switch op := c.operator(); {
	case op != "":
		return token{kind: tOp, text: op}
	case c == "sqrt" || isFunction(name):
		return token{kind: tFunc, text: name}
	}
	return token{kind: tSymbol, text: name}
}

// operator returns the operator that the command stands for, or "".
func (c command) operator() string {
	for _, row := range [...]struct {
		op    string
		names Names
	}{
		{"*", "cdot times ast star bullet"}, {"/", "div over"}, {"<=", "le leq leqslant leqq"},
		{">=", "ge geq geqslant geqq"}, {"<", "lt"}, {">", "gt"}, {"!=", "ne neq"}, {"~", "approx simeq sim"},
		{"equiv", "equiv"}, {"in", "in to rightarrow mapsto"}, {"mod", "bmod mod"}, {"cup", "cup"}, {"cap", "cap"},
		{"mid", "mid"}, {"choose", "choose"}, {`\`, "setminus backslash"}, {"±", "pm"}, {"∓", "mp"}, {":", "colon"},
		{"|", "vert lvert rvert"}, {"||", "Vert lVert rVert"}, {"deg", "circ degree"}, {"'", "prime"},
		{",", "land lor wedge vee"}, {"%", "percent"},
	} {
		if row.names.Has(string(c)) {
			return row.op
		}
	}
	return ""
}
