package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/arch"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

// bench holds the settings and the state of a measurement.
type bench struct {
	bytes, instances, rounds, threads int

	dir     string
	dev     npu.Device
	weights *model.Weights
	from    []float32       // source of the plain copy, as long as the weights
	to      []float32       // target of the plain copy
	version int64           // last published
	files   []remote.Server // clients that publish by file
	streams []remote.Server // clients that publish by stream
	servers []*exec.Cmd

	first time.Duration              // of the first publish of the file
	times map[string][]time.Duration // of each round, by kind
}

// config returns the config.json of a decoder with about params parameters.
func config(params int) string {
	const vocab, hidden, ffn = 8192, 1024, 2816
	layers := max(1, (params-vocab*hidden)/(4*hidden*hidden+3*hidden*ffn))
	return fmt.Sprintf(
		`{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":%d,"intermediate_size":%d,
		"num_hidden_layers":%d,"num_attention_heads":16,"num_key_value_heads":16,"head_dim":64,"vocab_size":%d,
		"max_position_embeddings":128,"rms_norm_eps":1e-5,"rope_theta":10000,"hidden_act":"silu",`+
			`"tie_word_embeddings":true,
		"initializer_range":0.02}`, hidden, ffn, layers, vocab)
}

// open builds easyrl, writes the model, starts the servers and connects to them. The caller
// calls close, also on errors.
func (b *bench) open(ctx context.Context) (err error) {
	b.times = map[string][]time.Duration{}
	if b.dir, err = os.MkdirTemp("", "easyrl-publish-"); err != nil {
		return err
	}
	binary := filepath.Join(b.dir, "easyrl")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/easyrl/easyrl/cmd/easyrl")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build easyrl: %w: %s", err, out)
	}
	if b.dev, err = cpu.Open(npu.FP32, 0); err != nil {
		return err
	}
	if err := b.makeModel(); err != nil {
		return err
	}
	store, err := publish.NewStore(filepath.Join(b.dir, "weights"))
	if err != nil {
		return err
	}
	for range b.instances {
		port, err := b.serve(ctx, binary)
		if err != nil {
			return err
		}
		// A client treats LOCALHOST as a remote machine.
		for host, list := range map[string]*[]remote.Server{"127.0.0.1": &b.files, "LOCALHOST": &b.streams} {
			inst, err := remote.Dial(ctx,
				remote.Config{URL: "http://" + host + ":" + port, Kind: remote.EasyRL, Store: store})
			if err != nil {
				return err
			}
			*list = append(*list, inst)
		}
	}
	return nil
}

// makeModel draws the weights, writes the model folder and allocates the buffers of copy.
func (b *bench) makeModel() error {
	text := config(b.bytes / 4)
	shape, err := arch.ParseConfig([]byte(text))
	if err != nil {
		return err
	}
	if b.weights, err = model.NewWeights(b.dev, shape, npu.Weights); err != nil {
		return err
	}
	if err := b.weights.Init(1); err != nil {
		return err
	}
	n := int(b.weights.Bytes() / 4)
	buffer, err := b.dev.Alloc(npu.Float32, 2*n, npu.Activations)
	if err != nil {
		return err
	}
	b.from, b.to = buffer.Float32s()[:n], buffer.Float32s()[n:]
	return errors.Join(
		os.WriteFile(filepath.Join(b.dir, "config.json"), []byte(text), 0o600),
		checkpoint.WriteFile(filepath.Join(b.dir, "model.safetensors"), b.weights.Sources(), nil))
}

// serve starts a server and returns its port.
func (b *bench) serve(ctx context.Context, binary string) (port string, err error) {
	cmd := exec.CommandContext(ctx, binary, "serve", "-model", b.dir, "-listen", "127.0.0.1:0", "-max-running", "1",
		"-threads", fmt.Sprint(b.threads))
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	b.servers = append(b.servers, cmd)
	address := regexp.MustCompile(`at http://127\.0\.0\.1:(\d+)`)
	var text strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if m := address.FindStringSubmatch(lines.Text()); m != nil {
			go io.Copy(io.Discard, stderr) //nolint:errcheck // ends with the server
			return m[1], nil
		}
		text.WriteString(lines.Text() + "; ")
	}
	return "", fmt.Errorf("easyrl serve: %s, expected its address", text.String())
}

// close stops the servers and removes the files.
func (b *bench) close() {
	for _, cmd := range b.servers {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}
	_ = os.RemoveAll(b.dir)
}

// measure alternates between the kinds, so that all see the same load from other
// processes. The first round touches fresh memory, so measure keeps only its time of
// the file, in first.
func (b *bench) measure(ctx context.Context) (err error) {
	kinds := []struct {
		name string
		do   func() error
	}{
		{"copy", func() error { b.copy(); return nil }},
		{"file", func() error { return b.publish(ctx, b.files) }},
		{"stream", func() error { return b.publish(ctx, b.streams[:1]) }},
		{"streams", func() error { return b.publish(ctx, b.streams) }},
	}
	for round := range b.rounds + 1 {
		for _, k := range kinds {
			start := time.Now()
			if err := k.do(); err != nil {
				return err
			}
			switch took := time.Since(start); {
			case round > 0:
				b.times[k.name] = append(b.times[k.name], took)
			case k.name == "file":
				b.first = took
			}
		}
	}
	return nil
}

// copy copies as many bytes as the weights have, split among the cores.
func (b *bench) copy() {
	var group sync.WaitGroup
	cores := runtime.GOMAXPROCS(0)
	for i := range cores {
		lo, hi := len(b.from)*i/cores, len(b.from)*(i+1)/cores
		group.Go(func() { copy(b.to[lo:hi], b.from[lo:hi]) })
	}
	group.Wait()
}

// publish sends the instances a new version, as after a step.
func (b *bench) publish(ctx context.Context, to []remote.Server) error {
	b.version++
	w := model.NewSnapshot(b.weights, b.version)
	group := pool.New().WithContext(ctx).WithCancelOnError().WithFirstError()
	for _, inst := range to {
		group.Go(func(ctx context.Context) error {
			_, err := inst.Publish(ctx, w)
			return err
		})
	}
	return group.Wait()
}
