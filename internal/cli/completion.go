package cli

import (
	"context"
	"flag"
	"io"
	"strings"

	"github.com/easyrl/easyrl/internal/usage"
)

// CompletionVerb returns a verb that prints to out a shell completion script for all, the other
// verbs, and for itself.
func CompletionVerb(all []Verb, out io.Writer) Verb {
	v := Verb{
		Name:     "completion",
		Synopsis: "bash | zsh | fish",
		Summary:  "Print a shell completion script for commands and flags.",
		Example: `source <(easyrl completion bash)
			easyrl completion fish > ~/.config/fish/completions/easyrl.fish`,
		Flags: NewFlags(),
	}
	v.Run = func(_ context.Context, args []string) error {
		shell := strings.Join(args, " ")
		switch p := (Printer{out}); shell {
		case "bash":
			writeBash(p, append(all, v))
		case "zsh":
			p.Line("autoload -U +X bashcompinit && bashcompinit")
			writeBash(p, append(all, v))
		case "fish":
			writeFish(p, append(all, v))
		default:
			return usage.Errorf("completion: shell is %q, expected bash, zsh or fish", shell)
		}
		return nil
	}
	return v
}

// writeBash prints a script that completes verbs as the first word, the verb's flags
// for words that start with a dash, and files otherwise.
func writeBash(p Printer, all []Verb) {
	p.Line("_easyrl() {")
	p.Line("  local word=${COMP_WORDS[COMP_CWORD]} words=")
	p.Line("  if [ \"$COMP_CWORD\" -eq 1 ]; then words=%q", strings.Join(names(all), " "))
	p.Line("  else case ${COMP_WORDS[1]} in")
	for _, v := range all {
		p.Line("    %s) words=%q ;;", v.Name, strings.Join(flagNames(v.Flags), " "))
	}
	p.Line("  esac; fi")
	p.Line(
		"  if [ \"$COMP_CWORD\" -gt 1 ] && [ \"${word#-}\" = \"$word\" ]; then COMPREPLY=($(compgen -f -- \"$word\"))")
	p.Line("  else COMPREPLY=($(compgen -W \"$words\" -- \"$word\")); fi")
	p.Line("}")
	p.Line("complete -o filenames -F _easyrl easyrl")
}

// writeFish prints a script that completes verbs with their summaries, and each verb's
// flags.
func writeFish(p Printer, all []Verb) {
	for _, v := range all {
		p.Line("complete -c easyrl -n __fish_use_subcommand -f -a %s -d %s", v.Name, fishQuote(v.Summary))
		v.Flags.VisitAll(func(f *flag.Flag) {
			_, text := describe(f)
			p.Line("complete -c easyrl -n '__fish_seen_subcommand_from %s' -o %s -d %s",
				v.Name, f.Name, fishQuote(text))
		})
	}
}

// fishQuote returns text as one single-quoted word of fish.
func fishQuote(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}

func names(all []Verb) (words []string) {
	for _, v := range all {
		words = append(words, v.Name)
	}
	return words
}

// flagNames returns the flags of fs with a dash, and -h.
func flagNames(fs *flag.FlagSet) (words []string) {
	fs.VisitAll(func(f *flag.Flag) { words = append(words, "-"+f.Name) })
	return append(words, "-h")
}
