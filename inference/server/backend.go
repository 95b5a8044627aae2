package server

import (
	"context"
	"encoding/json"
	"io"

	"github.com/easyrl/easyrl/inference"
)

// Backend is what a server samples with. Its methods may be called
// concurrently. ID is the model's name as clients give it.
type Backend interface {
	ID() string
	Capacity() int
	// Generate is inference.Instance's: errors wrap inference.ErrInvalid,
	// ErrStale and ErrClosed.
	Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error)
	inference.Streamer
	Info() Info
	Load() Load
	// Held is the version and the checksum of the weights that serve; the
	// checksum is empty where there are none yet.
	Held() (version int64, checksum string)
	// Update reads a safetensors file of size bytes (-1 unknown) up to io.EOF and
	// makes it the weights, at once or not at all; what runs under older weights
	// ends with inference.ErrStale. It returns the checksum of what now serves.
	// An error of r means that the file must not be used.
	Update(ctx context.Context, version int64, r io.Reader, size int64) (checksum string, err error)
	// UpdateFile is Update from a file of this machine.
	UpdateFile(ctx context.Context, version int64, path string) (checksum string, err error)
	Close() error
}

// Info is what does not change about a backend's model.
type Info struct {
	Context int    // positions of prompt and response at most
	Vocab   int    // token ids are below it
	Created int64  // Unix seconds
	Root    string // folder, where there is one
	// Config names what is computed with the weights, and is equal for servers that
	// compute the same; empty where that is not known.
	Config string
	// Layout is panels.Layout where updates may be in it; empty where they are of rows
	// only.
	Layout string
}

// Load is what a backend does now and has done since it started.
type Load struct {
	Running     int   // responses, now
	Waiting     int   // responses, now
	FreePages   int   // of the key-value cache, now
	CachePages  int   // in all
	Preemptions int64 // since the start, as what follows
	PromptTokens,
	Tokens int64
}

// Text is a model's tokenizer and chat template. Its methods may be called
// concurrently.
type Text interface {
	// Encode returns the ids of text as the start of a sequence.
	Encode(text string) ([]int32, error)
	// Decode returns the text of ids, without special tokens.
	Decode(ids []int32) string
	// Piece is one token as text; one that is special, which no text has, by its
	// name.
	Piece(id int32) (text string, special bool)
	// Chat returns the ids of a conversation with the generation prompt. messages
	// and tools are OpenAI's; tools may be nil. Errors wrap inference.ErrInvalid.
	Chat(messages, tools json.RawMessage) ([]int32, error)
	// EOS are the tokens that end a response.
	EOS() []int32
}
