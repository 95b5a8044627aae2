package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference"
)

const (
	checksumHeader = "X-Checksum"
	updateTimeout  = 30 * time.Minute // for an update of the weights
	updateStall    = time.Minute      // for a client to send some bytes of it
)

// update takes new weights from the body, or from a file of this machine for a
// client that is on it too.
func (s *Server) update(ctx *fasthttp.RequestCtx) error {
	args := ctx.QueryArgs()
	version, err := strconv.ParseInt(string(args.Peek("version")), 10, 64)
	if err != nil || version < 1 {
		return invalid("version", "version %.40q, expected an integer of at least 1", args.Peek("version"))
	}
	if !s.updating.TryLock() {
		return &failure{status: fasthttp.StatusConflict, kind: "update_in_progress", code: "update_in_progress", retry: true,
			message: "other weights are being read, expected one update at a time"}
	}
	defer s.updating.Unlock()
	deadline := time.Now().Add(updateTimeout)
	updateCtx, cancel := context.WithDeadline(s.ctx, deadline)
	defer cancel()
	start := time.Now()
	var checksum string
	if args.Has("path") {
		checksum, err = s.updateFile(updateCtx, ctx, version, string(args.Peek("path")))
	} else {
		checksum, err = s.updateStream(updateCtx, ctx, version, deadline)
	}
	if err != nil {
		return err
	}
	s.served.update(time.Since(start))
	writeJSON(ctx, fasthttp.StatusOK, map[string]any{"version": version, "checksum": checksum})
	return nil
}

func (s *Server) updateFile(updateCtx context.Context, ctx *fasthttp.RequestCtx, version int64, path string) (string, error) {
	if !ctx.RemoteIP().IsLoopback() {
		return "", &failure{status: fasthttp.StatusForbidden, kind: invalidRequest, param: "path",
			message: "a path is taken from clients on this machine only, expected the weights as body"}
	}
	if !filepath.IsAbs(path) {
		return "", invalid("path", "path %.200q, expected an absolute one", path)
	}
	watched, stop := updateCtx, func() {}
	if c, ok := ctx.Conn().(*conn); ok && ctx.Request.Header.ContentLength() <= 0 {
		watched, stop = c.watch(updateCtx)
	}
	defer stop()
	checksum, err := s.backend.UpdateFile(watched, version, path)
	if err != nil {
		return "", fmt.Errorf("update to version %d: %w", version, err)
	}
	return checksum, nil
}

func (s *Server) updateStream(updateCtx context.Context, ctx *fasthttp.RequestCtx, version int64, deadline time.Time) (string, error) {
	size := int64(ctx.Request.Header.ContentLength())
	if !ctx.Request.IsBodyStream() || size == 0 {
		return "", invalid("", "no body, expected a safetensors file")
	}
	body := &checkedBody{src: requestBody(ctx), size: max(size, -1), before: func() error {
		next := time.Now().Add(updateStall)
		if deadline.Before(next) {
			next = deadline
		}
		return errors.Join(context.Cause(updateCtx), ctx.Conn().SetReadDeadline(next))
	}, want: func() string {
		if query := ctx.QueryArgs().Peek(checksumHeader); len(query) > 0 {
			return string(query)
		}
		return string(ctx.Request.Header.Peek(checksumHeader)) // a trailer is there when the body has ended
	}}
	body.sum.Reset()
	checksum, err := s.backend.Update(updateCtx, version, body, body.size)
	switch {
	case body.err != nil && body.err != io.EOF: // whatever the backend made of it
		return "", fmt.Errorf("update to version %d: %w", version, body.err)
	case err != nil:
		return "", fmt.Errorf("update to version %d: %w", version, err)
	case body.err == nil:
		return "", fmt.Errorf("update to version %d: the backend did not read all of the body", version)
	}
	return checksum, nil
}

// checkedBody is a body whose last byte is given out only when all of it has
// come and its checksum is right: nobody can take a bad one for a whole one.
type checkedBody struct {
	src    io.Reader
	size   int64         // -1 where it is unknown
	before func() error  // called before each read
	want   func() string // the checksum, empty for none; called at the end
	sum    xxhash.Digest
	read   int64
	last   byte // was read and not given out
	whole  bool // all has come, and it is right
	err    error
}

// Read is io.Reader's.
func (b *checkedBody) Read(p []byte) (int, error) {
	for len(p) > 0 && b.err == nil {
		if b.whole {
			p[0] = b.last
			b.err = io.EOF
			return 1, io.EOF
		}
		if n := b.step(p); n > 0 {
			return n, nil
		}
	}
	return 0, b.err
}

// step reads into p behind the byte that was kept and keeps the new last one.
func (b *checkedBody) step(p []byte) int {
	var two [2]byte
	if len(p) == 1 && b.read > 0 { // no room for a byte behind the one that was kept
		defer func() { p[0] = two[0] }()
		return b.into(two[:])
	}
	return b.into(p)
}

func (b *checkedBody) into(p []byte) int {
	kept := int(min(b.read, 1))
	err := b.before()
	n := 0
	if err == nil {
		n, err = b.src.Read(p[kept:])
	}
	_, _ = b.sum.Write(p[kept : kept+n]) // never fails
	b.read += int64(n)
	if kept == 1 {
		p[0] = b.last
	}
	n += kept
	if n > 0 {
		b.last = p[n-1]
	}
	switch {
	case err == io.EOF:
		if b.err = b.verify(); b.err == nil && n == 0 {
			b.err = io.EOF
		}
		b.whole = b.err == nil
	case err != nil:
		b.err = invalid("", "body ends after %d bytes: %v", b.read, err)
	}
	return max(n-1, 0)
}

// verify checks a body that has ended.
func (b *checkedBody) verify() error {
	if b.size >= 0 && b.read != b.size {
		return invalid("", "body of %d bytes, expected %d", b.read, b.size)
	}
	want := b.want()
	if want == "" {
		return nil
	}
	if got := fmt.Sprintf("%016x", b.sum.Sum64()); !strings.EqualFold(got, want) {
		return &failure{status: fasthttp.StatusBadRequest, kind: invalidRequest, code: "checksum_mismatch", param: checksumHeader,
			message: fmt.Sprintf("body of %d bytes has checksum %s, expected %.40q", b.read, got, want)}
	}
	return nil
}

// held tells which weights serve, and which process it is that says so.
func (s *Server) held(ctx *fasthttp.RequestCtx) error {
	version, checksum := s.backend.Held()
	writeJSON(ctx, fasthttp.StatusOK, map[string]any{"version": version, "checksum": checksum, "boot": s.boot})
	return nil
}

// drained stops new requests and tells how many run still.
func (s *Server) drained(ctx *fasthttp.RequestCtx) error {
	s.drain()
	writeJSON(ctx, fasthttp.StatusOK, map[string]any{"running": s.running()})
	return nil
}

// ready is an error where a request would be refused whatever it asks.
func (s *Server) ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, checksum := s.backend.Held(); checksum == "" {
		return fmt.Errorf("no weights yet: %w", inference.ErrClosed)
	}
	if s.draining {
		return fmt.Errorf("draining: %w", inference.ErrClosed)
	}
	return nil
}
