package py

import (
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/internal/rounded"
)

// maxBits is the maximum size of an integer: about 4,200 decimal digits, just below
// maxDigits, so that every integer can be printed and operations on it stay cheap.
const maxBits = 14_000

// ToBig returns the integer of a bool or an int.
func ToBig(v Value) (*big.Int, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return big.NewInt(1), true
		}
		return new(big.Int), true
	case int64:
		return big.NewInt(v), true
	case *big.Int:
		return v, true
	}
	return nil, false
}

// ToFloat returns float(v) of a bool, an int or a float. An int beyond float64 is infinity.
func ToFloat(v Value) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	}
	n, ok := ToBig(v)
	if !ok {
		return 0, false
	}
	f, _ := new(big.Float).SetInt(n).Float64()
	return f, true
}

// Integer returns n as a Value: an int64 if it fits, else n itself, which the caller must
// not change afterwards. It raises the limit if n has more than maxBits bits.
func Integer(n *big.Int) Value {
	if n.IsInt64() {
		return n.Int64()
	}
	if n.BitLen() > maxBits {
		Raise(KindLimit, "integer has more than %d bits", maxBits)
	}
	return n
}

// IsNumber reports whether v is a bool, an int or a float.
func IsNumber(v Value) bool {
	_, ok := ToFloat(v)
	return ok
}

// arithmetic returns x op y of two numbers. ok is false if one is not a number.
func arithmetic(op string, x, y Value) (v Value, ok bool) {
	a, aok := x.(int64)
	b, bok := y.(int64)
	if aok && bok { // the common case, unless the result overflows
		switch {
		case op == "+" && (a+b > a) == (b > 0):
			return a + b, true
		case op == "-" && (a-b < a) == (b > 0):
			return a - b, true
		}
	}
	i, iok := ToBig(x)
	j, jok := ToBig(y)
	if iok && jok {
		return integers(op, i, j), true
	}
	f, fok := ToFloat(x)
	g, gok := ToFloat(y)
	if fok && gok {
		return floats(op, f, g), true
	}
	return nil, false
}

// integers returns i op j. Like Python's, / returns a float, // rounds down, and % has the
// sign of j.
func integers(op string, i, j *big.Int) Value {
	n := new(big.Int)
	switch op {
	case "+":
		return Integer(n.Add(i, j))
	case "-":
		return Integer(n.Sub(i, j))
	case "*":
		return Integer(n.Mul(i, j))
	case "**":
		return power(i, j)
	}
	if j.Sign() == 0 {
		message := map[string]string{"/": "division by zero", "//": "integer division or modulo by zero",
			"%": "integer modulo by zero"}
		Raise("ZeroDivisionError", "%s", message[op])
	}
	if op == "/" {
		f, _ := new(big.Rat).SetFrac(i, j).Float64()
		if math.IsInf(f, 0) {
			Raise("OverflowError", "integer division result too large for a float")
		}
		return f
	}
	quotient, rest := n.QuoRem(i, j, new(big.Int))
	if rest.Sign() != 0 && rest.Sign() != j.Sign() {
		quotient.Sub(quotient, big.NewInt(1))
		rest.Add(rest, j)
	}
	if op == "//" {
		return Integer(quotient)
	}
	return Integer(rest)
}

// power returns i ** j. It raises the limit before it computes a result of more than
// maxBits bits.
func power(i, j *big.Int) Value {
	if j.Sign() < 0 {
		f, _ := ToFloat(i)
		g, _ := ToFloat(j)
		return floats("**", f, g)
	}
	small := i.CmpAbs(big.NewInt(1)) <= 0
	switch {
	case small && !j.IsInt64():
		// For the bases -1, 0 and 1, only whether j is odd matters: 2 and 3 give the same.
		j = big.NewInt(2 + int64(j.Bit(0)))
	case !small && (!j.IsInt64() || float64(i.BitLen()-1)*float64(j.Int64()) > maxBits):
		Raise(KindLimit, "integer has more than %d bits", maxBits)
	}
	return Integer(new(big.Int).Exp(i, j, nil))
}

// floats returns f op g. // and % follow CPython's float_divmod: the remainder is exact and
// has the sign of g, and the quotient is the integer nearest to (f - remainder) / g.
func floats(op string, f, g float64) Value {
	if g == 0 {
		switch op {
		case "/":
			Raise("ZeroDivisionError", "float division by zero")
		case "//":
			Raise("ZeroDivisionError", "float floor division by zero")
		case "%":
			Raise("ZeroDivisionError", "float modulo")
		}
	}
	switch op {
	case "+":
		return f + g
	case "-":
		return f - g
	case "*":
		return f * g
	case "/":
		return f / g
	case "**":
		return floatPower(f, g)
	}
	rest := math.Mod(f, g)
	if rest != 0 && (rest < 0) != (g < 0) {
		rest += g
	} else if rest == 0 {
		rest = math.Copysign(0, g)
	}
	if op == "%" {
		return rest
	}
	quotient := (f - rest) / g
	if quotient == 0 {
		return math.Copysign(0, f/g)
	}
	floor := math.Floor(quotient)
	if quotient-floor > 0.5 {
		return floor + 1
	}
	return floor
}

// floatPower implements f ** g, with the errors of Python.
func floatPower(f, g float64) Value {
	if f == 0 && g < 0 {
		Raise("ZeroDivisionError", "0.0 cannot be raised to a negative power")
	}
	if f < 0 && g != math.Trunc(g) && !math.IsInf(g, 0) {
		Raise(KindType, "complex numbers are not supported: %s ** %s", FloatText(f), FloatText(g))
	}
	p := rounded.Pow(f, g)
	if math.IsInf(p, 0) && !math.IsInf(f, 0) && !math.IsInf(g, 0) {
		Raise("OverflowError", "(34, 'Numerical result out of range')")
	}
	return p
}

// FloatText returns repr(f): the shortest text that parses as f.
func FloatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	exponent, _ := strconv.Atoi(s[strings.IndexByte(s, 'e')+1:]) // FormatFloat wrote it
	if f != 0 && (exponent < -4 || exponent >= 16) {
		return s
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// Int implements int(v) of a number or of a string in a base; base 0 means that the
// string's prefix sets it. ok is false if Python would raise ValueError or TypeError.
func Int(v Value, base int) (n Value, ok bool) {
	if i, ok := ToBig(v); ok {
		return Integer(i), true
	}
	if f, ok := v.(float64); ok {
		if math.IsNaN(f) {
			return nil, false
		}
		if math.IsInf(f, 0) {
			Raise("OverflowError", "cannot convert float infinity to integer")
		}
		i, _ := big.NewFloat(f).Int(nil)
		return Integer(i), true
	}
	s, ok := Text(v)
	if !ok {
		return nil, false
	}
	s = strings.ToLower(strings.TrimFunc(s, IsSpace))
	if len(s) > maxDigits || base == 1 || base < 0 || base > 36 {
		return nil, false
	}
	sign := ""
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign, s = s[:1], s[1:]
	}
	prefix := map[string]int{"0x": 16, "0o": 8, "0b": 2}
	if b := prefix[s[:min(2, len(s))]]; b != 0 && (b == base || base == 0) {
		s, base = strings.TrimPrefix(s[2:], "_"), b
	} else if base == 0 {
		base = 10
	}
	if s == "" || s[0] == '_' || s[0] == '-' || s[0] == '+' || strings.HasSuffix(s, "_") || strings.Contains(s, "__") {
		return nil, false
	}
	i, ok := new(big.Int).SetString(sign+asciiDigits(strings.ReplaceAll(s, "_", "")), base)
	if !ok {
		return nil, false
	}
	return Integer(i), true
}

// maxFloatText is the maximum length of a text that Float parses, in bytes. It bounds the
// time, which no step counts.
const maxFloatText = 1 << 16

// Float implements float(v) of a number or a string. ok is false if Python would raise
// ValueError or TypeError.
func Float(v Value) (f float64, ok bool) {
	if f, ok := ToFloat(v); ok {
		return f, true
	}
	s, ok := Text(v)
	if !ok || len(s) > maxFloatText {
		return 0, false
	}
	s = asciiDigits(strings.TrimFunc(s, IsSpace))
	hexadecimal := strings.ContainsAny(s, "xXpP") // which ParseFloat accepts, but Python does not
	misplaced := strings.Contains(s, "__") || strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_")
	if hexadecimal || misplaced {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// Negate returns -v. v must not be undefined; it raises TypeError if v is not a number.
func Negate(v Value) Value {
	if f, ok := v.(float64); ok {
		return -f
	}
	i, ok := ToBig(v)
	if !ok {
		Raise(KindType, "bad operand type for unary -: '%s'", TypeName(v))
	}
	return Integer(new(big.Int).Neg(i))
}

// Plus returns +v. v must not be undefined; it raises TypeError if v is not a number.
func Plus(v Value) Value {
	if f, ok := v.(float64); ok {
		return f
	}
	i, ok := ToBig(v)
	if !ok {
		Raise(KindType, "bad operand type for unary +: '%s'", TypeName(v))
	}
	return Integer(i)
}

// Abs returns abs(v). It raises TypeError if v is not a number.
func Abs(v Value) Value {
	if f, ok := v.(float64); ok {
		return math.Abs(f)
	}
	i, ok := ToBig(v)
	if !ok {
		Raise(KindType, "bad operand type for abs(): '%s'", TypeName(v))
	}
	return Integer(new(big.Int).Abs(i))
}
