package remote

import (
	"context"
	"slices"
	"strings"
)

// Kind is a kind of inference server.
type Kind struct {
	Name  string // name in configurations and on the command line
	Title string // name as the server's authors write it
	Exact bool   // its log-probabilities are bitwise equal to the trainer's

	// marks identify the kind; any one of them suffices.
	marks []mark
	// shared means that servers of other kinds may have the same marks, so these are tried last.
	shared bool
	// adapters means that servers of the kind take LoRA adapters.
	adapters bool
	// remedy tells users what to do if an update does not reach every tensor; may be empty.
	remedy string
	// open reads the server's settings and returns its instance.
	open func(ctx context.Context, c *client) (Server, error)
}

// mark identifies servers that answer GET path with a JSON object that has the field.
type mark struct{ path, field string }

// Kinds lists every kind. To add one, write its file and add its line here. inference.kind
// and easyrl fleet add -kind then accept its name, and make docs adds it to the reference
// of all keys.
func Kinds() []Kind {
	return []Kind{
		easyrlKind(),
		vllmKind(),
		sglangKind(),
	}
}

// Names returns the names of all kinds.
func Names() []string {
	var out []string
	for _, k := range Kinds() {
		out = append(out, k.Name)
	}
	return out
}

// Expected lists Names as in "easyrl, vllm or sglang", for errors and help.
func Expected() string { return join(Names()) }

// kindOf returns the kind called name.
func kindOf(name string) (Kind, bool) {
	all := Kinds()
	i := slices.IndexFunc(all, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return all[i], true
}

// IsExact reports whether the kind called name exists and is exact.
func IsExact(name string) bool {
	k, _ := kindOf(name)
	return k.Exact
}

// kindMark is a mark and its kind.
type kindMark struct {
	mark
	kind Kind
}

// marks returns the marks of all kinds in the order in which to try them.
func marks() []kindMark {
	var own, shared []kindMark
	for _, k := range Kinds() {
		for _, m := range k.marks {
			if k.shared {
				shared = append(shared, kindMark{m, k})
			} else {
				own = append(own, kindMark{m, k})
			}
		}
	}
	return append(own, shared...)
}

// titles returns the titles of all kinds.
func titles() []string {
	var out []string
	for _, k := range Kinds() {
		out = append(out, k.Title)
	}
	return out
}

// join joins words with commas, and with "or" before the last.
func join(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
