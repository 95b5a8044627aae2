package engine

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/rollout"
)

const testVocab = 50

// fakeModel is a model whose next token is a hash of all tokens in the cache at
// the positions it reads, so that a wrong page, slot, position or version changes
// its samples. It also checks how the cache is used.
type fakeModel struct {
	t       testing.TB
	e       *Engine
	cells   []cell            // one per slot
	tables  map[int32][]int32 // pages by sequence
	version int64
	logits  []float32
	hashes  []uint64 // of each row of the last pass
	most    int      // maximum rows of a step
	failing error    // error of the next step
	full    error    // error of allocate
	nan     bool
	gate    chan struct{} // if set, each step receives from it
	closed  bool
}

type cell struct {
	token, position int32
	version         int64
}

type fakeWeights int64

func (w fakeWeights) Version() int64                   { return int64(w) }
func (w fakeWeights) Checksum() string                 { return fmt.Sprint("sum-", int64(w)) }
func (w fakeWeights) WriteSafetensors(io.Writer) error { return nil }

func (m *fakeModel) use(w inference.Weights) error {
	if w.Version() == 13 {
		return errors.New("different shape")
	}
	m.version = w.Version()
	return nil
}

func mix(h uint64, vals ...uint64) uint64 {
	for _, v := range vals {
		h = (h ^ v) * 0x9E3779B97F4A7C15
		h ^= h >> 29
	}
	return h
}

func (m *fakeModel) put(row []float32, h uint64) {
	row[0], row[1] = float32(h&0xffffff), float32(h>>24&0xffffff)
}

func (m *fakeModel) prefill(chunks []model.Chunk, want []int32) (npu.Buffer, error) {
	m.hashes = m.hashes[:0]
	for i, chunk := range chunks {
		slot := func(p int) int32 { return chunk.Pages[p/npu.PageSize]*npu.PageSize + int32(p%npu.PageSize) }
		h := mix(1, uint64(m.version))
		for p := range chunk.First {
			c := m.cells[slot(p)]
			require.Equal(m.t, cell{c.token, int32(p), m.version}, c, "position %d before a chunk", p)
			h = mix(h, uint64(c.token))
		}
		for j, token := range chunk.Tokens {
			at := slot(chunk.First + j)
			require.EqualValues(m.t, 1, m.e.loop.sched.pages.refs[at/npu.PageSize], "a written page has one holder")
			m.cells[at] = cell{token, int32(chunk.First + j), m.version}
			h = mix(h, uint64(token))
			m.hashes = append(m.hashes, h)
		}
		if i < len(want) {
			require.EqualValues(m.t, len(m.hashes)-1, want[i])
			m.put(m.logits[i*testVocab:], h)
		}
	}
	require.LessOrEqual(m.t, len(m.hashes), m.e.cfg.PrefillRows)
	return npu.HostBuffer(m.logits[:len(want)*testVocab]), nil
}

func (m *fakeModel) setPages(sequence int32, first int, pages []int32) {
	require.Less(m.t, int(sequence), m.e.cfg.MaxRunning)
	require.LessOrEqual(m.t, first, len(m.tables[sequence]), "no page is left out")
	m.tables[sequence] = append(m.tables[sequence][:first], pages...)
}

func (m *fakeModel) step(rows []model.Row, params []npu.SampleParams, sampled []int32, logp []float32) (
	npu.Buffer, error) {
	if m.gate != nil {
		<-m.gate
	}
	if m.failing != nil {
		return npu.Buffer{}, m.failing
	}
	m.most = max(m.most, len(rows))
	m.hashes = m.hashes[:0]
	sequences := map[int32]bool{}
	for _, r := range rows {
		require.EqualValues(m.t, 1, m.e.loop.sched.pages.refs[r.Slot/npu.PageSize], "a written page has one holder")
		require.False(m.t, sequences[r.Sequence], "each row has a sequence of its own")
		sequences[r.Sequence] = true
		m.cells[r.Slot] = cell{r.ID, r.Position, m.version}
	}
	for i, r := range rows {
		h := mix(1, uint64(m.version))
		for p := range r.Position + 1 {
			c := m.cells[m.tables[r.Sequence][p/npu.PageSize]*npu.PageSize+p%npu.PageSize]
			require.Equal(m.t, cell{c.token, p, m.version}, c, "row %d of %d", i, len(rows))
			h = mix(h, uint64(c.token))
		}
		m.hashes = append(m.hashes, h)
		m.put(m.logits[i*testVocab:], h)
	}
	logits := npu.HostBuffer(m.logits[:len(rows)*testVocab])
	return logits, m.sample(sampled, logp, logits, params)
}

func (m *fakeModel) allocate() error {
	if m.full != nil {
		return m.full
	}
	if m.cells == nil {
		m.cells, m.tables = make([]cell, m.e.cfg.CachePages*npu.PageSize), map[int32][]int32{}
	}
	return nil
}

func (m *fakeModel) release() error {
	if free := len(m.e.loop.sched.pages.free); free < m.e.cfg.CachePages {
		return fmt.Errorf("%d pages are free, expected all %d", free, m.e.cfg.CachePages)
	}
	m.cells, m.tables = nil, nil
	return nil
}

func (m *fakeModel) copyPage(dst, src int32) {
	copy(m.cells[dst*npu.PageSize:][:npu.PageSize], m.cells[src*npu.PageSize:][:npu.PageSize])
}

func (m *fakeModel) sample(ids []int32, logp []float32, logits npu.Buffer, params []npu.SampleParams) error {
	l := logits.Float32s()
	require.Len(m.t, l, len(ids)*testVocab)
	require.Len(m.t, params, len(ids))
	for i := range ids {
		ids[i], logp[i] = draw(uint64(l[i*testVocab])|uint64(l[i*testVocab+1])<<24, params[i])
		if m.nan {
			logp[i] /= 0
		}
	}
	return nil
}

func (m *fakeModel) score(logp []float32, rows, targets []int32, temperature float32) error {
	for i, row := range rows {
		logp[i] = scored(m.hashes[row], targets[i], temperature)
	}
	return nil
}

// scored returns the fake's log-probability of token id after a prefix with hash
// h.
func scored(h uint64, id int32, temperature float32) float32 {
	return -float32(mix(h, uint64(id), uint64(temperature*1024))%1000) / 100
}

func (m *fakeModel) logitsOf(dst []float32, rows []int32) error {
	for i, row := range rows {
		m.put(dst[i*testVocab:], m.hashes[row])
	}
	return nil
}

func (m *fakeModel) download(dst []float32, src npu.Buffer) error {
	copy(dst, src.Float32s())
	return nil
}

func (m *fakeModel) close() error { m.closed = true; return nil }

// draw is the fake's sampler; it uses the low 48 bits of the hash.
func draw(h uint64, p npu.SampleParams) (int32, float32) {
	h = mix(h&(1<<48-1), uint64(p.Uniform*(1<<24)), uint64(p.Temperature*1024))
	return int32(h % testVocab), -float32(h>>32%1000) / 100
}

// reference computes one response without an engine.
func reference(version int64, req inference.Request, index int, context int, tok Decoder) inference.Completion {
	h := mix(1, uint64(version))
	for _, token := range req.PromptIDs {
		h = mix(h, uint64(token))
	}
	out := inference.Completion{Version: version}
	if req.PromptLogprobs {
		out.PromptLogprobs = make([]float32, len(req.PromptIDs))
		p := mix(1, uint64(version))
		for i, token := range req.PromptIDs {
			if i > 0 {
				out.PromptLogprobs[i] = scored(p, token, 1)
			}
			p = mix(p, uint64(token))
		}
	}
	limit := min(req.Sampling.MaxTokens, context-len(req.PromptIDs))
	for {
		u := inference.Uniform(req.Seed, uint32(req.FirstIndex+index), uint32(len(out.IDs)))
		id, logp := draw(h, npu.SampleParams{Temperature: req.Sampling.Temperature, Uniform: u})
		out.IDs, out.Logprobs = append(out.IDs, id), append(out.Logprobs, logp)
		h = mix(h, uint64(id))
		if tok != nil {
			out.Text = tok.Decode(out.IDs)
		}
		for _, stop := range req.Sampling.StopIDs {
			if id == stop {
				out.Finish = rollout.Stop
			}
		}
		for _, stop := range req.Sampling.Stop {
			if strings.Contains(out.Text, stop) {
				out.Finish = rollout.Stop
			}
		}
		if out.Finish == "" && len(out.IDs) >= limit {
			out.Finish = rollout.Length
		}
		if out.Finish != "" {
			return out
		}
	}
}

func references(version int64, req inference.Request, context int, tok Decoder) []inference.Completion {
	out := make([]inference.Completion, req.N)
	for i := range out {
		out[i] = reference(version, req, i, context, tok)
		out[i].Checksum = fakeWeights(version).Checksum()
	}
	return out
}

// letters is a tokenizer with one letter per token; some tokens are two bytes
// long.
type letters struct{}

func (letters) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteRune('a' + id)
		if id%7 == 0 {
			b.WriteString("é")
		}
	}
	return b.String()
}

// newFake returns an engine over a fakeModel whose loop is not running yet.
func newFake(t testing.TB, cfg Config) (*Engine, *fakeModel) {
	t.Helper()
	cfg.ID = "e"
	require.NoError(t, cfg.Validate())
	cfg = cfg.withDefaults(256)
	m := &fakeModel{t: t, cells: make([]cell, cfg.CachePages*npu.PageSize), tables: map[int32][]int32{}}
	m.logits = make([]float32, max(cfg.PrefillRows, cfg.MaxRunning)*testVocab)
	m.e = newEngine(cfg, testVocab, letters{}, m)
	return m.e, m
}

// startFake is newFake with a running loop and version 1 published.
func startFake(t testing.TB, cfg Config) (*Engine, *fakeModel) {
	t.Helper()
	e, m := newFake(t, cfg)
	go e.run()
	sum, err := e.Publish(t.Context(), fakeWeights(1))
	require.NoError(t, err)
	require.Equal(t, "sum-1", sum)
	return e, m
}

// closeFake closes e and checks that all pages are free.
func closeFake(t testing.TB, e *Engine) {
	t.Helper()
	require.NoError(t, e.Close())
	require.Len(t, e.loop.sched.pages.free, e.cfg.CachePages, "all pages are free at the end")
	require.Zero(t, e.loop.sched.rows)
	require.Len(t, e.loop.sched.lanes, e.cfg.MaxRunning)
	require.Empty(t, e.loop.sched.running)
	require.True(t, e.loop.m.(*fakeModel).closed)
}

func prompt(n, salt int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(mix(uint64(salt), uint64(i)) % testVocab)
	}
	return ids
}

func request(length, n, maxTokens int) inference.Request {
	return inference.Request{
		PromptIDs: prompt(length, length), N: n, Seed: uint64(length*1000 + n),
		Sampling: inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: maxTokens},
	}
}
