package memory

import (
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/arch"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/parallel"
)

// 2·2 layers: hidden size 32, 4 heads of 8, 2 for keys, 48 wide, 16 tokens, tied.
const tiny = `{"model_type":"qwen3","hidden_size":32,"intermediate_size":48,"num_hidden_layers":2,` +
	`"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,
	"vocab_size":16,"max_position_embeddings":64,"rms_norm_eps":1e-6,"rope_theta":10000,"hidden_act":"silu",` +
	`"tie_word_embeddings":true}`

func TestNeed(t *testing.T) {
	t.Parallel()
	shape, err := arch.ParseConfig([]byte(tiny))
	require.NoError(t, err)
	const layer = 32*(4+2+2)*8 + 4*8*32 + 3*32*48 + 2*32 + 2*8
	const one, embedding = 4 * (2*layer + 16*32 + 32), 4 * 16 * 32
	each := engine.Config{MaxRunning: 3, Context: 40}
	const pages = 3 * 3                      // of 16 positions
	const cache = 4*2*2*pages*16*2*8 + 4*3*3 // with the table of pages
	for _, test := range []struct {
		name    string
		change  func(c *configs.Config)
		sft     bool
		copies  int
		saved   int
		engines int
	}{
		{"train", func(*configs.Config) {}, false, 3, 3, 1},
		{"reference", func(c *configs.Config) { c.Loss.Beta = 0.1 }, false, 4, 3, 1},
		{"previous step", func(c *configs.Config) { c.Loss.OldPolicy = "previous-step" }, false, 3, 4, 1},
		{"three instances", func(c *configs.Config) { c.Inference.Instances = 3 }, false, 3, 3, 3},
		{"servers", func(c *configs.Config) { c.Inference.Instances = 0 }, false, 3, 3, 0},
		{"both servers", func(c *configs.Config) {
			c.Inference.Instances, c.Inference.Kind, c.Inference.Endpoints = 0, "vllm",
				[]string{"http://a", "easyrl=http://b"}
		}, false, 3, 3, 0},
		{"other servers", func(c *configs.Config) {
			c.Inference.Instances, c.Inference.Kind, c.Inference.Endpoints = 0, "vllm", []string{"http://a"}
		}, false, 3, 3, 0},
		{"sft", func(c *configs.Config) { c.Loss.Beta = 0.1 }, true, 1, 3, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := configs.Default()
			test.change(&cfg)
			n := Of(&cfg, shape, each, Tokens{Leaf: 50, Step: 5000}, test.sft, parallel.Process{Size: 1})
			require.EqualValues(t, test.copies*one, n.Weights)
			require.EqualValues(t, 2*one, n.Gradients)
			require.EqualValues(t, 2*one, n.Moments)
			require.EqualValues(t, test.saved*one, n.Saved)
			require.EqualValues(t, test.engines, n.Instances)
			sent := map[string]int{"both servers": 2 * one, "other servers": one}[test.name]
			require.EqualValues(t, sent, n.Sent+n.Verified)
			require.Equal(t, test.name == "both servers", n.Sent > 0)
			all := (test.copies+4+test.saved)*one + sent
			if test.engines > 0 {
				require.EqualValues(t, cache, n.Cache)
				all += test.engines * (cache + int(n.Running))
			}
			require.EqualValues(t, all, n.Certain())
			require.EqualValues(t, int64(all)+n.Activations, n.Max())
			cfg.Device.Kind = "./other.so"
			n = Of(&cfg, shape, each, Tokens{Leaf: 50, Step: 5000}, test.sft, parallel.Process{Size: 1})
			require.EqualValues(t, sent+test.saved*one, n.Certain(), "the rest is on the device")
			require.Nil(t, n.Swap)
			cfg.Train.Swap, cfg.Run.Mode = true, configs.Colocated
			n = Of(&cfg, shape, each, Tokens{Leaf: 50, Step: 5000}, test.sft, parallel.Process{Size: 1})
			if test.engines == 0 {
				require.Nil(t, n.Swap)
				return
			}
			sampling, training := int64(test.engines)*(cache+n.Running),
				int64(test.copies-2+4)*one+n.Activations+n.Activations/8
			require.Equal(t, &Swap{Stays: 2 * one, Training: training, Sampling: sampling,
				Device: 2*one + max(sampling, training), Host: int64(test.copies-3+2) * one}, n.Swap)
			require.EqualValues(t, int64(sent+test.saved*one)+n.Swap.Host, n.Certain())
			require.Equal(t, n.Certain(), n.Max())
		})
	}
}

func TestActivations(t *testing.T) {
	t.Parallel()
	shape, err := arch.ParseConfig([]byte(tiny))
	require.NoError(t, err)
	cfg := configs.Default()
	for _, test := range []struct{ micro, sequence, step, rows int }{{100, 30, 900, 100}, {100_000, 30, 900, 900},
		{8, 30, 900, 30}, {8, 30, 20, 20}} {
		cfg.Train.MicroBatchTokens = test.micro
		n := Of(&cfg, shape, engine.Config{MaxRunning: 1}, Tokens{Leaf: test.sequence, Step: test.step}, true,
			parallel.Process{Size: 1})
		require.Equal(t, test.rows, n.Rows)
		require.Equal(t, model.ActivationBytes(shape, npu.FP32, test.rows, test.sequence, test.rows, false),
			n.Activations)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	n := Need{Copies: 3, Weights: 6 * gib, Gradients: 2 * gib, Moments: 4 * gib, Saved: 6 * gib,
		Activations: 3 * gib, Rows: 4096}
	check := func(bytes int64) (warned string, err error) {
		err = n.Check(Limit{bytes, "this machine"},
			func(format string, args ...any) { warned += fmt.Sprintf(format, args...) })
		return warned, err
	}
	for _, limit := range []int64{0, 21 * gib, 100 * gib} {
		warned, err := check(limit)
		require.NoError(t, err)
		require.Empty(t, warned)
	}
	warned, err := check(18 * gib)
	require.NoError(t, err)
	require.Equal(t, "the run may need 21.0 GiB of memory, more than the 18.0 GiB of this machine: a pass over 4096 "+
		"tokens takes up to 3.0 GiB. "+
		"Lower train.micro_batch_tokens, or set train.recompute = true.", warned)
	_, err = check(18*gib - 1)
	require.True(t, usage.Is(err))
	require.EqualError(t, err, "the run needs 18.0 GiB of memory, expected at most 18.0 GiB, the memory of this "+
		"machine: weights 6.0 GiB (3 copies), gradients 2.0 GiB, "+
		"optimizer 4.0 GiB, checkpoints 6.0 GiB. Choose a smaller model or a larger machine.")
	n.Instances, n.Cache = 2, 10*gib
	_, err = check(18 * gib)
	require.ErrorContains(t, err, ", instances 20.0 GiB. Choose a smaller model or a larger machine.")
	_, err = check(19 * gib)
	require.ErrorContains(t, err, "the run needs 38.0 GiB of memory, ")
	require.ErrorContains(t, err, ", instances 20.0 GiB. Lower inference.max_running or inference.instances.")
}

func TestGroupLimit(t *testing.T) {
	t.Parallel()
	const (
		second = "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
		first  = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n36 31 0:33 / " +
			"/sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
	)
	for name, test := range map[string]struct {
		cgroup, mounts string
		files          map[string]string // below sys/fs/cgroup
		want           int64
	}{
		"none": {"", "", nil, 0},
		"version 2": {"0::/a/b\n", second,
			map[string]string{"a/b/memory.max": "max\n", "a/memory.max": "1000\n"}, 1000},
		"version 2, nested": {"0::/a/b\n", second,
			map[string]string{"a/b/memory.max": "2000\n", "a/memory.max": "3000\n"}, 2000},
		"version 2, in a namespace":   {"0::/\n", second, map[string]string{"memory.max": "4000\n"}, 4000},
		"version 2, unlimited":        {"0::/a\n", second, map[string]string{"a/memory.max": "max\n"}, 0},
		"version 2, invalid":          {"0::/a\n", second, map[string]string{"a/memory.max": "much\n"}, 0},
		"version 2, outside the root": {"0::/../../x\n", second, map[string]string{"memory.max": "5000\n"}, 5000},
		"version 2, mounted below": {"0::/docker/x/job\n",
			"31 23 0:28 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			map[string]string{"job/memory.max": "6000\n", "memory.max": "7000\n"}, 6000},
		"version 2, a similar name": {"0::/docker/xy\n",
			"31 23 0:28 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			map[string]string{"memory.max": "7500\n", "y/memory.max": "1\n"}, 7500},
		"version 1": {"9:name=systemd:/\n4:cpu,cpuacct:/q\n3:memory:/a/b\n0::/\n", first,
			map[string]string{"memory/a/b/memory.limit_in_bytes": "9223372036854771712\n",
				"memory/a/memory.limit_in_bytes": "8000\n", "cpu/q/memory.limit_in_bytes": "1\n"}, 8000},
		"version 1, in a container": {"3:hugetlb,memory:/docker/x\n",
			"35 31 0:32 /docker/x /sys/fs/cgroup/memory ro - cgroup cgroup rw,hugetlb,memory\n",
			map[string]string{"memory/memory.limit_in_bytes": "9000\n"}, 9000},
		"version 1, without a namespace": {"3:memory:/docker/x\n", first,
			map[string]string{"memory/memory.limit_in_bytes": "9500\n"}, 9500},
		"hybrid": {"3:memory:/a\n0::/a\n", first + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			map[string]string{"memory/a/memory.limit_in_bytes": "11000\n", "unified/a/cgroup.procs": "1\n"}, 11000},
		"escaped": {"0::/a b\n", "31 23 0:28 / /sys/fs/cgroup/c\\040d rw - cgroup2 cgroup2 rw\n",
			map[string]string{"c d/a b/memory.max": "12000\n"}, 12000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := fstest.MapFS{"proc/self/cgroup": {Data: []byte(test.cgroup)},
				"proc/self/mountinfo": {Data: []byte(test.mounts)}}
			for path, text := range test.files {
				root["sys/fs/cgroup/"+path] = &fstest.MapFile{Data: []byte(text)}
			}
			limit := groupLimit(root)
			require.Equal(t, test.want, limit.Bytes)
			require.Equal(t, test.want > 0, limit.Owner == groupOwner)
		})
	}
	require.Positive(t, smaller(Limit{}, Limit{3, "x"}).Bytes)
	require.Equal(t, int64(2), smaller(Limit{2, "y"}, Limit{3, "x"}).Bytes)
}
