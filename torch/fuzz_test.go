package torch

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/torch/wire"
)

// script is a rank that says what a fuzzer wants. Each byte is an action; some take the
// bytes that follow.
type script struct {
	conn net.Conn
	data []byte
	in   chan wire.Frame
}

func (s *script) next() byte {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return b
}

// play connects as rank 0 and acts until the script or the connection ends.
func (s *script) play() {
	defer s.conn.Close() //nolint:errcheck // a pipe
	go func() {
		defer close(s.in)
		for {
			f, err := wire.Read(s.conn, wire.AtMost(wire.MaxArrays))
			if err != nil {
				return
			}
			if f.Kind != "beat" {
				s.in <- f
			}
		}
	}()
	err := wire.Send(s.conn, wire.Hello{Token: "secret", World: 1}, wire.Body{})
	for err == nil && len(s.data) > 0 {
		err = s.act(s.next())
	}
	for range s.in { // until the trainer has closed the connection
		_ = s.conn.Close()
	}
}

func (s *script) act(action byte) error {
	var body wire.Body
	number := func() int { return int(int8(s.next())) }
	norm := float64(number())
	switch action % 16 {
	default:
		return s.answer()
	case 7:
		return wire.Send(s.conn, wire.Failed{Error: "full", OutOfMemory: []int64{int64(number()), int64(number())}},
			body)
	case 8:
		n := int(s.next())
		body.AddFloat32s("policy", make([]float32, n))
		body.AddFloat32s("entropy", make([]float32, n))
		return wire.Send(s.conn, wire.Logprobs{ID: int64(number())}, body)
	case 9:
		return wire.Send(s.conn, wire.Passed{ID: int64(number())}, body)
	case 10:
		return wire.Send(s.conn, wire.Stepped{Update: number(), Norm: &norm, Finite: s.next()%2 == 0}, body)
	case 11:
		return wire.Send(s.conn, wire.Failed{Error: string(s.data)}, body)
	case 12:
		n := min(int(s.next()), len(s.data))
		_, err := s.conn.Write(s.data[:n])
		s.data = s.data[n:]
		return err
	case 13:
		<-time.After(time.Duration(s.next()) * time.Second)
		return nil
	case 14:
		return wire.Send(s.conn, wire.Ready{Mode: []string{wire.Free, wire.Lockstep, "other"}[s.next()%3],
			MaxPositions: number()}, body)
	case 15:
		return wire.Send(s.conn, wire.Beat{}, body)
	}
}

// answer answers a message as a rank should.
func (s *script) answer() error {
	f, open := <-s.in
	if !open {
		return net.ErrClosed
	}
	var body wire.Body
	var forward wire.Forward
	var backward wire.Backward
	var step wire.Step
	var score wire.Score
	norm := 1.0
	n := len(f.Int32s("targets"))
	switch {
	case f.Kind == "welcome":
		return wire.Send(s.conn, wire.Ready{Mode: wire.Free, MaxPositions: 100}, body)
	case f.Decode(&forward) == nil:
		body.AddFloat32s("policy", make([]float32, n))
		body.AddFloat32s("entropy", make([]float32, n))
		return wire.Send(s.conn, wire.Logprobs{ID: forward.ID}, body)
	case f.Decode(&backward) == nil:
		return wire.Send(s.conn, wire.Passed{ID: backward.ID}, body)
	case f.Decode(&step) == nil:
		return wire.Send(s.conn, wire.Stepped{Update: step.Update, Norm: &norm, Finite: true, WeightsFinite: true},
			body)
	case f.Decode(&score) == nil:
		body.AddFloat32s("policy", make([]float32, n))
		return wire.Send(s.conn, wire.Logprobs{ID: score.ID}, body)
	}
	return wire.Send(s.conn, wire.Written{}, body)
}

// Whatever a rank sends, a session works or ends with an error, without a panic or a hang.
func FuzzSession(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("\x00\x08\x00\x04\x01"))
	f.Add([]byte("\x00\x00\x00\x09\x00\x07"))
	f.Add([]byte("\x00\x00\x00\x0a\x01\x01\x00"))
	f.Add([]byte("\x00\x00\x07\x02\x01\x00\x00\x07\x03\x04\x00\x00"))
	f.Add([]byte("\x0e\x00\x00\x00\x0d\x00\xff"))
	f.Add([]byte("\x0c\x00\x10ERLT\x01\x00\x00\x00\xff\xff\x00\x00\xff\xff\xff\x3f"))
	f.Add([]byte("\x00\x0b\x00out of memory\nat line 2\x00\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		into := t.TempDir()
		data = data[:min(len(data), 200)]
		synctest.Test(t, func(t *testing.T) {
			cfg := Config{Token: "secret", Model: into, Dir: into, Temperature: 1}
			cfg.Warn = func(format string, args ...any) { require.NotContains(t, args[0].(error).Error(), "\n") }
			p := newPipes()
			var running sync.WaitGroup
			running.Go(func() {
				for {
					c, err := p.dial(t.Context())
					if err != nil {
						return
					}
					(&script{conn: c, data: data, in: make(chan wire.Frame, 1000)}).play()
				}
			})
			exercise(t, cfg, p)
			_ = p.Close()
			running.Wait()
		})
	})
}

// exercise uses a session until an error.
func exercise(t *testing.T, cfg Config, p *pipes) {
	s, err := open(t.Context(), cfg, p)
	if err != nil {
		require.NotContains(t, err.Error(), "\n")
		return
	}
	defer s.Close()
	for n := 1; n <= 2 && err == nil; n++ {
		for _, l := range batch(n)[:2] {
			err = s.Pass(t.Context(), l, func(lp backend.Outputs) (backend.Values, error) { return lp.Values, nil })
			if err != nil {
				break
			}
		}
		if err == nil {
			_, err = s.Score(t.Context(), batch(n)[0])
		}
		if err == nil {
			_, err = s.Step(t.Context(), backend.Update{Number: n, Scale: 1, LR: 1})
		}
		if err == nil {
			err = s.Poll(t.Context())
		}
	}
	if err == nil {
		dir := filepath.Join(cfg.Dir, "weights")
		require.NoError(t, os.MkdirAll(dir, 0o755))
		err = s.Write(t.Context(), wire.Weights, dir)
	}
	if err == nil {
		_, err = s.Capture(t.Context())
	}
	if err != nil {
		require.NotContains(t, err.Error(), "\n")
	}
}
