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
	}{{1, 1, wire.Auto, 0}, {1, 2, wire.Auto, syscall.SIGKILL}, {2, 1, wire.Free, syscall.SIGKILL}, {2, 1, wire.Lockstep, syscall.SIGSTOP}} {
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
				require.NoError(t, s.Pass(t.Context(), batch(2)[0], func(lp backend.Logprobs) ([]float32, error) { return objective(lp), nil }))
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
