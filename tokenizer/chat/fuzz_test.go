package chat

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"github.com/easyrl/easyrl/internal/limittest"
)

// FuzzRender renders any template with any variables: rendering ends soon, with a text or
// an error of the package.
func FuzzRender(f *testing.F) {
	context, rows := readGolden(f)
	for _, r := range rows {
		f.Add(r.Template, []byte(context))
	}
	paths, _ := filepath.Glob(filepath.Join(os.Getenv("EASYRL_TESTDATA"), "templates", "*.jinja"))
	for _, path := range paths {
		if source, err := os.ReadFile(path); err == nil {
			f.Add(string(source),
				[]byte(`{"messages": [{"role": "user", "content": "x"}], "tools": [{"function": {"name": "f"}}]}`))
		}
	}
	f.Fuzz(func(t *testing.T, source string, variables []byte) {
		var tmpl *Template
		var err error
		limittest.Run(t, func() { tmpl, err = Parse(source, Specials{"bos_token": "<s>"}) })
		var e *Error
		if err != nil {
			if !errors.As(err, &e) {
				t.Fatalf("parse: %v", err)
			}
			return
		}
		var first string
		limittest.Run(t, func() { first, err = tmpl.RenderVariables(variables, when()) })
		if err != nil {
			return
		}
		if !utf8.ValidString(first) {
			t.Fatalf("%q: invalid text %q", source, first)
		}
		again, err := tmpl.RenderVariables(variables, when())
		if err != nil || again != first {
			t.Fatalf("%q: rendered %q, then %q, %v", source, first, again, err)
		}
	})
}
