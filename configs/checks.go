package configs

import (
	"fmt"
	"slices"
	"strings"
)

// checks collects the faults of a configuration.
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

func (c *checks) atLeast(key string, value, least int) {
	c.expect(value >= least, key, "is %d, expected %d or more", value, least)
}

func (c *checks) atMost(key string, value, most int) {
	c.expect(value <= most, key, "is %d, expected %d at most", value, most)
}

func (c *checks) between(key string, value, least, most int) {
	c.atLeast(key, value, least)
	c.atMost(key, value, most)
}

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

func quoted(words []string) string { return `"` + strings.Join(words, `", "`) + `"` }
