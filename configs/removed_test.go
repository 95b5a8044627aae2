package configs

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The run.toml of an older run names every removed key with its default and still
// loads; any other value is refused, and so is every setting of the command line.
func TestRemovedKeys(t *testing.T) {
	t.Parallel()
	other := map[reflect.Kind]string{reflect.String: `"x"`, reflect.Bool: "%t", reflect.Float64: "0.125", reflect.Int64: "3", reflect.Slice: "[1.5]"}
	for _, r := range removedKeys() {
		t.Run(r.key, func(t *testing.T) {
			t.Parallel()
			require.NotContains(t, Keys(), r.key)
			old := reflect.ValueOf(r.old)
			text := format(old)
			_, err := Load(write(t, r.key+" = "+text), nil)
			require.NoError(t, err)
			_, err = Load(nil, []string{r.key + "=" + text})
			require.EqualError(t, err, "-set: "+r.key+" "+r.instead)
			another := other[old.Kind()]
			if old.Kind() == reflect.Bool {
				another = fmt.Sprint(!old.Bool())
			}
			files := write(t, r.key+" = "+another)
			_, err = Load(files, nil)
			require.ErrorContains(t, err, files[0]+":1: "+r.key+" "+r.instead+"\n")
		})
	}
	files := write(t, "[reward.parts.late]\nkind = \"overlong\"\nbuffer = 5\nmax_tokens = 20\n[reward.sources.x]\nretries = 2\n")
	_, err := Load(files, nil)
	require.ErrorContains(t, err, ":4: reward.parts.late.max_tokens is gone: the limit is rollout.max_tokens")
}

// What a message recommends instead exists.
func TestRemovedKeysNameKeys(t *testing.T) {
	t.Parallel()
	for _, r := range removedKeys() {
		for _, key := range regexp.MustCompile(`\b[a-z]+(\.[a-z_]+)+`).FindAllString(r.instead, -1) {
			if key == "config.json" || key == "trace.json" {
				continue
			}
			require.True(t, slices.Contains(Keys(), key), "%s: %s", r.key, key)
		}
	}
}
