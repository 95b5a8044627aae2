package reward

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
)

// KeyFault is the error of a key.
type KeyFault struct {
	Path    []string // of the key, below [reward]
	Message string   // "is 0, expected 1 or more"
}

// Error returns the key and what is wrong with it.
func (f *KeyFault) Error() string { return strings.Join(f.Path, ".") + " " + f.Message }

// Validate reports all faults of c together, each a *KeyFault. maxTokens is the length
// limit of responses.
func (c *Config) Validate(maxTokens int) error {
	v := &validation{maxTokens: maxTokens}
	if c.Kind != "" || len(c.Sources) == 0 {
		v.rule(&c.Rule, Kinds())
	} else { // only the sources have rules
		v.checkUnused(&c.Term)
		checkNoParts(v, &c.Rule)
	}
	for _, source := range slices.Sorted(maps.Keys(c.Sources)) {
		below := &validation{[]string{"sources", source}, maxTokens, nil}
		below.rule(c.Sources[source], Kinds())
		v.faults = append(v.faults, below.faults...)
	}
	return errors.Join(v.faults...)
}

// validation collects the faults of the keys below path.
type validation struct {
	path      []string
	maxTokens int
	faults    []error
}

// expect adds a fault at key unless ok.
func (v *validation) expect(ok bool, key, format string, args ...any) {
	if !ok {
		v.faults = append(v.faults, &KeyFault{append(slices.Clone(v.path), key), fmt.Sprintf(format, args...)})
	}
}

// fault adds a fault at key.
func (v *validation) fault(key, format string, args ...any) { v.expect(false, key, format, args...) }

// rule checks a rule, whose kind must be among allowed.
func (v *validation) rule(r *Rule, allowed []Kind) {
	if !slices.Contains(names(allowed), r.Kind) {
		v.fault("kind", `is %q, expected one of "%s"`, r.Kind, strings.Join(names(allowed), `", "`))
	} else {
		v.checkUnused(&r.Term)
		if check := kindOf(r.Kind).check; check != nil {
			check(v, r)
		}
	}
	if r.Kind != Sum {
		checkNoParts(v, r)
	}
}

// finite reports whether x is neither NaN nor infinite.
func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// within adds a fault at key unless n is from low to high.
func (v *validation) within(key string, n, low, high int) {
	v.expect(n >= low && n <= high, key, "is %d, expected %d to %d", n, low, high)
}

// checkUnused adds a fault for each key that the term's kind does not use and whose value
// is not the default.
func (v *validation) checkUnused(t *Term) {
	got, want := reflect.ValueOf(*t), reflect.ValueOf(defaultTerm())
	for _, field := range reflect.VisibleFields(got.Type()) {
		key := field.Tag.Get("toml")
		if field.Anonymous || key == "-" || t.Takes(key) ||
			reflect.DeepEqual(got.FieldByIndex(field.Index).Interface(), want.FieldByIndex(field.Index).Interface()) {
			continue
		}
		v.fault(key, "%s", t.Unused(key))
	}
}
