package configs

import (
	"bytes"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/reward"
)

const parts = small + `[reward]
kind = "sum"
[reward.parts.accuracy]
kind = "math"
[reward.parts.length]
kind = "overlong"
buffer = 100
weight = 0.5
[reward.sources."openai/gsm8k"]
kind = "math"
pattern = "#### (.*)"
[reward.sources."a.b \"c\""]
kind = "sum"
parts = {form = {kind = "format", tags = ["think", "answer"], weight = 0.25}}
`

func TestRewardTables(t *testing.T) {
	t.Parallel()
	files := write(t, parts,
		"[reward.parts.accuracy]\nweight = 2\n[reward.parts]\nextra = {kind = \"regex\", pattern = \"x\"}\n")
	r, err := Load(files, []string{"reward.parts.length.weight=0.25",
		`reward.sources."a.b \"c\"".parts.form.tags=think`,
		`reward.sources.'x=y'.kind=prefix`, `reward.sources."openai/gsm8k".pattern="(.*)"`})
	require.NoError(t, err)
	require.NoError(t, r.Validate(TrainTask))
	require.Equal(t, []float64{2, 0.25, 1},
		[]float64{r.Reward.Parts["accuracy"].Weight, r.Reward.Parts["length"].Weight, r.Reward.Parts["extra"].Weight})
	require.Equal(t, []string{"think"}, r.Reward.Sources[`a.b "c"`].Parts["form"].Tags)
	require.Equal(t, reward.Prefix, r.Reward.For("x=y").Kind)
	require.Equal(t, "(.*)", r.Reward.For("openai/gsm8k").Pattern)
	require.Equal(t, reward.Sum, r.Reward.For("another").Kind)
	for key, want := range map[string]string{
		"reward.parts.accuracy.weight": files[1] + ":2", "reward.parts.accuracy.kind": files[0] + ":8",
		"reward.parts.length.weight":         "-set",
		`reward.sources."openai/gsm8k".kind`: files[0] + ":14", `reward.sources."openai/gsm8k".pattern`: "-set",
		`reward.sources."a.b \"c\"".parts.form.weight`: files[0] + ":18",
	} {
		require.Equal(t, want, r.Origin(key).String(), key)
	}
	var out bytes.Buffer
	require.NoError(t, r.Explain(&out))
	for _, want := range []string{
		"[reward.parts.accuracy]\nkind = \"math\"                            # " + files[0] +
			":8\npattern = \"\"                             # default\nmarks = \"\"                               # " +
			"default\nweight = 2.0                             # " + files[1] + ":2\n\n[reward.parts.extra]\n",
		"[reward.sources.\"a.b \\\"c\\\"\".parts.form]\n", "[reward.sources.\"openai/gsm8k\"]\n",
		"[reward.sources.\"x=y\"]\n",
	} {
		require.Contains(t, out.String(), want)
	}
}

// A run's file repeats its reward, whatever the order of the tables.
func TestRewardTablesAreWrittenAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, settings := range [][]string{nil, {"reward.kind=exact", "reward.parts={}"},
		{`reward.sources."".kind=math`}} {
		r, err := Load(write(t, parts), settings)
		require.NoError(t, err)
		dir := t.TempDir()
		require.NoError(t, r.WriteFile(dir))
		again, err := Load([]string{filepath.Join(dir, RunFile)}, nil)
		require.NoError(t, err)
		require.Equal(t, r.Reward, again.Reward)
		require.True(t, again.Same(filepath.Join(dir, RunFile)))
	}
}

// If reward.sources is set, prompts of other sources get no default reward.
func TestRewardOfOtherSources(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		"": reward.Exact, "[reward.sources.a]\nkind = \"math\"": "",
		"[reward]\nkind = \"exact\"\n[reward.sources.a]\nkind = \"math\"": reward.Exact,
	} {
		r, err := Load(write(t, small+document), nil)
		require.NoError(t, err)
		require.NoError(t, r.Validate(TrainTask))
		require.Equal(t, want, r.Reward.Kind)
		require.Equal(t, want == "", r.Reward.For("b") == nil)
	}
}

func TestRewardFaults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, document, want string }{
		{"key", "[reward.parts.a]\nwieght = 1",
			":2: unknown key reward.parts.a.wieght, did you mean reward.parts.a.weight?"},
		{"weight of the section", "[reward]\nweight = 1", ":2: unknown key reward.weight, did you mean "},
		{"type", "[reward.parts.\"a b\"]\nweight = \"x\"",
			":2: reward.parts.\"a b\".weight: expected a number, found the string \"x\""},
		{"part that is a value", "[reward.parts]\na = 1",
			":2: reward.parts.a is a section, expected reward.parts.a.<key> = …"},
		{"value that is a section", "[reward.parts.a.kind]",
			":1: reward.parts.a.kind is a value, expected reward.parts.a.kind = …"},
		{"sum in a sum", "[reward.parts.a.parts.b]",
			":1: unknown section reward.parts.a.parts.b, expected a key of [reward.parts.a]: kind"},
		{"array", "[[reward.parts]]\nname = 1", ":1: [[reward.parts]] is an array of tables, expected [reward.parts]"},
		{"key with dots", "\"reward.kind\" = \"math\"", ":1: unknown key \"reward.kind\", did you mean reward.kind?"},
		{"too many", "[reward.parts]\n" + many(300), ":258: reward.parts.p256 exceeds the limit of 256 named tables"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			files := write(t, test.document)
			_, err := Load(files, nil)
			require.Error(t, err)
			require.Contains(t, strings.Split(err.Error(), "\n")[0], files[0]+test.want)
		})
	}
}

func many(n int) string {
	var out strings.Builder
	for i := range n {
		out.WriteString("p" + strings.Repeat("0", 3-len(strconv.Itoa(i))) + strconv.Itoa(i) + " = {kind = \"math\"}\n")
	}
	return out.String()
}

func TestRewardValues(t *testing.T) {
	t.Parallel()
	files := write(t, small+`[reward]
kind = "sum"
think = true
[reward.parts.a]
weight = 1
[reward.parts.b]
kind = "sum"
[reward.parts."c/d"]
kind = "math"
[reward.parts.e]
kind = "overlong"
buffer = 2000
[reward.parts.f]
kind = "regex"
pattern = "("
words = 3
[reward.parts.g]
kind = "command"
[reward.sources."x y"]
kind = "maths"
[reward.sources.z]
kind = "exact"
parts = {a = {kind = "math"}}
`)
	r, err := Load(files, nil)
	require.NoError(t, err)
	var got []string
	for _, line := range strings.Split(r.Validate(TrainTask).Error(), "\n") {
		if rest, ok := strings.CutPrefix(line, files[0]); ok {
			got = append(got, rest)
		}
	}
	var kinds []string
	for _, k := range reward.Kinds() {
		kinds = append(kinds, strconv.Quote(k.Name))
	}
	all := strings.Join(kinds, ", ")
	ofParts := strings.Join(slices.DeleteFunc(kinds, func(kind string) bool { return kind == `"sum"` }), ", ")
	require.Equal(t, []string{
		`:7: reward.think is set, but does not apply to kind "sum". It applies to "exact"`,
		`:8: reward.parts.a.kind is "", expected one of ` + ofParts,
		`:11: reward.parts.b.kind is "sum", expected one of ` + ofParts,
		`:5: reward.parts has a part named "c/d", expected names without spaces or slashes`,
		":16: reward.parts.e.buffer is 2000, expected 1 to the length limit of 1024 tokens",
		`:20: reward.parts.f.words is set, but does not apply to kind "regex". It applies to "repetition"`,
		":19: reward.parts.f.pattern is not a valid regular expression: error parsing regexp: missing closing ): `(`",
		":21: reward.parts.g.command is empty, expected a program and its arguments",
		`:24: reward.sources."x y".kind is "maths", expected one of ` + all,
		`:27: reward.sources.z.parts has 1 parts, expected 0 with kind "exact". Only kind "sum" has parts`,
	}, got)
}

// A key that its kind does not use is an error, even with its default value, unless an
// earlier layer set it for another kind.
func TestIdleRewardKeys(t *testing.T) {
	t.Parallel()
	const tags = "[reward]\nkind = \"format\"\ntags = [\"think\"]\n"
	for _, test := range []struct {
		name      string
		documents []string
		settings  []string
		want      []string // prefixes of the faults, without the folder
	}{
		{"the default", []string{"[reward]\nkind = \"math\"\ntags = [\"think\"]\n"}, nil,
			[]string{`/a.toml:7: reward.tags is set, but does not apply to kind "math". It applies to "format"`}},
		{"set before its kind", []string{"[reward]\nbatch = 1\nkind = \"math\"\n"}, nil,
			[]string{`/a.toml:6: reward.batch is set, but does not apply to kind "math". It applies to "command" ` +
				`and "http"`}},
		{"without a kind", []string{"[reward]\nbuffer = 1\n"}, nil,
			[]string{`/a.toml:6: reward.buffer is set, but does not apply to kind "exact". It applies to "overlong"`}},
		{"only sources have kinds", []string{"[reward]\nbuffer = 1\n[reward.sources.a]\nkind = \"math\"\n"}, nil,
			[]string{`/a.toml:6: reward.buffer is set, but does not apply to kind ""`}},
		{"of a part", []string{"[reward]\nkind = \"sum\"\n[reward.parts.\"a.b\"]\nkind = \"math\"\nthink = false\n"},
			nil,
			[]string{`/a.toml:9: reward.parts."a.b".think is set, but does not apply to kind "math"`}},
		{"of a source", []string{"[reward.sources.\"x/y\"]\nkind = \"math\"\nwords = 0\n"}, nil,
			[]string{`/a.toml:7: reward.sources."x/y".words is set, but does not apply to kind "math"`}},
		{"set in a later layer than its kind", []string{"[reward]\nkind = \"math\"\n"},
			[]string{`reward.tags=["think"]`}, []string{`-set: reward.tags is set`}},
		{"another value, reported once", []string{"[reward]\nkind = \"math\"\ntags = [\"a\"]\n"}, nil,
			[]string{`/a.toml:7: reward.tags is set`}},
		{"unknown kind", []string{"[reward]\nkind = \"maths\"\ntags = [\"think\"]\n"}, nil,
			[]string{`/a.toml:6: reward.kind is "maths"`}},

		{"used", []string{tags}, nil, nil},
		{"used by an earlier kind", []string{tags}, []string{"reward.kind=math"}, nil},
		{"used by an earlier kind in a file", []string{tags, "[reward]\nkind = \"math\"\n"}, nil, nil},
		{"undone", []string{"[reward]\nkind = \"overlong\"\nbuffer = 1\n"},
			[]string{"reward.kind=math", "reward.buffer=0"}, nil},
		{"not undone", []string{"[reward]\nkind = \"overlong\"\nbuffer = 1\n"}, []string{"reward.kind=math"},
			[]string{`/a.toml:7: reward.buffer is set`}},
		{"every kind uses weight",
			[]string{"[reward]\nkind = \"sum\"\n[reward.parts.a]\nkind = \"math\"\nweight = 1\n"}, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.documents[0] = small + test.documents[0]
			files := write(t, test.documents...)
			r, err := Load(files, test.settings)
			require.NoError(t, err)
			var got []string
			if err := r.Validate(TrainTask); err != nil {
				joined := err.(interface{ Unwrap() []error }) //nolint:errorlint // errors.Join's own form is meant
				for _, fault := range joined.Unwrap() {
					got = append(got, strings.TrimPrefix(fault.Error(), filepath.Dir(files[0])))
				}
			}
			require.Len(t, got, len(test.want), got)
			for i := range got {
				require.True(t, strings.HasPrefix(got[i], test.want[i]), got[i])
			}
			if len(got) > 0 {
				return
			}
			require.NoError(t, r.WriteFile(filepath.Dir(files[0])))
			again, err := Load([]string{filepath.Join(filepath.Dir(files[0]), RunFile)}, nil)
			require.NoError(t, err)
			require.NoError(t, again.Validate(TrainTask), "the written run.toml is valid")
		})
	}
}

func TestSourcesWithoutPrompts(t *testing.T) {
	t.Parallel()
	const there = "[reward.sources.\"openai/gsm8k\"]\nkind = \"gsm8k\"\n"
	for _, test := range []struct {
		document string
		settings []string
		found    []string
		want     string
	}{
		{there, nil, []string{"math", "openai/gsm8k"}, ""},
		{"[reward]\nkind = \"math\"\n", nil, []string{"math"}, ""},
		{there, nil, nil, ""},
		{there + "[reward.sources.gsm]\nkind = \"math\"\n", nil, []string{"math", "gsm8k-hard", "openai/gsm8k"},
			`:8: reward.sources.gsm: no prompt has this data source, did you mean "gsm8k-hard"? Prompts have ` +
				`"math", "gsm8k-hard", "openai/gsm8k"`},
		{there, []string{"reward.sources.nosuch.kind=math"}, []string{"openai/gsm8k"},
			`-set: reward.sources.nosuch: no prompt has this data source; prompts have "openai/gsm8k"`},
		{there, nil, strings.Split("abcdefghijklm", ""),
			`prompts have "a", "b", "c", "d", "e", "f", "g", "h", "i", "j" and 3 more`},
	} {
		r, err := Load(write(t, small+test.document), test.settings)
		require.NoError(t, err)
		err = r.CheckSources(test.found)
		if test.want == "" {
			require.NoError(t, err)
			continue
		}
		require.Contains(t, strings.Split(err.Error(), "\n")[0], test.want)
	}
}
