package wire

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// PROTOCOL.md names all kinds and their fields.
func TestPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../PROTOCOL.md")
	require.NoError(t, err)
	var check func(of reflect.Type)
	check = func(of reflect.Type) {
		if of.Kind() != reflect.Struct {
			return
		}
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			require.Contains(t, string(page), "`"+name+"`", "field of %v", of)
			check(of.Field(i).Type)
		}
	}
	for _, m := range []Message{Hello{}, Welcome{}, Refused{}, Ready{}, Forward{}, Backward{}, Discard{}, Score{},
		Step{}, Write{}, Beat{}, End{},
		Logprobs{}, Passed{}, Stepped{}, Written{}, Failed{}} {
		require.Contains(t, string(page), "`"+m.Kind()+"`")
		check(reflect.TypeOf(m))
	}
}
