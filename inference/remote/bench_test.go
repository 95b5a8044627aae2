package remote

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference/server"
)

// sink discards the weights it gets.
type sink struct{ backend }

func (s *sink) Update(_ context.Context, version int64, r io.Reader, _ int64) (string, error) {
	_, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{r}, make([]byte, 1<<20))
	s.version = version
	_, sum := s.Held()
	return sum, err
}

type gigabyte struct{ fakeWeights }

func (gigabyte) WriteSafetensors(w io.Writer) error {
	chunk := make([]byte, 4<<20)
	for range 256 {
		if _, err := w.Write(chunk); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkPublish sends 1 GiB over loopback. Both ends and their checksums run in this
// process.
func BenchmarkPublish(b *testing.B) {
	s := &sink{}
	cfg := server.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	srv, err := server.New(cfg, s, nil)
	require.NoError(b, err)
	go func() { _ = srv.Serve() }()
	defer func() { require.NoError(b, srv.Close()) }()
	inst, err := Dial(b.Context(), Config{URL: fmt.Sprintf("http://%s", srv.Addr())})
	require.NoError(b, err)
	defer func() { _ = inst.Close() }()
	b.SetBytes(1 << 30)
	for version := int64(1); b.Loop(); version++ {
		_, err := inst.Publish(b.Context(), gigabyte{fakeWeights{version, 0}})
		require.NoError(b, err)
	}
}
