package expr

import "strings"

// command reads a LaTeX command.
func (l *lexer) command() {
	start := l.at
	l.at++
	if l.at >= len(l.s) {
		return
	}
	if !isLetter(l.s, l.at) {
		c := l.s[l.at]
		l.at++
		l.escaped(c)
		return
	}
	for isLetter(l.s, l.at) {
		l.at++
	}
	name := l.s[start+1 : l.at]
	for _, space := range []string{"qquad", "quad"} {
		if rest, ok := strings.CutPrefix(name, space); ok {
			l.at -= len(rest)
			name = space
			break
		}
	}
	switch {
	case l.layout(name), l.text(name), l.operator(name):
	case isFunction(name):
		l.emit(tFunc, name)
	default:
		l.emit(tSymbol, name)
	}
}

// escaped reads a backslash followed by a non-letter.
func (l *lexer) escaped(c byte) {
	switch c {
	case '\\':
		// A doubled backslash before a command name is an extra escape.
		n := 0
		for isLetter(l.s, l.at+n) {
			n++
		}
		if n > 1 && known(l.s[l.at:l.at+n]) {
			l.at--
			l.command()
			return
		}
		l.row()
	case '{':
		l.open("{")
	case '}':
		l.shut("}")
	case '%':
		l.emit(tOp, "%")
	case '$':
		l.emit(tOp, "$")
	case '|':
		l.emit(tOp, "||")
	case '(', ')', '[', ']', '!':
	case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		l.failed = true
	default: // spacing such as \, \; \: \>
		l.spaced = true
	}
}

// row ends a row of a matrix or a line of several equations.
func (l *lexer) row() {
	next := strings.TrimLeft(l.s[l.at:], " &\n\t")
	switch {
	case l.matrix > 0:
		l.emit(tOp, "row")
	case next == "" || strings.IndexByte("=<>~", next[0]) >= 0 || strings.HasPrefix(next, `\le`) || strings.HasPrefix(next, `\ge`) || strings.HasPrefix(next, `\approx`): // the equation continues
	default:
		l.emit(tOp, ",")
	}
}

func known(name string) bool {
	switch name {
	case "frac", "dfrac", "tfrac", "sqrt", "left", "right", "boxed", "text", "le", "leq", "ge", "geq", "lt", "gt", "neq", "ne",
		"pi", "infty", "cup", "cap", "in", "cdot", "times", "pm", "circ", "mathrm", "mathbf", "begin", "end", "quad", "theta", "textbf":
		return true
	}
	return false
}

// layout reads a command that only affects layout.
func (l *lexer) layout(name string) bool {
	switch name {
	case "left", "right", "big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr", "biggl", "biggr", "Biggl", "Biggr", "middle",
		"displaystyle", "textstyle", "limits", "nolimits", "mathbf", "mathit", "mathsf", "mathcal", "boldsymbol", "bm", "boxed", "fbox",
		"underline", "overline", "vec", "hat", "bar", "widehat", "overrightarrow", "mathstrut", "hline", "rm", "bf", "it", "large", "Large", "huge", "normalsize":
		if l.at < len(l.s) && l.s[l.at] == '.' { // \left. has no bracket
			l.at++
		}
	case "cr", "tabularnewline":
		l.row()
	case "quad", "qquad", "hspace", "vspace", "hfill", "newline", "label", "tag", "color", "textcolor", "noalign":
		if name != "quad" && name != "qquad" {
			l.braced()
		}
		l.spaced = true
	case "phantom", "hphantom", "vphantom":
		if _, ok := l.braced(); !ok {
			l.at = min(len(l.s), l.at+2)
		}
	case "begin", "end":
		env, _ := l.braced()
		env = strings.TrimSuffix(env, "*")
		isMatrix := strings.HasSuffix(env, "matrix") || env == "array"
		switch {
		case isMatrix && name == "begin":
			if env == "array" {
				l.braced()
			}
			l.matrix++
			l.emit(tMatrix, env)
		case isMatrix:
			l.matrix--
			l.emit(tFinish, env)
		}
	default:
		return false
	}
	return true
}

// text reads a command whose argument is words.
func (l *lexer) text(name string) bool {
	switch name {
	case "text", "textbf", "textit", "textrm", "textsf", "texttt", "textnormal", "mbox", "hbox", "mathrm", "operatorname", "emph", "mathbb", "mathop", "textsuperscript":
	case "bmod", "mod":
		l.emit(tOp, "mod")
		return true
	case "pmod", "pod":
		if _, ok := l.braced(); !ok {
			rest := strings.TrimLeft(l.s[l.at:], " ")
			l.at = len(l.s) - len(strings.TrimLeft(rest, "0123456789"))
		}
		return true
	default:
		return false
	}
	inside, ok := l.braced()
	switch {
	case !ok:
		return true
	case strings.TrimSpace(inside) == "to" && len(l.out) > 0 && l.out[len(l.out)-1].kind == tNumber:
		l.emit(tOp, ":")
		return true
	case l.measuredUnit(inside):
		return true
	case name == "mathbb":
		l.emit(tSymbol, "mathbb "+inside)
		return true
	case name == "operatorname" && isFunction(inside):
		l.emit(tFunc, inside)
		return true
	}
	if len(l.stack) > maxDepth || strings.Count(inside, `\`) > 16 {
		l.failed = true
		return true
	}
	sub := &lexer{mode: l.mode, s: inside, prose: true, spaced: l.spaced}
	sub.run()
	l.failed = l.failed || sub.failed
	l.out = append(l.out, sub.out...)
	l.spaced = true
	l.digits = max(0, l.digits-1)
	return true
}

// operator reads a command for an operator or a bracket.
func (l *lexer) operator(name string) bool {
	switch name {
	case "frac", "dfrac", "tfrac", "cfrac", "binom", "dbinom", "tbinom":
		if strings.HasSuffix(name, "frac") {
			l.emit(tFunc, "frac")
		} else {
			l.emit(tFunc, "binom")
		}
		l.digits = 2
	case "sqrt":
		l.emit(tFunc, "sqrt")
	case "lbrace":
		l.open("{")
	case "rbrace":
		l.shut("}")
	case "langle", "lfloor", "lceil", "lbrack":
		l.emit(tOpen, map[string]string{"langle": "<", "lfloor": "floor", "lceil": "ceil", "lbrack": "["}[name])
	case "rangle", "rfloor", "rceil", "rbrack":
		l.emit(tClose, map[string]string{"rangle": ">", "rfloor": "floor", "rceil": "ceil", "rbrack": "]"}[name])
	default:
		op := operatorSign(name)
		if op == "" {
			return false
		}
		l.emit(tOp, op)
	}
	return true
}

func operatorSign(name string) string {
	switch name {
	case "cdot", "times", "ast", "star", "bullet":
		return "*"
	case "div", "over":
		return "/"
	case "le", "leq", "leqslant", "leqq":
		return "<="
	case "ge", "geq", "geqslant", "geqq":
		return ">="
	case "lt":
		return "<"
	case "gt":
		return ">"
	case "ne", "neq":
		return "!="
	case "approx", "simeq", "sim":
		return "~"
	case "equiv":
		return "="
	case "in", "to", "rightarrow", "mapsto":
		return "in"
	case "cup", "cap":
		return name
	case "setminus", "backslash":
		return `\`
	case "pm":
		return "±"
	case "mp":
		return "∓"
	case "colon":
		return ":"
	case "mid":
		return name
	case "vert", "lvert", "rvert":
		return "|"
	case "Vert", "lVert", "rVert", "|":
		return "||"
	case "circ", "degree":
		return "deg"
	case "prime":
		return "'"
	case "land", "lor", "wedge", "vee":
		return ","
	case "percent":
		return "%"
	case "choose":
		return name
	}
	return ""
}
