package membership

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote"
)

// A server that leaves the list and is added again while it drains stays: releasing the old
// one does not affect it.
func TestServerRelistedWhileDraining(t *testing.T) {
	t.Parallel()
	m := connected(t.Context(), t, newNotes(), setup{engines: 1, watch: "none"})
	publishTiny(t, m, 1)
	_, err := m.Add(t.Context(), "http://a:1", "")
	require.NoError(t, err)
	first := m.servers.get("http://a:1")
	_, err = m.Drain("http://a:1")
	require.NoError(t, err)
	_, err = m.Add(t.Context(), "http://a:1", "")
	require.NoError(t, err)
	second := m.servers.get("http://a:1")
	require.NotSame(t, first, second)
	m.connector.release(first)
	require.ErrorContains(t, m.servers.remove(t.Context(), first), "no such instance")
	in, ok := m.servers.instance("http://a:1")
	require.True(t, ok)
	require.Equal(t, "HEALTHY", in.State)
	m.connector.release(second)
	_, ok = m.servers.instance("http://a:1")
	require.False(t, ok)
}

// A server that leaves the list while the run is connecting to it does not stay.
func TestServerUnlistedWhileConnecting(t *testing.T) {
	t.Parallel()
	said := newNotes()
	called, answer := make(chan struct{}), make(chan struct{})
	m := connected(t.Context(), t, said, setup{engines: 1, watch: "none",
		dial: func(ctx context.Context, e remote.Endpoint) (remote.Server, error) {
			close(called)
			<-answer
			return dialEngine(tinyShape(t))(ctx, e)
		}})
	publishTiny(t, m, 1)
	require.NoError(t, m.connector.follow([]string{"http://a:1"}))
	<-called
	require.NoError(t, m.connector.follow(nil))
	close(answer)
	said.await(t, "instance http://a:1 left")
	require.Len(t, m.List(), 1)
}

// Only instances that can serve count as enough to start.
func TestAwaitCountsUsableInstances(t *testing.T) {
	t.Parallel()
	m := connected(t.Context(), t, newNotes(), setup{engines: 1, watch: "none", minInstances: 2})
	_, err := m.Add(t.Context(), "http://a:1", "")
	require.NoError(t, err)
	require.Equal(t, 2, m.usable(), "they get the weights with the first publish")
	publishTiny(t, m, 1)
	require.Equal(t, 2, m.usable())
	_, err = m.Drain("http://a:1")
	require.NoError(t, err)
	require.Len(t, m.List(), 2)
	require.Equal(t, 1, m.usable())
}

// A run that no server may join later does not start without enough configured servers. A
// run that some may join starts and retries.
func TestUnreachableConfiguredServers(t *testing.T) {
	t.Parallel()
	said := newNotes()
	alone := open(t.Context(), t, said, setup{engines: 1, minInstances: 2, fixed: true,
		endpoints: []remote.Endpoint{{URL: "http://gone:1"}, {URL: "http://gone:2"}}})
	require.EqualError(t, alone.Connect(t.Context()),
		"1 instances are available, expected at least 2 (inference.min_instances): "+
			"instance http://gone:1: connection refused; instance http://gone:2: connection refused")
	m := connected(t.Context(), t, said, setup{engines: 1, minInstances: 2,
		endpoints: []remote.Endpoint{{URL: "http://a:1"}, {URL: "http://gone:2"}}})
	require.NoError(t, m.Begin(t.Context(), nil))
	said.await(t, "instance http://gone:2: connection refused; retrying until it responds")
	require.NoError(t, m.connector.follow(nil))
	require.True(t, m.connector.isWanted("http://a:1"), "configured servers stay wanted")
	require.Len(t, m.List(), 2)
}

// deadServer is a server whose machine is gone.
type deadServer struct{ engineServer }

func (deadServer) Probe(context.Context) error { return errors.New("no route to host") }

func (deadServer) Publish(context.Context, inference.Weights) (string, error) {
	return "", errors.New("no route to host")
}

// A server that joined on its own and stops answering is evicted in the end. A configured
// one stays.
func TestDeadServersAreEvicted(t *testing.T) {
	t.Parallel()
	said := newNotes()
	m := connected(t.Context(), t, said, setup{engines: 1, watch: "none",
		dial: dialThen(t, func(url string, e engineServer) remote.Server {
			if strings.Contains(url, "dead") {
				return deadServer{e}
			}
			return e
		})})
	publishTiny(t, m, 1)
	m.connector.wanted["http://dead:1"] = func() {} // as if configured
	for _, url := range []string{"http://dead:1", "http://dead:2", "http://well:3"} {
		_, err := m.Add(t.Context(), url, "")
		require.NoError(t, err)
	}
	start := time.Now()
	require.Empty(t, m.monitor.unreachable(start))
	require.Empty(t, m.monitor.unreachable(start.Add(evictAfter-1)))
	gone := m.monitor.unreachable(start.Add(evictAfter))
	require.Len(t, gone, 1)
	m.monitor.evict(t.Context(), gone[0])
	said.await(t, "instance http://dead:2 has been STALE for 10m0s; removing it")
	said.await(t, "instance http://dead:2 left")
	require.True(t, m.Evicted("http://dead:2"))
	require.False(t, m.Evicted("http://dead:1"))
	require.Len(t, m.List(), 3)
	require.Empty(t, m.monitor.unreachable(start.Add(2*evictAfter)))
	_, err := m.Add(t.Context(), "http://dead:2", "")
	require.NoError(t, err, "it may join again")
	require.False(t, m.Evicted("http://dead:2"))
}

// oddServer serves another model, with a larger vocabulary.
type oddServer struct{ engineServer }

func (oddServer) Generate(_ context.Context, req inference.Request) ([]inference.Completion, error) {
	return slices.Repeat([]inference.Completion{{IDs: []int32{16}, Logprobs: []float32{-1}, Version: req.Version}},
		req.N), nil
}

// A token outside the model's vocabulary never reaches the trainer.
func TestRejectsTokensOutsideVocabulary(t *testing.T) {
	t.Parallel()
	said := newNotes()
	m := connected(t.Context(), t, said, setup{watch: "none",
		dial: dialThen(t, func(_ string, e engineServer) remote.Server { return oddServer{e} })})
	_, err := m.Add(t.Context(), "http://odd:1", "")
	require.NoError(t, err)
	publishTiny(t, m, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, _, err := m.fleet.Generate(ctx, tinyRequest())
		done <- err
	}()
	said.await(t, "response 0 token 0 is 16, expected 0 to 15")
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

// A server's busy time still counts after it has left.
func TestBusyTimeIncludesServersThatLeft(t *testing.T) {
	t.Parallel()
	m := connected(t.Context(), t, newNotes(), setup{})
	_, err := m.Add(t.Context(), "http://a:8000", "")
	require.NoError(t, err)
	publishTiny(t, m, 3)
	_, id, err := m.fleet.Generate(t.Context(), tinyRequest())
	require.NoError(t, err)
	require.Equal(t, "http://a:8000", id)
	before := m.fleet.Status().Busy
	require.Positive(t, before)
	require.NoError(t, m.Remove(t.Context(), "http://a:8000"))
	require.Equal(t, before, m.fleet.Status().Busy)
}

// Servers join and leave with the watched list.
func TestFollowsWatchedList(t *testing.T) {
	t.Parallel()
	said := newNotes()
	list := filepath.Join(t.TempDir(), "servers")
	require.NoError(t, os.WriteFile(list, []byte("http://a:1\n"), 0o644))
	m := connected(t.Context(), t, said, setup{engines: 1, watch: list, minInstances: 2})
	require.NoError(t, m.Begin(t.Context(), nil), "the server on the list is the second instance")
	said.await(t, "instance http://a:1 (easyrl) joined")
	publishTiny(t, m, 1)
	require.NoError(t, m.connector.follow([]string{"vllm=http://b:1", "http://gone:1"}))
	said.await(t, "instance http://b:1 (vllm) joined and serves version 1")
	said.await(t, "instance http://a:1 left")
	said.await(t, "instance http://gone:1: connection refused; retrying until it responds")
	require.ErrorContains(t, m.connector.follow([]string{"tgi=http://c:1"}), "expected one of")
	all := m.List()
	require.Len(t, all, 2)
	require.Equal(t, []string{"embedded-1", "http://b:1"}, []string{all[0].ID, all[1].ID})
}

// stopper ends the run during its publish.
type stopper struct {
	engineServer
	stop context.CancelFunc
}

func (s stopper) Publish(ctx context.Context, _ inference.Weights) (string, error) {
	s.stop()
	<-ctx.Done()
	return "", ctx.Err()
}

// Effects of a run's end on its instances are not reported.
func TestEndOfRunIsNotAnnounced(t *testing.T) {
	t.Parallel()
	said := newNotes()
	ctx, stop := context.WithCancel(t.Context())
	m := connected(ctx, t, said, setup{watch: "none",
		dial: dialThen(t, func(_ string, e engineServer) remote.Server { return stopper{e, stop} })})
	_, err := m.Add(t.Context(), "http://a:1", "")
	require.NoError(t, err)
	require.Error(t, m.fleet.Publish(ctx, tinyWeights(t, 1)))
	require.NoError(t, m.Close())
	require.Equal(t, []string{"instance http://a:1 (easyrl) joined"}, said.lines)
}

// A resumed run knows which servers a user removed, until they are added again.
func TestRemovedServersArePersisted(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	start := func() (m *Membership, end func()) {
		ctx, end := context.WithCancel(t.Context())
		m = connected(ctx, t, newNotes(), setup{engines: 1, dir: folder})
		require.NoError(t, m.Begin(ctx, nil))
		return m, end
	}
	m, end := start()
	for _, url := range []string{"http://a:1", "http://b:1", "http://c:1"} {
		_, err := m.Add(t.Context(), url, "")
		require.NoError(t, err)
	}
	_, err := m.Drain("http://a:1")
	require.NoError(t, err)
	require.NoError(t, m.Remove(t.Context(), "http://b:1"))
	end() // as if killed: nothing more is written
	again, end := start()
	defer end()
	for url, removed := range map[string]bool{"http://a:1": true, "http://b:1": true, "http://c:1": false} {
		require.Equal(t, removed, again.Removed(url), url)
	}
	_, err = again.Add(t.Context(), "http://a:1", "")
	require.NoError(t, err)
	require.False(t, again.Removed("http://a:1"))
	third, end := start()
	defer end()
	require.False(t, third.Removed("http://a:1"))
	require.True(t, third.Removed("http://b:1"))
	data, err := os.ReadFile(filepath.Join(folder, "instances.json"))
	require.NoError(t, err)
	require.Equal(t, `{"taken_out":["http://b:1"]}`+"\n", string(data))
	for content, refused := range map[string]bool{"": false, "{": false, "\x00\x00": false,
		`{"run":"A","taken_out":null}`: false, "[]": true, `{"taken_out":1}`: true} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, stateName), []byte(content), 0o644))
		state, err := openState(folder, nil)
		if refused {
			require.ErrorContains(t, err, stateName)
			continue
		}
		require.NoError(t, err, "a crash cut it off")
		require.Empty(t, state.content.Removed)
	}
}

// The list of removed servers in the file is bounded.
func TestRemovedServersAreBounded(t *testing.T) {
	t.Parallel()
	f, err := openState("", nil)
	require.NoError(t, err)
	for i := range maxRemoved + 1 {
		f.setRemoved(fmt.Sprint(i), true)
	}
	require.False(t, f.isRemoved("0"))
	require.True(t, f.isRemoved("1"))
	require.True(t, f.isRemoved(fmt.Sprint(maxRemoved)))
}

// claimed is a server that accepts one run at a time.
type claimed struct {
	engineServer
	claims chan<- string
	taken  *atomic.Bool // by another run
}

func (c claimed) Claim(context.Context) error {
	if c.taken.Load() {
		return fmt.Errorf("instance %s: held by another run", c.ID())
	}
	c.claims <- c.ID()
	return nil
}

// A run claims its servers when its folder exists, which is when Begin is called, and later ones
// as they join. A server that another run has claimed by then is tried again.
func TestServersAreClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := newNotes()
		claims := make(chan string, 10)
		var taken atomic.Bool
		m := open(t.Context(), t, said, setup{engines: 1,
			endpoints: []remote.Endpoint{{URL: "http://a:1"}, {URL: "http://b:2"}},
			dial: dialThen(t, func(url string, e engineServer) remote.Server {
				c := claimed{e, claims, &taken}
				if url != "http://b:2" {
					c.taken = new(atomic.Bool)
				}
				return c
			})})
		require.NoError(t, m.Connect(t.Context()))
		require.Empty(t, claims)
		require.Len(t, m.List(), 3)
		taken.Store(true)
		require.NoError(t, m.Begin(t.Context(), nil))
		require.Equal(t, "http://a:1", <-claims)
		synctest.Wait()
		require.Empty(t, claims)
		require.Len(t, m.List(), 2)
		said.await(t, "instance http://b:2: held by another run; retrying until it responds")
		taken.Store(false)
		require.Equal(t, "http://b:2", <-claims)
		_, err := m.Add(t.Context(), "http://c:3", "")
		require.NoError(t, err)
		require.Equal(t, "http://c:3", <-claims)
		require.Len(t, m.List(), 4)
		require.NoError(t, m.Close())
	})
}
