package expr

import (
	"math/big"
	"strings"
)

// periodic reads the marker that makes the preceding decimal repeat forever:
// 0.1\overline{6} or 0.1666…, if the repeating digits occur often enough. It reports
// whether it found one.
func (l *lexer) periodic(digits string, places int) bool {
	rest := l.s[l.at:]
	whole, decimals, _ := strings.Cut(digits, ".")
	if len(decimals) != places || places > 60 {
		return false
	}
	for _, command := range []string{`\overline`, `\bar`, `\dot`, `\overset{.}`} {
		if after, ok := strings.CutPrefix(rest, command); ok {
			after = strings.TrimLeft(after, " ")
			n, skip := digitsAt(after, 0), 0
			if strings.HasPrefix(after, "{") {
				n, skip = digitsAt(after, 1), 1
			}
			if n == 0 || n > 60 || skip == 1 && !strings.HasPrefix(after[1+n:], "}") {
				return false
			}
			l.repeat(whole, decimals, after[skip:skip+n])
			l.at = len(l.s) - len(after) + n + 2*skip
			return true
		}
	}
	for _, dots := range []string{"...", "…", `\ldots`, `\dots`, `\cdots`} {
		if strings.HasPrefix(strings.TrimLeft(rest, " "), dots) {
			period := tail(decimals)
			if period == "" {
				return false
			}
			l.repeat(whole, decimals, period)
			l.at = len(l.s) - len(strings.TrimLeft(rest, " ")) + len(dots)
			return true
		}
	}
	return false
}

// tail returns the shortest run of digits that ends decimals at least twice, or at
// least three times if it is a single digit. It returns "" if there is none.
func tail(decimals string) string {
	for n := 1; 2*n <= len(decimals); n++ {
		period := decimals[len(decimals)-n:]
		if times := 2 + max(0, 2-n); strings.HasSuffix(decimals, strings.Repeat(period, times)) && strings.Trim(period, "0") != "" {
			return period
		}
	}
	return ""
}

// repeat emits the number whose decimals repeat period forever.
func (l *lexer) repeat(whole, decimals, period string) {
	value, ok := new(big.Rat).SetString("0" + whole + "." + decimals + "0")
	cycle, both := new(big.Int).SetString(period, 10)
	if !ok || !both {
		l.failed = true
		return
	}
	ten := big.NewInt(10)
	nines := new(big.Int).Sub(new(big.Int).Exp(ten, big.NewInt(int64(len(period))), nil), big.NewInt(1))
	nines.Mul(nines, new(big.Int).Exp(ten, big.NewInt(int64(len(decimals))), nil))
	l.value(&Node{Kind: Number, Value: value.Add(value, new(big.Rat).SetFrac(cycle, nines))})
}
