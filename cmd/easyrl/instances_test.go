package main

import (
	"context"
	"errors"
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
	in, f := tinyFleet(t, said, "inference.kind=easyrl", "inference.watch=none", "inference.instances=1")
	publishTiny(t, in, f, 1)
	_, err := in.Add(t.Context(), "http://a:1", "")
	require.NoError(t, err)
	first := in.server("http://a:1")
	_, err = in.Drain("http://a:1")
	require.NoError(t, err)
	_, err = in.Add(t.Context(), "http://a:1", "")
	require.NoError(t, err)
	second := in.server("http://a:1")
	require.NotSame(t, first, second)
	in.part(first)
	require.ErrorContains(t, in.remove(t.Context(), first), "no such instance")
	m, ok := in.member("http://a:1")
	require.True(t, ok)
	require.Equal(t, "HEALTHY", m.State)
	in.part(second)
	_, ok = in.member("http://a:1")
	require.False(t, ok)
}

// A server that leaves the list while it is being called does not stay.
func TestServerOffTheListWhileItIsCalled(t *testing.T) {
	t.Parallel()
	said := newNotes()
	in, f := tinyFleet(t, said, "inference.kind=easyrl", "inference.watch=none", "inference.instances=1")
	publishTiny(t, in, f, 1)
	called, answer := make(chan struct{}), make(chan struct{})
	dial := in.dial
	in.dial = func(ctx context.Context, e configs.Endpoint) (probed, string, error) {
		close(called)
		<-answer
		return dial(ctx, e)
	}
	require.NoError(t, in.follow([]string{"http://a:1"}))
	<-called
	require.NoError(t, in.follow(nil))
	close(answer)
	said.await(t, "instance http://a:1 left")
	require.Len(t, in.List(), 1)
}

// Only instances that can serve are enough to begin with.
func TestAwaitCountsWhatCanServe(t *testing.T) {
	t.Parallel()
	in, f := tinyFleet(t, newNotes(), "inference.kind=easyrl", "inference.watch=none", "inference.instances=1", "inference.min_instances=2")
	_, err := in.Add(t.Context(), "http://a:1", "")
	require.NoError(t, err)
	require.Equal(t, 2, in.able(), "they take the weights with the first publish")
	publishTiny(t, in, f, 1)
	require.Equal(t, 2, in.able())
	_, err = in.Drain("http://a:1")
	require.NoError(t, err)
	require.Len(t, in.List(), 2)
	require.Equal(t, 1, in.able())
}

// deadServer is one whose machine is gone.
type deadServer struct{ *engineServer }

func (deadServer) Probe(context.Context) error { return errors.New("no route to host") }

func (deadServer) Publish(context.Context, inference.Weights) (string, error) {
	return "", errors.New("no route to host")
}

// A server that joined by itself and does not answer leaves in the end; those of
// the configuration stay.
func TestDeadServersLeave(t *testing.T) {
	t.Parallel()
	said := newNotes()
	in, f := tinyFleet(t, said, "inference.kind=easyrl", "inference.watch=none", "inference.instances=1")
	dial := in.dial
	in.dial = func(ctx context.Context, e configs.Endpoint) (probed, string, error) {
		inst, kind, err := dial(ctx, e)
		if err == nil && strings.Contains(e.URL, "dead") {
			inst = deadServer{inst.(*engineServer)}
		}
		return inst, kind, err
	}
	publishTiny(t, in, f, 1)
	in.sought["http://dead:1"] = func() {} // the configuration has it
	for _, url := range []string{"http://dead:1", "http://dead:2", "http://well:3"} {
		_, err := in.Add(t.Context(), url, "")
		require.NoError(t, err)
	}
	start := time.Now()
	require.Empty(t, in.silent(start))
	require.Empty(t, in.silent(start.Add(giveUpAfter-1)))
	gone := in.silent(start.Add(giveUpAfter))
	require.Len(t, gone, 1)
	in.giveUp(gone[0])
	said.await(t, "instance http://dead:2 has been STALE for 10m0s: it leaves")
	said.await(t, "instance http://dead:2 left")
	require.True(t, in.GivenUp("http://dead:2"))
	require.False(t, in.GivenUp("http://dead:1"))
	require.Len(t, in.List(), 3)
	require.Empty(t, in.silent(start.Add(2*giveUpAfter)))
	_, err := in.Add(t.Context(), "http://dead:2", "")
	require.NoError(t, err, "it may come again")
	require.False(t, in.GivenUp("http://dead:2"))
}

// oddServer is one of another model, with a larger vocabulary.
type oddServer struct{ *engineServer }

func (oddServer) Generate(_ context.Context, req inference.Request) ([]inference.Completion, error) {
	return slices.Repeat([]inference.Completion{{IDs: []int32{16}, Logprobs: []float32{-1}, Version: req.Version}}, req.N), nil
}

// A token that the model does not have never reaches the trainer.
func TestTokensOfAnotherVocabulary(t *testing.T) {
	t.Parallel()
	said := newNotes()
	in, f := tinyFleet(t, said, "inference.kind=easyrl", "inference.watch=none", "inference.instances=0")
	dial := in.dial
	in.dial = func(ctx context.Context, e configs.Endpoint) (probed, string, error) {
		inst, kind, err := dial(ctx, e)
		return oddServer{inst.(*engineServer)}, kind, err
	}
	_, err := in.Add(t.Context(), "http://odd:1", "")
	require.NoError(t, err)
	publishTiny(t, in, f, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, _, err := in.fleet.Generate(ctx, tinyRequest())
		done <- err
	}()
	said.await(t, "response 0 token 0 is 16, expected 0 to 15")
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

// The canary's tokens are the run's own.
func TestCanaryPrompt(t *testing.T) {
	t.Parallel()
	resolved, err := configs.Load([]string{filepath.Join(tinyRun(t), "run.toml")}, nil)
	require.NoError(t, err)
	f, err := policyFolder(&resolved.Config)
	require.NoError(t, err)
	c := &canary{folder: f}
	require.Equal(t, []int32{2, 4, 6, 8}, c.prompt(4), "spread over a vocabulary of 16")
	lists, _, err := f.prompts(resolved.Data.Train, &resolved.Config, newNotes().warn)
	require.NoError(t, err)
	first := lists[0][0].IDs
	require.Equal(t, append(slices.Clone(first), lists[0][1].IDs[0]), c.prompt(len(first)+1))
	require.Len(t, c.prompt(remote.CanaryTokens), remote.CanaryTokens)
	require.Len(t, c.prompt(1000), f.shape.MaxPositions-1)
}

// An engine that the fleet does not take is closed.
func TestEngineThatIsNotTakenIsClosed(t *testing.T) {
	t.Parallel()
	in, f := tinyFleet(t, newNotes())
	cfg := &configs.Config{Inference: *in.cfg}
	cfg.Data.MaxPromptTokens, cfg.Rollout.MaxTokens = 8, 8
	require.ErrorContains(t, in.startEngines(t.Context(), f, cfg, nil), "one of that name is in the fleet")
	_, err := in.engines[len(in.engines)-1].Generate(t.Context(), tinyRequest())
	require.ErrorIs(t, err, inference.ErrClosed)
}
