package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report/control"
)

// escapes has what a terminal obeys: a title, a link, the clipboard, a cleared screen in 7
// and 8 bits, a rewritten line and a reversed name.
const escapes = "x\x1b]0;t\a\x1b]8;;http://e\x1b\\\x1b]52;c;eA==\a\x1b[2J\u009b2J\rerror: \b\x7f\u202egpj"

// harmless requires that a terminal prints text and obeys nothing in it.
func harmless(t *testing.T, text string) {
	t.Helper()
	require.NotEmpty(t, text)
	at := strings.IndexFunc(text, func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t' || r == '\u202e'
	})
	require.Equal(t, -1, at, "%q", text)
}

// A hostile trainer cannot write to the terminal of a user who lists its instances.
func TestFleetVerbPrintsPlainText(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusBadGateway, http.StatusBadRequest} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			in := control.Instance{ID: escapes, Kind: escapes, State: escapes, Fault: escapes}
			_ = json.NewEncoder(w).Encode(map[string]any{"instances": []control.Instance{in}, "id": escapes,
				"error": map[string]string{"message": "no\nhint: run " + escapes}})
		}))
		for _, args := range [][]string{{"list"}, {"list", "-json"}, {"add", "http://a"}, {"drain", "a"}} {
			_, out, errs := command(t, append([]string{"fleet", "-trainer", s.URL}, args...)...)
			harmless(t, out+errs)
			require.NotContains(t, errs, "\nhint: ", "a hint of the trainer's")
			require.True(t, status != http.StatusOK || args[0] != "list" || strings.Contains(out, "2J"), out)
		}
		s.Close()
	}
}

// A hostile server cannot write to the terminal or to the warnings of a run.
func TestServerErrorsArePlainText(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models":
			_ = json.NewEncoder(w).Encode(
				map[string]any{"data": []any{map[string]any{"id": escapes, "owned_by": "vllm", "max_model_len": 4096}}})
		case "/version":
			_ = json.NewEncoder(w).Encode(map[string]string{"version": escapes})
		default:
			w.WriteHeader(http.StatusInternalServerError)
			_ = json.NewEncoder(w).Encode(
				map[string]any{"error": map[string]string{"message": escapes, "type": escapes}})
		}
	}))
	defer s.Close()
	dir := tinyRun(t)
	for _, kind := range []string{"vllm", "sglang", "easyrl"} {
		for _, verb := range [][]string{{"train"}, {"check"}, {"check", "-json"}} {
			args := append(verb, filepath.Join(dir, "run.toml"), "-set", "run.dir="+filepath.Join(dir, kind), "-set",
				"inference.kind="+kind, "-set", "inference.endpoints="+s.URL, "-set", "inference.wait_seconds=1")
			_, out, errs := command(t, args...)
			harmless(t, out+errs)
			require.True(t, verb[0] == "check" || strings.Contains(out+errs, `2J`), "%s %v: %s", kind, verb, out+errs)
		}
	}
}
