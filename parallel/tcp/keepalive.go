package tcp

import (
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/easyrl/easyrl/parallel"
)

// A receiver that has waited for long asks the sender for a keepalive, on the connection that they
// share. Without it, bytes that are lost on the way could make both wait for each other forever. The
// keepalive consists of frames like any others, so it does not open if something before it is missing.
// It is long enough to end the receiver's wait for the rest of a frame. The sender answers from a
// goroutine of its own, when it has the stream's turn, so its keepalive never splits a message.
const (
	opKeepalive      = parallel.Op(math.MaxUint32) // of requests and keepalives
	checksPerSilence = 4                           // how often checkStreams looks, per Config.Silence
)

// checkStreams watches the streams on which this rank waits for messages, until the world ends. It is
// the only one that sends on them.
func (w *World) checkStreams() {
	type waiting struct {
		frames uint32
		checks int // in a row that have found the stream at this frame
	}
	seen := map[*stream]waiting{}
	every := time.NewTicker(w.cfg.Silence / checksPerSilence)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-w.life.Done():
			return
		}
		for r, s := range w.awaiting() {
			last, frames := seen[s], s.frames.Load()
			if last.frames != frames || last.checks == 0 {
				seen[s] = waiting{frames, 1}
				continue
			}
			last.checks++
			seen[s] = last
			switch {
			case last.checks == 2: // once for each frame: a second request could not be answered earlier
				request := newHeader(parallel.Label{Op: opKeepalive}, int(s.within.Load()))
				_ = s.conn.SetWriteDeadline(time.Now().Add(w.cfg.Silence)) // if it fails, so does sending
				_ = s.conn.send(request, nil, nil)                         // then no answer comes
			case last.checks > 2+checksPerSilence:
				w.fail(r.from, fmt.Errorf("no sign of life for %v on channel %s", w.cfg.Silence, r.channel), false)
			}
		}
	}
}

// awaiting returns the connected streams on which a message is awaited.
func (w *World) awaiting() map[route]*stream {
	w.mu.Lock()
	defer w.mu.Unlock()
	streams := map[route]*stream{}
	for r, s := range w.streams {
		if r.to == w.cfg.Rank && s.reading.Load() {
			streams[r] = s
		}
	}
	return streams
}

// answerKeepalives answers the requests of a stream's receiver until the connection ends.
func (w *World) answerKeepalives(s *stream, at parallel.Envelope) {
	for {
		label, length, err := s.conn.receiveHeader(nil)
		if errors.As(err, new(forged)) {
			w.fail(at.Peer, fmt.Errorf("%s: %w", at.In(), err), false)
		}
		if err != nil {
			return // the receiver has left, or its control connection says more
		}
		zeros := make([]byte, min(length, maxFrame))
		select {
		case s.turn <- struct{}{}:
		case <-w.life.Done():
			return
		}
		err = s.conn.SetWriteDeadline(time.Now().Add(w.cfg.Silence))
		if err == nil {
			err = s.conn.send(newHeader(label, len(zeros)), zeros, nil)
		}
		<-s.turn
		if errors.Is(err, os.ErrDeadlineExceeded) { // perhaps half of the frame is under way
			w.fail(at.Peer, fmt.Errorf("%s: takes no data for %v", at.In(), w.cfg.Silence), false)
		}
		if err != nil {
			return
		}
	}
}
