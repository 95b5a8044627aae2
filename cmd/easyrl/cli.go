package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/usage"
)

// The exit status of the command.
const (
	exitDone    = 0
	exitFailed  = 1 // the run failed
	exitUsage   = 2 // the command line or the configuration is wrong
	exitStopped = 3 // stopped by a signal after writing a checkpoint
)

// streams are what a verb reads from and writes to.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// verb is one thing that the command does.
type verb struct {
	name     string
	synopsis string // what follows the name, flags aside
	summary  string // one line
	example  string // command lines, one a line
	flags    *flag.FlagSet
	// run does it. args are what is not a flag; flags are parsed.
	run func(ctx context.Context, args []string) error
}

// verbs are all verbs, in the order in which help lists them.
func verbs(std streams) []verb {
	return []verb{
		trainVerb(std),
		sftVerb(std),
		evalVerb(std),
		replayVerb(std),
		logprobsVerb(std),
		compareVerb(std),
		serveVerb(std),
		generateVerb(std),
		initVerb(std),
		checkVerb(std),
		reportVerb(std),
		fleetVerb(std),
		benchVerb(std),
	}
}

// execute does what args say and returns the exit status.
func execute(ctx context.Context, std streams, args []string) int {
	all := verbs(std)
	if len(args) == 0 {
		overview(std.err, all)
		return exitUsage
	}
	name, args := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		if len(args) == 0 {
			overview(std.out, all)
			return exitDone
		}
		name, args = args[0], []string{"-h"}
	}
	at := slices.IndexFunc(all, func(v verb) bool { return v.name == name })
	if at < 0 {
		return exitStatus(ctx, std.err, unknownVerb(name, all))
	}
	v := all[at]
	positional, err := parseFlags(v.flags, args)
	if errors.Is(err, flag.ErrHelp) {
		v.help(std.out)
		return exitDone
	}
	if err != nil {
		return exitStatus(ctx, std.err, usage.Errorf("%s: %w (see easyrl %s -h)", v.name, err, v.name))
	}
	return exitStatus(ctx, std.err, v.run(ctx, positional))
}

func unknownVerb(name string, all []verb) error {
	var names []string
	for _, v := range all {
		names = append(names, v.name)
	}
	if strings.HasPrefix(name, "-") {
		return usage.Errorf("the first argument is %s, expected one of %s", name, strings.Join(names, ", "))
	}
	return usage.Errorf("unknown verb %q, did you mean %s? (easyrl -h lists them)", name, configs.Nearest(name, names))
}

// overview lists the verbs.
func overview(w io.Writer, all []verb) {
	p := printer{w}
	p.line("easyrl trains language models with reinforcement learning from verifiable rewards.")
	p.line("")
	width := 0
	for _, v := range all {
		width = max(width, len(v.name))
	}
	for _, v := range all {
		p.line("  easyrl %-*s  %s", width, v.name, v.summary)
	}
	p.line("")
	p.line("easyrl VERB -h explains a verb. Exit status: 0 done, 1 failed, 2 wrong command line or")
	p.line("configuration, 3 stopped by a signal after writing a checkpoint.")
}

// help explains v.
func (v verb) help(w io.Writer) {
	p := printer{w}
	p.line("easyrl %s", strings.TrimSpace(v.name+" "+v.synopsis))
	p.line("")
	p.line("%s", v.summary)
	first := true
	v.flags.VisitAll(func(f *flag.Flag) {
		if first {
			p.line("\nFlags:")
			first = false
		}
		value, usage := flag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "0" && f.DefValue != "false" {
			usage += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		p.line("  %s", strings.TrimSpace("-"+f.Name+" "+value))
		p.line("        %s", usage)
	})
	p.line("\nExample:")
	for line := range strings.Lines(v.example) {
		p.line("  %s", strings.TrimSpace(line))
	}
}

// printer writes lines to where a failure to write has nobody to tell.
type printer struct{ w io.Writer }

func (p printer) line(format string, args ...any) { _, _ = fmt.Fprintf(p.w, format+"\n", args...) }
