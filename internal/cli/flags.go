package cli

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/internal/foreign"
	"github.com/easyrl/easyrl/internal/spelling"
)

// NewFlags returns an empty flag set for a verb. It prints nothing itself.
func NewFlags() *flag.FlagSet {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return fs
}

// ParseFlags sets fs from args and returns the positional arguments. Flags may
// appear anywhere, with one dash or two, as -name value or -name=value. All
// arguments after "--" are positional. For -h and -help it returns flag.ErrHelp.
func ParseFlags(fs *flag.FlagSet, args []string) (positional []string, err error) {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if arg == "--" {
			return append(positional, args...), nil
		}
		if len(arg) < 2 || arg[0] != '-' {
			positional = append(positional, arg)
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
		if name == "h" || name == "help" {
			return nil, flag.ErrHelp
		}
		f := fs.Lookup(name)
		if f == nil {
			return nil, unknownFlag(fs, arg, name)
		}
		if !hasValue {
			if isSwitch(f) {
				value = "true"
			} else if len(args) > 0 {
				value, args = args[0], args[1:]
			} else {
				return nil, fmt.Errorf("-%s needs a value", name)
			}
		}
		if err := fs.Set(name, value); err != nil {
			return nil, badValue(f, value, err)
		}
	}
	return positional, nil
}

// Words returns a command line that runs v again with args and with the flags that were set,
// except those named in without.
func (v *Verb) Words(args []string, without ...string) []string {
	words := []string{os.Args[0], v.Name}
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") { // a file name, which would read as a flag
			arg = "./" + arg
		}
		words = append(words, arg)
	}
	v.Flags.Visit(func(f *flag.Flag) {
		list, repeated := f.Value.(*List)
		switch {
		case slices.Contains(without, f.Name):
		case repeated:
			for _, value := range list.Values {
				words = append(words, "-"+f.Name, value)
			}
		case isSwitch(f):
			words = append(words, "-"+f.Name+"="+f.Value.String())
		default:
			words = append(words, "-"+f.Name, f.Value.String())
		}
	})
	return words
}

// isSwitch reports whether f is boolean and so takes no separate value.
func isSwitch(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// unknownFlag returns an error that suggests the flag or configuration key that arg may mean.
func unknownFlag(fs *flag.FlagSet, arg, name string) error {
	var known []string
	fs.VisitAll(func(f *flag.Flag) { known = append(known, "-"+f.Name) })
	if len(known) == 0 {
		return fmt.Errorf("unknown flag %s, expected no flags", arg)
	}
	if meant, ok := spelling.Near("-"+name, known); ok {
		return fmt.Errorf("unknown flag %s, did you mean %s?", arg, meant)
	}
	if fs.Lookup("set") != nil { // the command has a configuration
		setting, ok := foreign.Lookup(name)
		switch {
		case ok && setting.Key != "":
			return fmt.Errorf("unknown flag %s: %s, as in -set %s=…", arg, setting, setting.Key)
		case ok:
			return fmt.Errorf("unknown flag %s: %s", arg, setting)
		case strings.Contains(name, "."):
			return fmt.Errorf("unknown flag %s; pass a setting as -set %s", arg, strings.TrimLeft(arg, "-"))
		}
	}
	return fmt.Errorf("unknown flag %s, expected one of %s", arg, strings.Join(known, ", "))
}

// badValue returns an error that names the type of value that f expects, or wraps err for other types.
func badValue(f *flag.Flag, value string, err error) error {
	expected := ""
	if getter, ok := f.Value.(flag.Getter); ok {
		switch getter.Get().(type) {
		case bool:
			expected = "true or false"
		case int, int64:
			expected = "a whole number"
		case uint, uint64:
			expected = "a whole number, 0 or more"
		case float64:
			expected = "a number"
		}
	}
	if expected == "" {
		return fmt.Errorf("-%s is %q: %w", f.Name, value, err)
	}
	return fmt.Errorf("-%s is %q, expected %s", f.Name, value, expected)
}

// List collects the values of a repeated flag. Check, if set, validates each
// value.
type List struct {
	Values []string
	Check  func(value string) error
}

// String joins the values for display.
func (l *List) String() string { return strings.Join(l.Values, " ") }

// Set adds a value.
func (l *List) Set(value string) error {
	if l.Check != nil {
		if err := l.Check(value); err != nil {
			return err
		}
	}
	l.Values = append(l.Values, value)
	return nil
}
