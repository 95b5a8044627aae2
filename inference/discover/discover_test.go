package discover

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// recorder records the calls of changed in order.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

func (s *recorder) hear(endpoints []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.lines = append(s.lines, "error: "+err.Error())
		return
	}
	s.lines = append(s.lines, "now: "+strings.Join(endpoints, " "))
}

func (s *recorder) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	s.lines = nil
	return lines
}

func TestWatchFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "instances")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var got recorder
		done := make(chan error)
		go func() { done <- Watch(ctx, path, time.Second, check, got.hear) }()
		// A change written between two readings is read half a second later.
		pass := func(readings int) {
			<-time.After(time.Duration(readings) * time.Second)
			synctest.Wait()
		}
		<-time.After(time.Second / 2)
		first := got.take()
		require.Len(t, first, 1)
		require.Contains(t, first[0], "no such file", "reported once, not every second")
		pass(3)
		require.Empty(t, got.take())

		write("# ours\nhttp://b:8000\n\nvllm=http://a:8000\nhttp://b:8000\n")
		pass(1)
		require.Equal(t, []string{"now: http://b:8000 vllm=http://a:8000"}, got.take(),
			"the first reading takes effect at once")

		write("")
		pass(1)
		write("http://b:8000\nvllm=http://a:8000\n")
		pass(3)
		require.Empty(t, got.take(), "one empty reading changes nothing")

		write("http://b:8000\n")
		pass(1)
		require.Empty(t, got.take())
		pass(1)
		require.Equal(t, []string{"now: http://b:8000"}, got.take())

		write("http://b:8000\nftp://c:1\n")
		pass(3)
		require.Equal(t, []string{"error: watch " + path + ":2: ftp://c:1 is not a server"}, got.take())

		write("\n")
		pass(2)
		require.Equal(t, []string{"now: "}, got.take(), "two empty readings remove all")
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

func TestWatchName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var answer []string
		var fault error
		say := func(addresses []string, err error) {
			mu.Lock()
			defer mu.Unlock()
			answer, fault = addresses, err
		}
		read, err := reader("dns:pool.example:8000", nil, func(ctx context.Context, host string) ([]string, error) {
			require.Equal(t, "pool.example", host)
			_, bounded := ctx.Deadline()
			require.True(t, bounded)
			mu.Lock()
			defer mu.Unlock()
			return answer, fault
		})
		require.NoError(t, err)
		var got recorder
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		say([]string{"10.0.0.2", "10.0.0.1", "fd00::1"}, nil)
		go func() { done <- watch(ctx, read, time.Second, got.hear) }()
		<-time.After(time.Second / 2)
		require.Equal(t, []string{"now: http://10.0.0.1:8000 http://10.0.0.2:8000"}, got.take(),
			"a host with IPv4 and IPv6 addresses counts once")

		say(nil, errors.New("server misbehaving"))
		<-time.After(5 * time.Second)
		say(nil, nil)
		<-time.After(5 * time.Second)
		require.Equal(t, []string{"error: watch dns:pool.example:8000: server misbehaving",
			"error: watch dns:pool.example:8000: no addresses"}, got.take())

		say([]string{"10.0.0.1"}, nil)
		<-time.After(2 * time.Second)
		require.Equal(t, []string{"now: http://10.0.0.1:8000"}, got.take())

		say([]string{"fd00::2", "fd00::1"}, nil)
		<-time.After(2 * time.Second)
		require.Equal(t, []string{"now: http://[fd00::1]:8000 http://[fd00::2]:8000"}, got.take())
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

// The system resolver knows localhost without a network.
func TestWatchLocalhost(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := Watch(ctx, "dns:localhost:8000", time.Hour, nil, func(endpoints []string, err error) {
		defer cancel()
		if err == nil { // else the system lacks the name
			require.Subset(t, []string{"http://127.0.0.1:8000", "http://[::1]:8000"}, endpoints)
		}
	})
	require.ErrorIs(t, err, context.Canceled)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"":             "no source",
		"dns:pool":     "expected dns:NAME:PORT",
		"dns::8000":    "expected dns:NAME:PORT",
		"dns:pool:0":   "port 0, expected 1 to 65535",
		"dns:pool:web": "port web, expected 1 to 65535",
	} {
		require.ErrorContains(t, Check(source), want, source)
	}
	require.NoError(t, Check("dns:pool:8000"))
	require.NoError(t, Check("instances.txt"))
	require.ErrorContains(t, Watch(t.Context(), "instances.txt", 0, nil, nil), "interval 0s")
}

func TestWatchLargeFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "big")
	require.NoError(t, os.WriteFile(path, make([]byte, maxFile+1), 0o600))
	_, err := readFile(path, check)
	require.ErrorContains(t, err, "file has more than 1048576 bytes")
}

// check rejects URLs that are not of a web server.
func check(endpoint string) error {
	if strings.HasPrefix(endpoint, "ftp:") {
		return errors.New(endpoint + " is not a server")
	}
	return nil
}
