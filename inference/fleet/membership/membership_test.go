package membership

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote"
)

// A server that is taken off the list and comes anew while the one before drains
// stays: what parts with the one before does not touch it.
func TestServerOnTheListAgainWhileItDrains(t *testing.T) {
	t.Parallel()
	said := newNotes()
	r := tinyFleet(t, said, "inference.kind=easyrl", "inference.watch=none", "inference.instances=1")
	publishTiny(t, r, 1)
	_, err := r.Add(t.Context(), "http://a:1", "")
	require.NoError(t, err)
	first := r.server("http://a:1")
	_, err = r.Drain("http://a:1")
	require.NoError(t, err)
	_, err = r.Add(t.Context(), "http://a:1", "")
	require.NoError(t, err)
	second := r.server("http://a:1")
	require.NotSame(t, first, second)
	r.part(first)
	require.ErrorContains(t, r.remove(t.Context(), first), "no such instance")
	m, ok := r.member("http://a:1")
	require.True(t, ok)
	require.Equal(t, "HEALTHY", m.State)
	r.part(second)
	_, ok = r.member("http://a:1")
	require.False(t, ok)
}

// A server that leaves the list while it is being called does not stay.
func TestServerOffTheListWhileItIsCalled(t *testing.T) {
	t.Parallel()
	said := newNotes()
	r := tinyFleet(t, said, "inference.kind=easyrl", "inference.watch=none", "inference.instances=1")
	publishTiny(t, r, 1)
	called, answer := make(chan struct{}), make(chan struct{})
	dial := r.dial
	r.dial = func(ctx context.Context, e remote.Endpoint) (Probed, string, error) {
		close(called)
		<-answer
		return dial(ctx, e)
	}
	require.NoError(t, r.follow([]string{"http://a:1"}))
	<-called
	require.NoError(t, r.follow(nil))
	close(answer)
	said.await(t, "instance http://a:1 left")
	require.Len(t, r.List(), 1)
}

// Only instances that can serve are enough to begin with.
func TestAwaitCountsWhatCanServe(t *testing.T) {
	t.Parallel()
	r := tinyFleet(t, newNotes(), "inference.kind=easyrl", "inference.watch=none", "inference.instances=1", "inference.min_instances=2")
	_, err := r.Add(t.Context(), "http://a:1", "")
	require.NoError(t, err)
	require.Equal(t, 2, r.able(), "they take the weights with the first publish")
	publishTiny(t, r, 1)
	require.Equal(t, 2, r.able())
	_, err = r.Drain("http://a:1")
	require.NoError(t, err)
	require.Len(t, r.List(), 2)
	require.Equal(t, 1, r.able())
}

// deadServer is one whose machine is gone.
type deadServer struct{ engineServer }

func (deadServer) Probe(context.Context) error { return errors.New("no route to host") }

func (deadServer) Publish(context.Context, inference.Weights) (string, error) {
	return "", errors.New("no route to host")
}

// A server that joined by itself and does not answer leaves in the end; those of
// the configuration stay.
func TestDeadServersLeave(t *testing.T) {
	t.Parallel()
	said := newNotes()
	r := tinyFleet(t, said, "inference.kind=easyrl", "inference.watch=none", "inference.instances=1")
	dial := r.dial
	r.dial = func(ctx context.Context, e remote.Endpoint) (Probed, string, error) {
		inst, kind, err := dial(ctx, e)
		if err == nil && strings.Contains(e.URL, "dead") {
			inst = deadServer{inst.(engineServer)}
		}
		return inst, kind, err
	}
	publishTiny(t, r, 1)
	r.sought["http://dead:1"] = func() {} // the configuration has it
	for _, url := range []string{"http://dead:1", "http://dead:2", "http://well:3"} {
		_, err := r.Add(t.Context(), url, "")
		require.NoError(t, err)
	}
	start := time.Now()
	require.Empty(t, r.silent(start))
	require.Empty(t, r.silent(start.Add(giveUpAfter-1)))
	gone := r.silent(start.Add(giveUpAfter))
	require.Len(t, gone, 1)
	r.giveUp(gone[0])
	said.await(t, "instance http://dead:2 has been STALE for 10m0s: it leaves")
	said.await(t, "instance http://dead:2 left")
	require.True(t, r.Evicted("http://dead:2"))
	require.False(t, r.Evicted("http://dead:1"))
	require.Len(t, r.List(), 3)
	require.Empty(t, r.silent(start.Add(2*giveUpAfter)))
	_, err := r.Add(t.Context(), "http://dead:2", "")
	require.NoError(t, err, "it may come again")
	require.False(t, r.Evicted("http://dead:2"))
}

// oddServer is one of another model, with a larger vocabulary.
type oddServer struct{ engineServer }

func (oddServer) Generate(_ context.Context, req inference.Request) ([]inference.Completion, error) {
	return slices.Repeat([]inference.Completion{{IDs: []int32{16}, Logprobs: []float32{-1}, Version: req.Version}}, req.N), nil
}

// A token that the model does not have never reaches the trainer.
func TestTokensOfAnotherVocabulary(t *testing.T) {
	t.Parallel()
	said := newNotes()
	r := tinyFleet(t, said, "inference.kind=easyrl", "inference.watch=none", "inference.instances=0")
	dial := r.dial
	r.dial = func(ctx context.Context, e remote.Endpoint) (Probed, string, error) {
		inst, kind, err := dial(ctx, e)
		return oddServer{inst.(engineServer)}, kind, err
	}
	_, err := r.Add(t.Context(), "http://odd:1", "")
	require.NoError(t, err)
	publishTiny(t, r, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, _, err := r.fleet.Generate(ctx, tinyRequest())
		done <- err
	}()
	said.await(t, "response 0 token 0 is 16, expected 0 to 15")
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

// An engine that the fleet does not take is closed.
func TestEngineThatIsNotTakenIsClosed(t *testing.T) {
	t.Parallel()
	r := tinyFleet(t, newNotes())
	cfg := &configs.Config{Inference: *r.cfg}
	cfg.Data.MaxPromptTokens, cfg.Rollout.MaxTokens = 8, 8
	shape := tinyShape(t)
	deps := &Deps{Shape: shape, Engine: startEngine(shape)}
	require.ErrorContains(t, r.startEngines(t.Context(), cfg, deps), "one of that name is in the fleet")
	_, err := r.engines[len(r.engines)-1].Generate(t.Context(), tinyRequest())
	require.ErrorIs(t, err, inference.ErrClosed)
}

// What a server did counts on when it has left.
func TestWorkOfServersThatLeft(t *testing.T) {
	t.Parallel()
	r := tinyFleet(t, newNotes(), "control.listen=127.0.0.1:0")
	publishTiny(t, r, 3)
	_, err := r.Add(t.Context(), "http://a:8000", "")
	require.NoError(t, err)
	_, err = r.server("http://a:8000").Generate(t.Context(), tinyRequest())
	require.NoError(t, err)
	before := r.Busy()
	require.Positive(t, before)
	require.NoError(t, r.Remove(t.Context(), "http://a:8000"))
	require.Equal(t, before, r.Busy())
}

// A run whose servers are on a list has those that the list has.
func TestWatchedServersComeAndGo(t *testing.T) {
	t.Parallel()
	said := newNotes()
	list := filepath.Join(t.TempDir(), "servers")
	require.NoError(t, os.WriteFile(list, []byte("http://a:1\n"), 0o644))
	r := tinyFleet(t, said, "inference.kind=easyrl", "inference.watch="+list, "inference.min_instances=2", "inference.instances=1")
	require.NoError(t, r.Begin(t.Context(), nil), "the server on the list is the second instance")
	said.await(t, "instance http://a:1 (easyrl) joined")
	publishTiny(t, r, 1)
	require.NoError(t, r.follow([]string{"vllm=http://b:1", "http://gone:1"}))
	said.await(t, "instance http://b:1 (vllm) joined: it serves version 1")
	said.await(t, "instance http://a:1 left")
	said.await(t, "instance http://gone:1: connection refused; it is called again until it answers")
	require.ErrorContains(t, r.follow([]string{"tgi=http://c:1"}), "expected one of")
	all := r.List()
	require.Len(t, all, 2)
	require.Equal(t, []string{"embedded-1", "http://b:1"}, []string{all[0].ID, all[1].ID})
}

// stopper is a server that is told of a run's end while it takes weights.
type stopper struct {
	engineServer
	stop context.CancelFunc
}

func (s stopper) Publish(ctx context.Context, _ inference.Weights) (string, error) {
	s.stop()
	<-ctx.Done()
	return "", ctx.Err()
}

// What a run's end does to its instances is no news.
func TestEndIsNoNews(t *testing.T) {
	t.Parallel()
	said := newNotes()
	ctx, stop := context.WithCancel(t.Context())
	r := tinyFleetIn(ctx, t, said, "inference.kind=easyrl", "inference.watch=none", "inference.instances=0")
	dial := r.dial
	r.dial = func(ctx context.Context, e remote.Endpoint) (Probed, string, error) {
		inst, kind, err := dial(ctx, e)
		return stopper{inst.(engineServer), stop}, kind, err
	}
	_, err := r.Add(t.Context(), "http://a:1", "")
	require.NoError(t, err)
	require.Error(t, r.Publish(ctx, tinyWeights(t, 1)))
	require.NoError(t, r.Close())
	require.Equal(t, []string{"instance http://a:1 (easyrl) joined"}, said.lines)
}

// Who was taken out is known to the run when it is started again, until it comes
// anew.
func TestTakenOutIsKept(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	open := func() (r *Roster, end func()) {
		ctx, end := context.WithCancel(t.Context())
		r = tinyFleetIn(ctx, t, newNotes(), "control.listen=127.0.0.1:0", fmt.Sprintf("run.dir=%q", folder))
		require.NoError(t, r.Begin(ctx, nil))
		return r, end
	}
	r, end := open()
	for _, url := range []string{"http://a:1", "http://b:1", "http://c:1"} {
		_, err := r.Add(t.Context(), url, "")
		require.NoError(t, err)
	}
	_, err := r.Drain("http://a:1")
	require.NoError(t, err)
	require.NoError(t, r.Remove(t.Context(), "http://b:1"))
	end() // as when it is killed: nothing more is written
	again, end := open()
	defer end()
	require.Equal(t, r.kept.of.Run, again.kept.of.Run)
	for url, out := range map[string]bool{"http://a:1": true, "http://b:1": true, "http://c:1": false} {
		require.Equal(t, out, again.Removed(url), url)
	}
	_, err = again.Add(t.Context(), "http://a:1", "")
	require.NoError(t, err)
	require.False(t, again.Removed("http://a:1"))
	third, end := open()
	defer end()
	require.False(t, third.Removed("http://a:1"))
	require.True(t, third.Removed("http://b:1"))
	for _, torn := range []string{"", "{", "null", `{"x":1}`} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, keptFile), []byte(torn), 0o644))
		_, err = openKept(folder, nil)
		require.ErrorContains(t, err, keptFile)
	}
}

// What is known of servers that were taken out is bounded.
func TestFewTakenOutAreKept(t *testing.T) {
	t.Parallel()
	k, err := openKept("", nil)
	require.NoError(t, err)
	for i := range mostOut + 1 {
		k.setOut(fmt.Sprint(i), true)
	}
	require.False(t, k.isOut("0"))
	require.True(t, k.isOut("1"))
	require.True(t, k.isOut(fmt.Sprint(mostOut)))
}
