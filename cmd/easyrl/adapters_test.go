package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A run that publishes adapters has vLLM servers alone. Its check says so too.
func TestAdapterSettings(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	vllm := []string{"torch.lora_rank=8", "inference.kind=vllm"}
	for _, c := range []struct {
		settings []string
		want     string
	}{
		{nil, `torch.publish is "adapter", expected "merged" if lora_rank is 0`},
		{[]string{"torch.lora_rank=8", "torch.publish=both"},
			`torch.publish is "both", expected "merged" or "adapter"`},
		{[]string{"torch.lora_rank=8"}, `inference.kind is "embedded", expected "vllm" with torch.publish = "adapter"`},
		{append(vllm, `inference.endpoints=["http://127.0.0.1:1"]`, "inference.instances=1"),
			`inference.instances is 1, expected 0 with torch.publish = "adapter"`},
		{append(vllm, `inference.endpoints=["sglang=http://127.0.0.1:1"]`),
			`inference.endpoints has "sglang=http://127.0.0.1:1", expected only vllm servers`},
	} {
		for _, verb := range []string{"train", "check"} {
			args := []string{verb, filepath.Join(dir, "run.toml"), "-set",
				fmt.Sprintf("run.dir=%q", filepath.Join(dir, "out")),
				"-set", "train.backend=torch", "-set", "torch.publish=adapter"}
			for _, s := range c.settings {
				args = append(args, "-set", s)
			}
			status, _, errs := command(t, args...)
			require.NotZero(t, status, c.want)
			require.Contains(t, errs, c.want)
			require.Equal(t, 1, strings.Count(errs, "error:"), errs)
		}
	}
}
