package configs

import (
	"fmt"
	"slices"
	"strings"
)

// checks checks a configuration section by section and collects its faults.
type checks struct {
	resolved *Resolved
	faults   []error
}

// expect adds a fault of key unless ok.
func (c *checks) expect(ok bool, key, format string, args ...any) {
	if !ok {
		c.faults = append(c.faults, &Fault{c.resolved.Origin(key), key + " " + fmt.Sprintf(format, args...)})
	}
}

// atLeast adds a fault of key unless value is low or more.
func (c *checks) atLeast(key string, value, low int) {
	c.expect(value >= low, key, "is %d, expected %d or more", value, low)
}

// atMost adds a fault of key unless value is high or less.
func (c *checks) atMost(key string, value, high int) {
	c.expect(value <= high, key, "is %d, expected %d at most", value, high)
}

// between adds a fault of key unless value is from low to high.
func (c *checks) between(key string, value, low, high int) {
	c.atLeast(key, value, low)
	c.atMost(key, value, high)
}

// oneOf adds a fault of key unless value is allowed.
func (c *checks) oneOf(key, value string, allowed ...string) {
	c.expect(slices.Contains(allowed, value), key, "is %q, expected one of %s", value, quoted(allowed))
}

// section adds the faults of a section's own Validate, each of which begins with a key.
func (c *checks) section(name string, err error) {
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // errors.Join's own form is meant
	switch {
	case ok:
		for _, e := range joined.Unwrap() {
			c.section(name, e)
		}
	case err != nil:
		key, rest, _ := strings.Cut(err.Error(), " ")
		c.expect(false, name+"."+key, "%s", rest)
	}
}

// quoted lists words in quotation marks.
func quoted(words []string) string { return `"` + strings.Join(words, `", "`) + `"` }
