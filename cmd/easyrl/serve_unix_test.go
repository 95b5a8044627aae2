//go:build unix

package main

import (
	"net/http"
	"regexp"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A signal ends a server in order.
func TestServeEndsWithASignal(t *testing.T) {
	dir := tinyRun(t)
	model := initTiny(t, dir, "m", 1)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := startProcess(t, nil, "serve", "-model", model, "-listen", "127.0.0.1:0")
		p.until("easyrl: serving ")
		root := regexp.MustCompile(`http://\S+`).FindString(p.log.String())
		a, code := askCompletions(t, root, "")
		require.Equal(t, http.StatusOK, code)
		requireGenerates(t, model, a)
		p.signal(sig)
		code, errs := p.end()
		require.Equal(t, exitDone, code, errs)
		require.Contains(t, errs, "no new requests")
	}
}
