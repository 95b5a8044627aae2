package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/bench/roofline"
)

// Operations and bytes of each phase, counted by hand for a decoder of 16,064 weights in
// two layers with 63 cached tokens per sequence.
func TestBench(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	folder := filepath.Join(dir, "model")
	code, _, errs := command(t, "init", "-config", filepath.Join(dir, "config.json"), "-out", folder)
	require.Equal(t, exitDone, code, errs)
	code, out, errs := command(t, "bench", "-model", folder, "-threads", "1", "-json")
	require.Equal(t, exitDone, code, errs)
	var r roofline.Report
	decoder := json.NewDecoder(strings.NewReader(out))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&r))
	require.Equal(t, int64(512+2*(2*1024+2*512+3*32*48+2*32+2*8)+32), r.Parameters)
	require.Equal(t, folder, r.Model)
	require.Equal(t, r.Ceilings.One, r.Ceilings.All)

	work := map[string][2]float64{ // operations, bytes
		"prefill":   {2*(2*63*7680+4*(63*64/2)*32) + 2*32*16, 4*16064 + 63*256},
		"sample 32": {24 * 32 * 16, 4 * 32 * 16},
		// Rows of a prompt of 32 tokens and 8 responses of 31, and their keys.
		"forward":   {2*(2*280*7680+4*(32*33/2+8*31*(33+63)/2)*32) + 2*256*32*16, 0},
		"loss":      {0, 5 * 4 * 256},
		"backward":  {2 * (2*(2*280*7680+4*(32*33/2+8*31*(33+63)/2)*32) + 2*256*32*16), 0},
		"optimizer": {18 * 16064, 9 * 4 * 16064},
	}
	for _, n := range []int{1, 8, 32, 128} {
		work[fmt.Sprint("decode ", n)] = [2]float64{float64(n * (2*(2*7680+4*64*32) + 2*32*16)),
			float64(4*16064 + n*(64*256+4*16))}
	}
	var names []string
	for _, s := range r.Phases {
		names = append(names, s.Phase)
		want := work[s.Phase]
		require.InDelta(t, want[0], s.FLOP, 1, s.Phase)
		if want[1] > 0 {
			require.InDelta(t, want[1], s.Bytes, 1, s.Phase)
		}
		require.Greater(t, s.Bytes, 0.0, s.Phase)
		require.Greater(t, s.Seconds, 0.0, s.Phase)
		require.InEpsilon(t, s.Bytes/s.Seconds/s.Bandwidth, s.BandwidthShare, 1e-9, s.Phase)
		require.InDelta(t, s.FLOP/s.Seconds/r.Ceilings.All.FLOPPerSecond, s.FMAShare, 1e-9, s.Phase)
	}
	require.Equal(t, []string{"prefill", "decode 1", "decode 8", "decode 32", "decode 128", "sample 32", "forward",
		"loss", "backward", "optimizer"}, names)
	require.Contains(t, out, `"read_bytes_per_second":`)
	require.Contains(t, out, `"fma_share":`)
}

// Without a folder, bench uses the quickstart's shape.
func TestBenchFolder(t *testing.T) {
	t.Parallel()
	f, err := benchFolder("")
	require.NoError(t, err)
	require.Equal(t, int64(794_624), f.Shape.NumParams())
	require.Empty(t, f.Dir)
}

func TestBenchRefuses(t *testing.T) {
	t.Parallel()
	short := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(short, "config.json"),
		[]byte(`{"model_type":"llama","hidden_size":8,"intermediate_size":8,
		"num_hidden_layers":1,"num_attention_heads":1,"vocab_size":9,"max_position_embeddings":3}`), 0o644))
	for args, want := range map[string]string{
		"x":                  "unexpected argument x",
		"-model nowhere":     "nowhere",
		"-threads -1":        "-1 threads",
		"-threads 1025":      "1025 threads",
		"-model " + short:    "has a context of 3 tokens, expected 4 or more",
		"-model= -json=what": `-json is "what", expected true or false`,
	} {
		code, out, errs := command(t, append([]string{"bench"}, strings.Fields(args)...)...)
		require.Equal(t, exitUsage, code, args)
		require.Empty(t, out)
		require.Contains(t, errs, want)
	}
}
