package api

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The requests in the document have exactly the fields that are decoded, and those without
// effect with the values that are allowed.
func TestDocumentHasAllFields(t *testing.T) {
	t.Parallel()
	var document struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct{ Enum []json.RawMessage }
			}
		}
	}
	require.NoError(t, json.Unmarshal(openapi, &document))
	request, extra := &Request{Chat: true}, &generateExtras{}
	for name, list := range map[string][]field{
		"CompletionRequest": (&Request{}).fields(&extras{}), "ChatRequest": request.fields(&extras{}),
		"GenerateRequest": request.generateFields(extra), "SamplingParams": request.generateParams(extra),
		"TokenizeRequest": (&TokenizeRequest{}).fields(), "DetokenizeRequest": (&DetokenizeRequest{}).fields(),
		"TrainerRequest": (&TrainerRequest{}).fields(),
	} {
		got := document.Components.Schemas[name].Properties
		want := map[string]bool{}
		for _, name := range harmless() {
			want[name] = true
		}
		for name := range neutral() {
			want[name] = true
		}
		for _, f := range list {
			want[f.name] = true
		}
		require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)), name)
		for key, values := range neutral() {
			if slices.ContainsFunc(list, func(f field) bool { return f.name == key }) {
				continue
			}
			for i, value := range append(values, "null") {
				require.JSONEq(t, value, string(got[key].Enum[i]), "%s.%s", name, key)
			}
		}
	}
}
