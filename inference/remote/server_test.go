package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/inference/server"
	"github.com/easyrl/easyrl/inference/simulate"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/rollout"
)

// backend samples for easyrl's own server. Responses depend only on the weights, the
// prompt, the seed and the response's index.
type backend struct {
	mu      sync.Mutex
	version int64
	value   float32
	wrong   bool // serves values other than those sent
	paths   int  // updates by file

	numerics npu.Identity
}

func (b *backend) ID() string    { return "tiny" }
func (b *backend) Capacity() int { return 5 }
func (b *backend) Close() error  { return nil }
func (b *backend) Info() server.Info {
	return server.Info{Context: 64, Vocab: 1000, Numerics: b.numerics}
}
func (b *backend) Load() server.Load { return server.Load{} }

func (b *backend) Held() (version int64, checksum string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.version, fakeWeights{value: b.value}.Checksum()
}

func (b *backend) Update(_ context.Context, version int64, r io.Reader, _ int64) (string, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return "", err
	}
	value, err := readFake(data)
	if err != nil {
		return "", err
	}
	if b.wrong {
		value++
	}
	b.mu.Lock()
	b.version, b.value = version, value
	b.mu.Unlock()
	_, sum := b.Held()
	return sum, nil
}

func (b *backend) UpdateFile(ctx context.Context, version int64, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	b.paths++
	return b.Update(ctx, version, f, -1)
}

func (b *backend) Generate(_ context.Context, req inference.Request) ([]inference.Completion, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if req.Version != 0 && req.Version != b.version {
		return nil, fmt.Errorf("request of version %d: %w", req.Version, inference.ErrStale)
	}
	// logprob returns any float32 of at most 0 and more than -9999, including subnormal
	// ones.
	logprob := func(parts ...any) float32 {
		h := fnv.New64a()
		fmt.Fprint(h, append(parts, b.value, req.PromptIDs, req.Seed)...)
		l := math.Float32frombits(uint32(h.Sum64()>>32) | 1<<31)
		if !(l > noLogprob) {
			return -1.1
		}
		return l
	}
	out := make([]inference.Completion, req.N)
	for i := range out {
		c := inference.Completion{Finish: rollout.Length, Version: b.version,
			Checksum: fakeWeights{value: b.value}.Checksum()}
		for j := range req.Sampling.MaxTokens {
			l := logprob(i, j)
			id := int32(math.Float32bits(l) % 1000)
			c.IDs, c.Logprobs = append(c.IDs, id), append(c.Logprobs, l)
			if req.TopLogprobs > 0 {
				c.Top = append(c.Top, []inference.TokenLogprob{{ID: id, Logprob: l},
					{ID: (id + 1) % 1000, Logprob: l - 1}}[:req.TopLogprobs])
			}
		}
		for j := range req.PromptIDs {
			if req.PromptLogprobs {
				c.PromptLogprobs = append(c.PromptLogprobs, logprob("prompt", j))
			}
		}
		if req.PromptLogprobs {
			c.PromptLogprobs[0] = 0
		}
		out[i] = c
	}
	return out, nil
}

func (b *backend) Stream(ctx context.Context, req inference.Request, emit func(inference.Delta)) (
	[]inference.Completion, error) {
	out, err := b.Generate(ctx, req)
	for i := range out {
		emit(inference.Delta{Index: i, IDs: out[i].IDs, Logprobs: out[i].Logprobs})
	}
	return out, err
}

// serving starts easyrl's server over b and returns a client of it.
func serving(t *testing.T, b *backend, store *publish.Store) Server {
	t.Helper()
	return servingBackend(t, b, store)
}

func servingBackend(t *testing.T, b server.Backend, store *publish.Store) Server {
	t.Helper()
	inst, err := Dial(t.Context(), Config{URL: listening(t, b), Token: "secret", Store: store})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inst.Close()) })
	return inst
}

// listening starts easyrl's server over b and returns its URL.
func listening(t *testing.T, b server.Backend) string {
	t.Helper()
	cfg := server.DefaultConfig()
	cfg.Listen, cfg.Token = "127.0.0.1:0", "secret"
	s, err := server.New(cfg, b, nil)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Serve() }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		<-done
	})
	return fmt.Sprintf("http://%s", s.Addr())
}

// A trainer refuses a server of other numerics or of another version of them, and such a server refuses the trainer's
// weights, sent or read from a file. A trainer or a server without numerics takes any.
func TestServerOfOtherNumerics(t *testing.T) {
	t.Parallel()
	older := npu.Identity{Name: "float32", Version: npu.NumericsVersion - 1}
	for name, server := range map[string]npu.Identity{"bf16": npu.BF16.Identity(), "older": older} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &backend{numerics: server}
			cfg := Config{URL: listening(t, b), Token: "secret", Numerics: npu.FP32.Identity()}
			_, err := Dial(t.Context(), cfg)
			require.EqualError(t, err, fmt.Sprintf("instance %s: /v1/weights: the server computes in %q, expected %q, "+
				"as the trainer", cfg.URL, server, npu.FP32.Identity()))
			cfg.Numerics = npu.Identity{}
			inst, err := Dial(t.Context(), cfg)
			require.NoError(t, err)
			_, err = inst.Publish(t.Context(), fakeWeights{version: 1})
			require.NoError(t, err)
			require.NoError(t, inst.Close())
		})
	}
	store, err := publish.NewStore(t.TempDir())
	require.NoError(t, err)
	for name, store := range map[string]*publish.Store{"sent": nil, "from a file": store} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &backend{numerics: npu.BF16.Identity()}
			cfg := Config{URL: listening(t, b), Token: "secret", Store: store, Numerics: npu.BF16.Identity()}
			inst, err := Dial(t.Context(), cfg)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, inst.Close()) })
			_, err = inst.Publish(t.Context(), fakeWeights{version: 1, value: 1})
			require.NoError(t, err)
			inst.(*easyrl).cfg.Numerics = npu.FP32.Identity() // as if another server had replaced this one
			_, err = inst.Publish(t.Context(), fakeWeights{version: 2, value: 2})
			require.ErrorContains(t, err, fmt.Sprintf("status 409: the weights are of a trainer that computes in %q, "+
				"expected %q, as this server", npu.FP32.Identity(), npu.BF16.Identity()))
			held, _ := b.Held()
			require.EqualValues(t, 1, held)
		})
	}
}

// A server that reports no numerics is an older one, which computes in float32.
func TestServerWithoutNumerics(t *testing.T) {
	t.Parallel()
	cfg := Config{URL: listening(t, &backend{}), Token: "secret", Numerics: npu.FP32.Identity()}
	inst, err := Dial(t.Context(), cfg)
	require.NoError(t, err)
	require.NoError(t, inst.Close())
	cfg.Numerics = npu.BF16.Identity()
	_, err = Dial(t.Context(), cfg)
	require.ErrorContains(t, err, `the server computes in "float32 (version `)
}

// easyrl's own server preserves every bit.
func TestServer(t *testing.T) {
	t.Parallel()
	b := &backend{}
	inst := serving(t, b, nil)
	require.Equal(t, EasyRL, inst.Kind().Name)
	require.Equal(t, 5, inst.Capacity())
	require.NoError(t, inst.Probe(t.Context()))
	for version := int64(0); version < 3; version++ {
		if version > 0 {
			w := fakeWeights{version, float32(version)}
			sum, err := inst.Publish(t.Context(), w)
			require.NoError(t, err)
			require.Equal(t, w.Checksum(), sum)
		}
		for _, n := range []int{1, 7} {
			req := request(n)
			req.Version, req.PromptLogprobs, req.TopLogprobs, req.Sampling.MaxTokens = version, true, 2, 50
			want, err := b.Generate(t.Context(), req)
			require.NoError(t, err)
			got, err := inst.Generate(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, want, got)
			req.TopLogprobs, req.PromptLogprobs = 0, false
			want, err = b.Generate(t.Context(), req)
			require.NoError(t, err)
			got, err = inst.Generate(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
	req := request(1)
	req.Version = 1
	_, err := inst.Generate(t.Context(), req)
	require.ErrorIs(t, err, inference.ErrStale)
	req = request(1)
	req.PromptIDs[0] = 1000
	_, err = inst.Generate(t.Context(), req)
	require.ErrorIs(t, err, inference.ErrInvalid)
	require.Zero(t, b.paths)
}

func TestServerAcceptsWeights(t *testing.T) {
	t.Parallel()
	b := &backend{}
	store, err := publish.NewStore(t.TempDir())
	require.NoError(t, err)
	inst := serving(t, b, store)
	_, err = inst.Publish(t.Context(), fakeWeights{1, 1})
	require.NoError(t, err)
	require.Equal(t, 1, b.paths, "read from a file on this machine")

	b.wrong = true
	_, err = inst.Publish(t.Context(), fakeWeights{2, 2})
	require.ErrorContains(t, err, "server has checksum")
	b.wrong = false
	_, err = serving(t, b, nil).Publish(t.Context(), brokenWeights{fakeWeights{3, 3}})
	require.ErrorContains(t, err, "device lost")
	version, _ := b.Held()
	require.EqualValues(t, 2, version, "a partial stream is not applied")
	_, err = serving(t, b, nil).Publish(t.Context(), paddedWeights{fakeWeights{4, 4}})
	require.NoError(t, err)
}

// A server's log-probabilities are the trainer's, to the bit, unless it is simulated. An
// answer that does not identify its weights is an error.
func TestExactServers(t *testing.T) {
	t.Parallel()
	simulated, err := simulate.NewBackend("lengths=fixed:3,vocab=16,context=64", "x", nil)
	require.NoError(t, err)
	require.False(t, servingBackend(t, simulated, nil).(inference.Exact).Exact())
	require.True(t, serving(t, &backend{}, nil).(inference.Exact).Exact())
	_, err = servingBackend(t, nameless{&backend{}}, nil).Generate(t.Context(), request(2))
	require.ErrorContains(t, err, "POST /v1/completions: no weight_checksum")
}

// nameless answers without the checksum of its weights.
type nameless struct{ *backend }

func (b nameless) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
	out, err := b.backend.Generate(ctx, req)
	for i := range out {
		out[i].Checksum = ""
	}
	return out, err
}

// paddedWeights take 64 MiB, which need many writes.
type paddedWeights struct{ fakeWeights }

func (p paddedWeights) WriteSafetensors(w io.Writer) error {
	data := binary.LittleEndian.AppendUint32(make([]byte, 64<<20), math.Float32bits(p.value))
	for len(data) > 0 {
		n := min(len(data), 100_003)
		if _, err := w.Write(data[:n]); err != nil {
			return errors.Join(err, io.ErrClosedPipe)
		}
		data = data[n:]
	}
	return nil
}

func TestServerWrongToken(t *testing.T) {
	t.Parallel()
	inst := serving(t, &backend{}, nil)
	_, err := Dial(t.Context(), Config{URL: inst.ID(), Token: "guess"})
	require.ErrorContains(t, err, "status 401")
	require.False(t, strings.Contains(err.Error(), "guess"))
}
