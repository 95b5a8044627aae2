// Package cli parses command lines with verbs and flags, and provides help and shell completion.
// Flags may follow other arguments. Errors about misspelled names suggest the right ones.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/internal/plain"
	"github.com/easyrl/easyrl/internal/spelling"
	"github.com/easyrl/easyrl/internal/usage"
)

// Verb is one subcommand.
type Verb struct {
	Name     string
	Synopsis string // positional arguments, as shown after the name
	Summary  string // one line
	Example  string // one command line per line
	Flags    *flag.FlagSet
	// Run executes the verb. args are the positional arguments; flags are parsed.
	Run func(ctx context.Context, args []string) error
}

// Execute runs the verb that the first of args names, or prints help to out. Without
// arguments it prints the overview to errs and returns ErrNoVerb. For a faulty
// command line it returns a usage error.
func Execute(ctx context.Context, all []Verb, args []string, out, errs io.Writer) error {
	if len(args) == 0 {
		overview(errs, all)
		return ErrNoVerb
	}
	name, args := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		if len(args) == 0 {
			overview(out, all)
			return nil
		}
		name, args = args[0], []string{"-h"}
	}
	at := slices.IndexFunc(all, func(v Verb) bool { return v.Name == name })
	if at < 0 {
		return unknownVerb(name, all)
	}
	v := &all[at]
	positional, err := ParseFlags(v.Flags, args)
	if errors.Is(err, flag.ErrHelp) {
		v.help(out)
		return nil
	}
	if err != nil {
		return usage.Errorf("%s: %w (see easyrl %s -h)", v.Name, err, v.Name)
	}
	return v.Run(ctx, positional)
}

// ErrNoVerb means that the command line is empty. Execute has printed the overview.
var ErrNoVerb = errors.New("no command given")

func unknownVerb(name string, all []Verb) error {
	known := names(all)
	if strings.HasPrefix(name, "-") {
		return usage.Errorf("first argument is %s, expected a command: %s", name, strings.Join(known, ", "))
	}
	if meant, ok := spelling.Near(name, known); ok {
		return usage.Errorf("unknown command %q, did you mean %s? (see easyrl -h)", name, meant)
	}
	return usage.Errorf("unknown command %q, expected one of %s (see easyrl -h)", name, strings.Join(known, ", "))
}

// overview lists all verbs.
func overview(w io.Writer, all []Verb) {
	p := Printer{w}
	p.Line("easyrl trains language models with reinforcement learning from verifiable rewards.")
	p.Line("")
	width := 0
	for _, v := range all {
		width = max(width, len(v.Name))
	}
	for _, v := range all {
		p.Line("  easyrl %-*s  %s", width, v.Name, v.Summary)
	}
	p.Line("")
	p.Line("Run `easyrl COMMAND -h` for help on a command.")
	p.Line("Exit status: 0 success, 1 failure, 2 bad command line or configuration, 3 stopped by a signal and can " +
		"continue.")
}

// help prints the help of v.
func (v *Verb) help(w io.Writer) {
	p := Printer{w}
	p.Line("easyrl %s", strings.TrimSpace(v.Name+" "+v.Synopsis))
	p.Line("")
	p.Line("%s", v.Summary)
	first := true
	v.Flags.VisitAll(func(f *flag.Flag) {
		if first {
			p.Line("\nFlags:")
			first = false
		}
		value, usage := describe(f)
		if f.DefValue != "" && f.DefValue != "0" && f.DefValue != "false" {
			usage += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		p.Line("  %s", strings.TrimSpace("-"+f.Name+" "+value))
		p.Line("        %s", usage)
	})
	p.Line("\nExample:")
	for line := range strings.Lines(v.Example) {
		p.Line("  %s", strings.TrimSpace(line))
	}
}

// describe splits a flag's usage, such as "`FILE` write to this file", into the placeholder of
// its value and the text after it.
func describe(f *flag.Flag) (value, text string) {
	value, text = flag.UnquoteUsage(f)
	if strings.HasPrefix(f.Usage, "`") {
		text = strings.TrimPrefix(text, value+" ")
	}
	return value, text
}

// Printer writes lines for people. It ignores write errors.
type Printer struct{ W io.Writer }

// Line formats and writes one line. It escapes control characters.
func (p Printer) Line(format string, args ...any) {
	_, _ = fmt.Fprintln(p.W, plain.Text(fmt.Sprintf(format, args...)))
}
