package configs

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
)

// sortedKeys returns the sorted keys of a table.
func sortedKeys(table map[string]any) []string { return slices.Sorted(maps.Keys(table)) }

// assign stores a TOML value in place. A value of the wrong type is an error that says what
// was expected and what was found.
func assign(place reflect.Value, value any) error {
	mismatch := fmt.Errorf("expected %s, found %s", kindName(place.Type()), describe(value))
	switch place.Kind() {
	case reflect.String:
		text, ok := value.(string)
		if !ok {
			return mismatch
		}
		place.SetString(text)
	case reflect.Bool:
		b, ok := value.(bool)
		if !ok {
			return mismatch
		}
		place.SetBool(b)
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, ok := value.(int64)
		if !ok || place.OverflowInt(n) {
			return mismatch
		}
		place.SetInt(n)
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		n, ok := value.(int64)
		if !ok || n < 0 || place.OverflowUint(uint64(n)) {
			return mismatch
		}
		place.SetUint(uint64(n))
	case reflect.Float32, reflect.Float64:
		return assignNumber(place, value, mismatch)
	case reflect.Slice:
		return assignList(place, value, mismatch)
	default:
		panic(fmt.Sprintf("configs: no TOML value for type %s", place.Type()))
	}
	return nil
}

// assignNumber stores a finite float, or an integer as a float. mismatch is the error for any other value.
func assignNumber(place reflect.Value, value any, mismatch error) error {
	x, ok := value.(float64)
	if n, whole := value.(int64); whole {
		x, ok = float64(n), true
	}
	if !ok || math.IsNaN(x) || math.IsInf(x, 0) {
		return mismatch
	}
	place.SetFloat(x)
	return nil
}

// assignList stores an array, or a single value as a list of one.
func assignList(place reflect.Value, value any, mismatch error) error {
	items, ok := value.([]any)
	if !ok {
		items = []any{value}
	}
	list := reflect.MakeSlice(place.Type(), len(items), len(items))
	for i, item := range items {
		if err := assign(list.Index(i), item); err != nil {
			return mismatch
		}
	}
	place.Set(list)
	return nil
}

// kindName names a type for users.
func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		return "a whole number, 0 or more"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.String {
			return "a list of strings"
		}
		return "a list"
	}
	return "a whole number"
}

// describe names a TOML value for users.
func describe(value any) string {
	switch v := value.(type) {
	case string:
		return fmt.Sprintf("the string %q", v)
	case bool, int64, float64:
		return fmt.Sprint(v)
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	return fmt.Sprintf("the date or time %v", value)
}
