package server

import (
	"context"
	"io"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/api"
)

// Backend samples for a server. Its methods may be called concurrently. ID returns the
// model's name as clients give it.
type Backend interface {
	ID() string
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
	// Update reads a safetensors file of size bytes (-1 if unknown) up to io.EOF and
	// replaces the weights atomically. Requests running under older weights end with
	// inference.ErrStale. It returns the checksum of the new weights. If r returns an
	// error, Update must not use the file.
	Update(ctx context.Context, version int64, r io.Reader, size int64) (checksum string, err error)
	// UpdateFile is like Update but reads a file on this machine.
	UpdateFile(ctx context.Context, version int64, path string) (checksum string, err error)
	Close() error
}

// Info describes a backend's model and does not change.
type Info struct {
	Context int    // maximum number of positions of prompt and response
	Vocab   int    // token IDs are smaller
	Created int64  // Unix seconds
	Root    string // folder; may be empty
	// Config is a fingerprint of what is computed with the weights: servers that compute
	// the same have the same fingerprint. Empty if unknown.
	Config string
	Cores  int // that sample; 0 if unknown
	// Layout is model.PanelLayout if updates may use it, or empty if they must use rows.
	Layout string
	// Simulated means that tokens and log-probabilities do not come from the weights.
	Simulated bool
}

// Load is the current load of a backend and its counters since the start.
type Load struct {
	Running     int   // responses being sampled
	Waiting     int   // responses waiting
	FreePages   int   // of the key-value cache
	CachePages  int   // all pages
	Preemptions int64 // since the start, like the fields below
	PromptTokens,
	Tokens int64
}

// Text is a model's tokenizer and chat template.
type Text = api.Text
