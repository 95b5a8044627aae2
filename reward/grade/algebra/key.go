package algebra

import (
	"encoding/hex"
	"hash/fnv"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

// Key returns one text for expressions that differ only in the order of terms, of factors and of the two
// sides of an equation, in parentheses, and in zeros and ones that change nothing.
func Key(n *expr.Node) string {
	switch n.Kind {
	case expr.Number:
		return digits(n.Value) + n.Base
	case expr.Sum:
		var keys []string
		for _, term := range flat(n, expr.Sum) {
			if key := Key(term); key != "0" {
				keys = append(keys, key)
			}
		}
		return joined("+", keys, "0")
	case expr.Product:
		sign := 1
		var keys []string
		for _, f := range flat(n, expr.Product) {
			key := Key(f)
			if rest, ok := strings.CutPrefix(key, "-"); ok {
				sign, key = -sign, rest
			}
			if key != "1" {
				keys = append(keys, key)
			}
		}
		if sign < 0 {
			return "-" + joined("*", keys, "1")
		}
		return joined("*", keys, "1")
	case expr.Power:
		if e := Key(n.Args[1]); e != "1" {
			return "(" + Key(n.Args[0]) + ")^(" + e + ")"
		}
		return Key(n.Args[0])
	case expr.Relation:
		if len(n.Ops) == 1 && n.Ops[0] == "=" {
			return joined("=", []string{Key(n.Args[0]), Key(n.Args[1])}, "")
		}
	case expr.Bracket:
		if len(n.Args) == 1 && n.Open == "(" {
			return Key(n.Args[0])
		}
	}
	key := []byte(strconv.Itoa(int(n.Kind)) + n.Name + n.Open)
	for i, arg := range n.Args {
		if i > 0 && i-1 < len(n.Ops) {
			key = append(key, n.Ops[i-1]...)
		}
		key = append(append(append(key, '['), Key(arg)...), ']')
	}
	return string(append(key, n.Close...))
}

// digits returns one text for a number, with a hash in place of the digits of a huge one.
func digits(r *big.Rat) string {
	if r.Num().BitLen()+r.Denom().BitLen() <= maxKeyBits {
		return r.RatString()
	}
	h := fnv.New128a()
	_, _ = h.Write(r.Num().Bytes()) // never fails
	_, _ = h.Write([]byte{'/'})
	_, _ = h.Write(r.Denom().Bytes())
	text := "#" + hex.EncodeToString(h.Sum(nil))
	if r.Sign() < 0 {
		return "-" + text
	}
	return text
}

// joined sorts the keys in place and joins them. If there are no keys, it returns the text none.
func joined(op string, keys []string, none string) string {
	switch len(keys) {
	case 0:
		return none
	case 1:
		return keys[0]
	}
	slices.Sort(keys)
	return "(" + strings.Join(keys, op) + ")"
}
