package control

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/plain"
)

// The live page escapes every character as the other pages do, alone and as a joiner's
// neighbour.
func TestVisible(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed")
	}
	var texts, want []string
	add := func(text string) { texts, want = append(texts, text), append(want, plain.Text(text)) }
	for r := range rune(unicode.MaxRune + 1) {
		odd := unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Zs)
		if odd || r < 0x100 {
			add("a" + string(r) + "é")
			add("é\u200d" + string(r) + "\u200cé\u200da\u200d")
		}
	}
	add("\x1b]52;c;cm0gLXJm\a red\x1b[31m\r\n\tend 👩\u200d💻")
	from, to := strings.Index(string(liveScript), "const acts = "), strings.Index(string(liveScript), "function make(")
	require.Less(t, from, to)
	run := exec.CommandContext(t.Context(), node, "-e", string(liveScript[max(0, from):to])+
		`process.stdout.write(JSON.stringify(JSON.parse(require("fs").readFileSync(0)).map(visible)))`)
	input, err := json.Marshal(texts)
	require.NoError(t, err)
	run.Stdin = strings.NewReader(string(input))
	out, err := run.Output()
	require.NoError(t, err)
	var shown []string
	require.NoError(t, json.Unmarshal(out, &shown))
	require.Equal(t, want, shown)
}
