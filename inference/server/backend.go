package server

import (
	"context"
	"io"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/api"
	"github.com/easyrl/easyrl/npu"
)

// Backend samples for a server. Its methods may be called concurrently.
type Backend interface {
	// ID returns the model's name, as clients know it.
	ID() string
	// Capacity returns the number of responses that the backend samples at once.
	Capacity() int
	// Generate works like inference.Instance.Generate. Errors wrap inference.ErrInvalid,
	// ErrStale and ErrClosed.
	Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error)
	inference.Streamer
	Info() Info
	Load() Load
	// Held returns the version and checksum of the current weights. The checksum is empty
	// before the first weights.
	Held() (version int64, checksum string)
	// Update reads a safetensors file of size bytes (-1 if unknown) up to io.EOF, replaces the
	// weights by its content and returns their checksum. If r returns an error other than io.EOF,
	// the old weights stay. Requests that run under older weights end with inference.ErrStale. The
	// server makes one call of Update or UpdateFile at a time.
	Update(ctx context.Context, version int64, r io.Reader, size int64) (checksum string, err error)
	// UpdateFile is like Update but reads a file on this machine.
	UpdateFile(ctx context.Context, version int64, path string) (checksum string, err error)
	Close() error
}

// Info describes a backend's model. It does not change once the backend serves.
type Info struct {
	Context int    // maximum number of positions of prompt and response
	Vocab   int    // number of token IDs; they start at 0
	Created int64  // Unix time in seconds
	Root    string // the model's folder; may be empty
	// Config is a fingerprint of the computation, apart from the weights: servers that compute the
	// same function of the weights have the same fingerprint. Empty if unknown.
	Config string
	Cores  int // number of cores that sample; 0 if unknown
	// Layout is model.PanelLayout if updates may use it, or empty if they must use rows.
	Layout string
	// Simulated means that tokens and log-probabilities do not come from the weights.
	Simulated bool
	Numerics  npu.Identity // arithmetic of the backend; zero if it is simulated
}

// Load is the current load of a backend and its counters since the start.
type Load struct {
	Running      int   // responses being sampled
	Waiting      int   // responses that wait to be sampled
	FreePages    int   // free pages of the key-value cache
	CachePages   int   // pages of the key-value cache; 0 if there is none
	Preemptions  int64 // responses preempted since the start
	PromptTokens int64 // prompt tokens processed since the start
	Tokens       int64 // tokens sampled since the start
}

// Text is a model's tokenizer and chat template.
type Text = api.Text
