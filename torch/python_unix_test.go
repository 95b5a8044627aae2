//go:build unix

package torch

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/torch/wire"
)

// PyTorch ranks that the session starts agree with package tri_model, also if one of them is
// killed or stopped on the way.
func TestPython(t *testing.T) {
	python := os.Getenv("EASYRL_TORCH")
	if python == "" {
		t.Skip("EASYRL_TORCH is not set, expected a Python with PyTorch")
	}
	const updates = 3
	want := expected(t, updates)
	for _, test := range []struct {
		dp, tp int
		mode   string
		signal syscall.Signal
	}{{1, 1, wire.Auto, 0}, {1, 2, wire.Auto, syscall.SIGKILL}, {2, 1, wire.Free, syscall.SIGKILL},
		{2, 1, wire.Lockstep, syscall.SIGSTOP}} {
		t.Run(fmt.Sprintf("dp %d tp %d %s %v", test.dp, test.tp, test.mode, test.signal), func(t *testing.T) {
			var warnings []string
			cfg := configure(start(t), t.TempDir())
			cfg.Python, cfg.Threads, cfg.Token, cfg.Silence = python, 1, "", 5*time.Second
			cfg.DP, cfg.TP, cfg.Mode = test.dp, test.tp, test.mode
			cfg.Warn = func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
			s, err := Open(t.Context(), cfg)
			if err != nil {
				output, _ := os.ReadFile(filepath.Join(cfg.Dir, OutputFile))
				t.Log(string(output))
			}
			require.NoError(t, err)
			defer s.Close()
			advance(t, s, 1)
			if test.signal != 0 {
				require.NoError(t, s.Pass(t.Context(), batch(2)[0],
					func(lp backend.Outputs) (backend.Values, error) { return objective(lp), nil }))
				victim := s.Ranks()[test.dp*test.tp-1]
				require.NoError(t, syscall.Kill(victim.Hello.PID, test.signal))
				require.NoError(t, s.Flush(t.Context()))
				s.Discard()
			}
			for n := 2; n <= updates; n++ {
				advance(t, s, n)
			}
			got := written(t, s)
			worst, moved := 0.0, 0.0
			for i := range want {
				worst = max(worst, math.Abs(float64(want[i]-got[i])))
				moved = max(moved, math.Abs(float64(want[i])))
			}
			t.Logf("largest difference %.3g, warnings %q", worst, warnings)
			require.Less(t, worst, 1e-3)
			if test.signal != 0 {
				require.Len(t, warnings, 1)
				require.True(t, strings.HasPrefix(warnings[0], "rank 1 on "), warnings[0])
			}
		})
	}
}

// full makes ranks run out of memory in forward passes of more than 12 rows.
const full = `
import importlib.machinery, sys

class Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "easyrl_torch.engine":
            return None
        spec = super().find_spec(name, path, target)
        run = spec.loader.exec_module
        def planted(module):
            import torch
            run(module)
            forward = module.Engine.forward
            def fail(self, number, layout):
                if layout is not None and len(layout) > 12:
                    raise torch.OutOfMemoryError("CUDA out of memory.")
                return forward(self, number, layout)
            module.Engine.forward = fail
        spec.loader.exec_module = planted
        return spec

sys.meta_path.insert(0, Finder)
`

// PyTorch ranks that run out of memory train in smaller micro-batches.
func TestPythonOutOfMemory(t *testing.T) {
	python := os.Getenv("EASYRL_TORCH")
	if python == "" {
		t.Skip("EASYRL_TORCH is not set, expected a Python with PyTorch")
	}
	const updates = 2
	want := expected(t, updates)
	site := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(site, "sitecustomize.py"), []byte(full), 0o600))
	t.Setenv("PYTHONPATH", site)
	var warnings []string
	cfg := configure(start(t), t.TempDir())
	cfg.Python, cfg.Threads, cfg.Token = python, 1, ""
	cfg.Warn = func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	s, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	defer s.Close()
	train(t, s, updates)
	require.NotEmpty(t, warnings)
	for _, w := range warnings {
		require.Contains(t, w, ": OutOfMemoryError: CUDA out of memory.; a micro-batch had ")
	}
	require.Positive(t, s.MicroBatchRows())
	got := written(t, s)
	for i := range want {
		require.InDelta(t, want[i], got[i], 1e-3)
	}
	t.Logf("%d lacks of memory, at most %d rows", len(warnings), s.MicroBatchRows())
}

// Adapters continue from a recovery point when a rank is killed.
func TestPythonAdapters(t *testing.T) {
	python := os.Getenv("EASYRL_TORCH")
	if python == "" {
		t.Skip("EASYRL_TORCH is not set, expected a Python with PyTorch")
	}
	run := func(kill bool) []float32 {
		cfg := configure(start(t), t.TempDir())
		cfg.Python, cfg.Threads, cfg.Token = python, 1, ""
		cfg.LoRA = wire.LoRA{Rank: 2, Alpha: 4}
		warnings := 0
		cfg.Warn = func(format string, args ...any) {
			warnings++
			t.Logf(format, args...)
		}
		s, err := Open(t.Context(), cfg)
		require.NoError(t, err)
		defer s.Close()
		advance(t, s, 1)
		if kill {
			_, err := s.Capture(t.Context())
			require.NoError(t, err)
			require.NoError(t, syscall.Kill(s.Ranks()[0].Hello.PID, syscall.SIGKILL))
		}
		advance(t, s, 2)
		require.Equal(t, kill, warnings == 1)
		return written(t, s)
	}
	requireClose(t, run(false), run(true))
}
