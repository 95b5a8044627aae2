package remote

import (
	"context"
	"slices"
	"strings"
)

// Kind is a kind of inference server.
type Kind struct {
	Name    string // in configurations and on the command line
	Title   string // as its makers write it
	Weights bool   // takes weights: a run can train with it
	Exact   bool   // gives the log-probabilities of the trainer's own computation, bit for bit

	marks []mark
	// shared says that other kinds may answer the marks too, so that a server is
	// asked for them last.
	shared bool
	// open asks the server for its settings and returns its instance.
	open func(ctx context.Context, c *client) (Instance, error)
}

// mark is a GET whose answer has a field that tells a kind from others.
type mark struct{ path, field string }

// kinds lists every kind. To add one, write its file and add its line here. If the
// kind takes weights, inference.kind and easyrl fleet add -kind then accept its name,
// and make docs writes it to the page of all keys.
func kinds() []Kind {
	return []Kind{
		easyrlKind(),
		vllmKind(),
		sglangKind(),
		llamaKind(),
	}
}

// Trainable are the kinds that take weights.
func Trainable() []Kind {
	return slices.DeleteFunc(kinds(), func(k Kind) bool { return !k.Weights })
}

// Names are the names of the kinds that take weights.
func Names() []string { return names(Trainable()) }

// Expected lists Names as errors and help do: "easyrl, vllm or sglang".
func Expected() string { return join(Names(), "or") }

// kindOf is the kind of that name.
func kindOf(name string) (Kind, bool) {
	all := kinds()
	i := slices.IndexFunc(all, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return all[i], true
}

// IsExact reports whether the kind of that name is exact.
func IsExact(name string) bool {
	k, _ := kindOf(name)
	return k.Exact
}

// kindMark is a mark and what it is of.
type kindMark struct {
	mark
	kind Kind
}

// marks are those of all kinds in the order in which a server is asked for them.
func marks() []kindMark {
	var own, shared []kindMark
	for _, k := range kinds() {
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

func names(all []Kind) []string {
	out := make([]string, len(all))
	for i, k := range all {
		out[i] = k.Name
	}
	return out
}

func titles(all []Kind) []string {
	out := make([]string, len(all))
	for i, k := range all {
		out[i] = k.Title
	}
	return out
}

// join lists words with commas, and a conjunction before the last.
func join(words []string, conjunction string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " " + conjunction + " " + words[last]
}
