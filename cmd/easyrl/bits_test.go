package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// The bits of a run are those of this test on every machine: with and without cgo, on processors that
// fuse products and sums and on others. Those of weights and moments change only with
// npu.NumericsVersion.
func TestBitsOfARun(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	path := filepath.Join(dir, "config.json")
	config, err := os.ReadFile(path)
	require.NoError(t, err)
	config = []byte(strings.Replace(string(config), `"max_position_embeddings":64`,
		`"max_position_embeddings":32768,"rope_scaling":{"rope_type":"yarn",
		"factor":4.0,"original_max_position_embeddings":8192}`, 1))
	require.NoError(t, os.WriteFile(path, config, 0o600))
	out := trainTiny(t, dir, "bits", "run.steps=4", "train.minibatches=2", "train.schedule=cosine", "train.warmup=1",
		"train.lr=3e-3",
		"loss.correction=truncate", "loss.beta=0.04", "eval.every=2", "eval.k=4", "rollout.temperature=0.9",
		"rollout.top_p=0.95")
	weights, metrics := sha256.New(), sha256.New()
	files, err := filepath.Glob(filepath.Join(out, "checkpoints", "step-000004", "trainer", "*.safetensors"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range append(files, filepath.Join(out, "checkpoints", "step-000004", "model.safetensors")) {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		fmt.Fprintf(weights, "%s %x\n", filepath.Base(file), sha256.Sum256(b))
	}
	steps, err := report.ReadMetrics(filepath.Join(out, report.MetricsFile))
	require.NoError(t, err)
	for _, values := range steps {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			prefix, _, _ := strings.Cut(name, "/")
			if !slices.Contains([]string{"time", "timing_s", "idle", "perf", "memory", "fleet"}, prefix) {
				text, err := json.Marshal(values[name])
				require.NoError(t, err)
				fmt.Fprintf(metrics, "%s %s\n", name, text)
			}
		}
	}
	require.Equal(t, "733c92852865e96a47e467e0f50bba25eceadf3c4c5440e239c77eeabe030d98",
		fmt.Sprintf("%x", weights.Sum(nil)), "weights and moments")
	require.Equal(t, "579a04970d5385649ca86c593ac01d2951ca992bfa6fb9ab489a22210788bc88",
		fmt.Sprintf("%x", metrics.Sum(nil)), "metrics")
}
