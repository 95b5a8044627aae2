package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/run"
)

// newFlags returns an empty set of flags for a verb.
func newFlags() *flag.FlagSet {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return fs
}

// parseFlags sets fs from args and returns what is not a flag. Flags may stand
// anywhere among the other arguments, with one dash or two, as -name value or
// -name=value; after "--" nothing is a flag.
func parseFlags(fs *flag.FlagSet, args []string) (positional []string, err error) {
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
				return nil, fmt.Errorf("-%s lacks its value", name)
			}
		}
		if err := fs.Set(name, value); err != nil {
			return nil, badValue(f, value, err)
		}
	}
	return positional, nil
}

func isSwitch(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

func unknownFlag(fs *flag.FlagSet, arg, name string) error {
	var known []string
	fs.VisitAll(func(f *flag.Flag) { known = append(known, "-"+f.Name) })
	if len(known) == 0 {
		return fmt.Errorf("unknown flag %s: there are none", arg)
	}
	return fmt.Errorf("unknown flag %s, did you mean %s?", arg, configs.Nearest("-"+name, known))
}

// badValue says what the flag's type expected in place of value.
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

// settings collects the values of a repeated -set.
type settings []string

// String joins the settings for display.
func (s *settings) String() string { return strings.Join(*s, " ") }

// Set adds one key=value.
func (s *settings) Set(value string) error {
	if key, _, ok := strings.Cut(value, "="); !ok || strings.TrimSpace(key) == "" {
		return errors.New("expected section.key=value")
	}
	*s = append(*s, value)
	return nil
}

// addSettings gives fs the flag -set.
func addSettings(fs *flag.FlagSet) *settings {
	var s settings
	fs.Var(&s, "set", "`section.key=value` that replaces what the files say: a TOML value, or a bare word where the key is a string; may be repeated")
	return &s
}

// loadRun reads and checks the configuration of a task.
func loadRun(task configs.Task, files []string, set settings) (*configs.Resolved, error) {
	if len(files) == 0 {
		return nil, usage.Errorf("no configuration given, expected RUN.toml")
	}
	return run.Load(task, files, set)
}
