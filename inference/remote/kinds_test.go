package remote

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A configuration finds each kind by its name and a server by its marks. Marks that kinds
// share come last.
func TestKinds(t *testing.T) {
	t.Parallel()
	seen, shared := map[string]bool{}, false
	for _, k := range Kinds() {
		require.Regexp(t, `^[a-z]+$`, k.Name)
		require.False(t, seen[k.Name], "two kinds are named %s", k.Name)
		seen[k.Name] = true
		require.NotEmpty(t, k.Title)
		require.NotEmpty(t, k.marks)
		found, ok := kindOf(k.Name)
		require.True(t, ok)
		require.Equal(t, k.Title, found.Title)
	}
	asked := map[mark]bool{}
	for _, m := range marks() {
		require.False(t, asked[m.mark], "%s and another kind have the mark %v", m.kind.Name, m.mark)
		asked[m.mark] = true
		require.False(t, shared && !m.kind.shared, "%s is tried after a shared mark", m.kind.Name)
		shared = shared || m.kind.shared
	}
	_, ok := kindOf("")
	require.False(t, ok)
	require.Equal(t, allKinds(), Names())
	require.True(t, IsExact(EasyRL))
	require.False(t, IsExact(VLLM))
	require.False(t, IsExact(""))
}

func TestJoin(t *testing.T) {
	t.Parallel()
	list := []string{"easyrl", "vLLM", "SGLang"}
	require.Equal(t, "easyrl, vLLM or SGLang", join(list))
	require.Equal(t, "easyrl or vLLM", join(list[:2]))
	require.Equal(t, "easyrl", join(list[:1]))
	require.Empty(t, join(nil))
}

func TestParseEndpoint(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Endpoint{
		"http://a:8000":           {URL: "http://a:8000", Kind: EasyRL},
		"vllm=http://a:8000/":     {URL: "http://a:8000", Kind: VLLM},
		"http://a:8000/x=y":       {URL: "http://a:8000/x=y", Kind: EasyRL},
		"sglang=https://a/prefix": {URL: "https://a/prefix", Kind: SGLang},
	} {
		got, err := ParseEndpoint(text, EasyRL)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
	}
	for text, want := range map[string]string{
		"a:8000":               "expected a URL such as http://127.0.0.1:8000",
		"http://u:p@a":         "expected a URL",
		"http://a?b=c":         "expected a URL",
		"llamacpp=http://a":    `expected one of "easyrl", "vllm"`,
		"tgi=http://a":         "before the URL",
		"=http://a":            "",
		"http://127.0.0.1:1#f": "expected a URL",
	} {
		_, err := ParseEndpoint(text, EasyRL)
		if want == "" {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorContains(t, err, want, text)
	}
}
