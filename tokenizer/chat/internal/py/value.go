package py

import (
	"math"
	"math/big"
	"strings"
)

// Value is a Python value: nil (None), bool, int64, *big.Int (what does not fit
// int64), float64, string, Markup, *List, *Tuple, *Dict, *Range, *View, *Iter,
// *Func, *Undefined or an Object.
type Value any

// Markup is a string that counts as safe for HTML.
type Markup string

// List is a Python list. Templates cannot change it, so values may share Items.
type List struct{ Items []Value }

// Tuple is a Python tuple, or a namedtuple if it has names.
type Tuple struct {
	Items []Value
	Names []string // by index in Items; nil for a plain tuple
}

// View is the result of a dict's keys, values or items method.
type View struct {
	Type string // dict_keys, dict_values or dict_items
	Dict *Dict
}

// Iter is a generator. It can be iterated once.
type Iter struct {
	Type string               // name of the Python type
	Next func() (Value, bool) // returns the next item, or false at the end
}

// Func is a function or a bound method.
type Func struct {
	Name string
	Call func(args Args) Value
}

// Object is a value that another package implements, such as a loop or a macro.
type Object interface {
	TypeName() string               // name of the Python type
	Attr(name string) (Value, bool) // attribute, or false if the object has none of that name
	Repr(m *Machine) string         // repr(object)
}

// Undefined is the value of a missing name, key or attribute.
type Undefined struct {
	Hint      string // error message; if empty, the fields Object and Name form one
	Object    Value  // value that lacks the key or attribute; may be None
	HasObject bool   // distinguishes Object None from no object: a missing variable
	Name      Value  // missing variable, key or attribute
	Kind      string // kind of the error that using the value raises; "" means KindUndefined
}

// fail raises the error of using u.
func (m *Machine) fail(u *Undefined) {
	kind := u.Kind
	if kind == "" {
		kind = KindUndefined
	}
	name, isName := u.Name.(string)
	object := "None"
	if u.Object != nil {
		object = TypeName(u.Object) + " object"
	}
	switch {
	case u.Hint != "":
		Raise(kind, "%s", u.Hint)
	case !u.HasObject:
		Raise(kind, "%s is undefined", m.Repr(u.Name))
	case isName:
		Raise(kind, "%s has no attribute %s", m.Repr(object), m.Repr(name))
	default:
		Raise(kind, "%s has no element %s", object, m.Repr(u.Name))
	}
}

// Check raises the error of the first undefined value, if any.
func (m *Machine) Check(vs ...Value) {
	for _, v := range vs {
		if u, ok := v.(*Undefined); ok {
			m.fail(u)
		}
	}
}

// TypeName returns type(v).__name__.
func TypeName(v Value) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case Markup:
		return "Markup"
	case *List:
		return "list"
	case *Tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case *Range:
		return "range"
	case *View:
		return v.Type
	case *Iter:
		return v.Type
	case *Func:
		return "builtin_function_or_method"
	case *Undefined:
		return "Undefined"
	case Object:
		return v.TypeName()
	}
	return "object"
}

// Text returns the string of a str or a Markup, or false for other types.
func Text(v Value) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case Markup:
		return string(v), true
	}
	return "", false
}

// Truth returns bool(v).
func Truth(v Value) bool {
	switch v := v.(type) {
	case nil, *Undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	}
	if n, ok := size(v); ok {
		return n != 0
	}
	return true
}

// size returns len(v), or false if v has no length. For strings it counts bytes: Truth
// only needs to know whether they are empty.
func size(v Value) (int, bool) {
	switch v := v.(type) {
	case string:
		return len(v), true
	case Markup:
		return len(v), true
	case *List:
		return len(v.Items), true
	case *Tuple:
		return len(v.Items), true
	case *Dict:
		return v.Len(), true
	case *View:
		return v.Dict.Len(), true
	case *Range:
		return v.Len(), true
	case *Undefined:
		return 0, true
	case interface{ Len() int }:
		return v.Len(), true
	}
	return 0, false
}

// Len returns len(v). It raises TypeError if v has no length.
func (m *Machine) Len(v Value) int {
	if s, ok := Text(v); ok {
		m.Scan(len(s))
		return Runes(s)
	}
	n, ok := size(v)
	if !ok {
		Raise(KindType, "object of type '%s' has no len()", TypeName(v))
	}
	return n
}

// Range is a Python range.
type Range struct{ Start, Stop, Step int64 }

// maxRange is the maximum length of a range, as in Jinja's sandbox.
const maxRange = 100_000

// NewRange implements range(start, stop, step).
func NewRange(start, stop, step int64) *Range {
	if step == 0 {
		Raise(KindValue, "range() arg 3 must not be zero")
	}
	r := &Range{Start: start, Stop: stop, Step: step}
	if r.floatLen() > maxRange {
		Raise("OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
	}
	return r
}

// floatLen returns the length, rounded but without overflow.
func (r *Range) floatLen() float64 {
	return math.Max(0, math.Ceil((float64(r.Stop)-float64(r.Start))/float64(r.Step)))
}

// Len returns the number of integers. It computes with big.Int because Stop - Start may
// overflow.
func (r *Range) Len() int {
	span := new(big.Int).Sub(big.NewInt(r.Stop), big.NewInt(r.Start))
	step := big.NewInt(r.Step)
	n, rest := new(big.Int).QuoRem(span, step, new(big.Int))
	if rest.Sign() != 0 && rest.Sign() == step.Sign() {
		n.Add(n, big.NewInt(1))
	}
	return int(max(0, n.Int64()))
}

// Dict is a Python dict. It keeps insertion order. Keys are never removed.
type Dict struct {
	keys, values []Value
	index        map[any]int // position in keys, by Machine.hash of the key
}

// NewDict returns an empty dict.
func NewDict() *Dict { return &Dict{index: map[any]int{}} }

// Len returns the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

// At returns the i-th key and its value.
func (d *Dict) At(i int) (key, value Value) { return d.keys[i], d.values[i] }

// Set stores a value under a key. An existing key keeps its place. Set raises TypeError if
// the key is unhashable.
func (m *Machine) Set(d *Dict, key, value Value) {
	h := m.hash(key)
	if i, ok := d.index[h]; ok {
		d.values[i] = value
		return
	}
	m.Charge(120)
	d.index[h] = len(d.keys)
	d.keys, d.values = append(d.keys, key), append(d.values, value)
}

// Get returns the value under a key. It raises TypeError if the key is unhashable.
func (m *Machine) Get(d *Dict, key Value) (Value, bool) {
	i, ok := d.index[m.hash(key)]
	if !ok {
		return nil, false
	}
	return d.values[i], true
}

// GetString returns the value under a string key.
func (d *Dict) GetString(key string) (Value, bool) {
	i, ok := d.index[key]
	if !ok {
		return nil, false
	}
	return d.values[i], true
}

// Results of hash for types whose keys Go cannot compare as Python does. They are types of
// their own, so that they never equal a string key.
type (
	noneKey      struct{}
	undefinedKey struct{}
	bigKey       string
	tupleKey     string
)

// hash returns a comparable value, equal for keys that are equal in Python. It raises
// TypeError if the key is unhashable.
func (m *Machine) hash(key Value) any {
	switch key := key.(type) {
	case nil:
		return noneKey{}
	case string:
		m.Scan(len(key))
		return key
	case Markup:
		m.Scan(len(key))
		return string(key)
	case bool:
		if key {
			return int64(1)
		}
		return int64(0)
	case int64:
		return key
	case float64:
		if key == math.Trunc(key) && math.Abs(key) < 1<<63 {
			return int64(key)
		}
		return key
	case *big.Int:
		return bigKey(key.String())
	case *Undefined:
		return undefinedKey{}
	case *Tuple:
		m.Enter()
		defer m.Leave()
		var b strings.Builder
		for _, item := range key.Items {
			part := m.Repr(item)
			if n, ok := m.hash(item).(int64); ok { // True, 1 and 1.0 are equal
				part = m.Repr(n)
			}
			m.Charge(len(part) + 1)
			b.WriteString(part + ",")
		}
		return tupleKey(b.String())
	case *View:
		if key.Type != "dict_values" {
			Raise(KindType, "unhashable type: '%s'", key.Type)
		}
	case *List, *Dict:
		Raise(KindType, "unhashable type: '%s'", TypeName(key))
	}
	return key // pointers: identity
}
