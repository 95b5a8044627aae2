package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A server belongs to its trainer from Claim to Close, and then to the next.
func TestServerIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, EasyRL)
		of := func(id string) Config {
			cfg := f.config()
			cfg.Trainer = Trainer{ID: id, Name: "run " + id}
			return cfg
		}
		a, err := Dial(t.Context(), of("a"))
		require.NoError(t, err)
		require.Empty(t, f.trainer, "Dial claims nothing")
		late, err := Dial(t.Context(), of("b"))
		require.NoError(t, err)
		require.NoError(t, a.Claim(t.Context()))
		require.Equal(t, "a", f.trainer)
		require.EqualError(t, late.Claim(t.Context()),
			"instance http://fake:8000: POST /v1/trainer: status 409: held by another trainer")
		require.NoError(t, late.Close())
		_, err = Dial(t.Context(), of("b"))
		require.EqualError(t, err, "instance http://fake:8000: POST /v1/trainer: status 409: held by another trainer")
		calls := f.called("/v1/trainer")
		<-time.After(3*renewInterval + time.Second)
		synctest.Wait()
		require.Equal(t, calls+3, f.called("/v1/trainer"))
		f.set(func() { f.trainer = "" }) // the server restarted
		_, err = a.Publish(t.Context(), fakeWeights{1, 1})
		require.NoError(t, err)
		require.Equal(t, "a", f.trainer)
		require.NoError(t, a.Close())
		require.Empty(t, f.trainer)
		b, err := Dial(t.Context(), of("b"))
		require.NoError(t, err)
		require.NoError(t, b.Claim(t.Context()))
		require.Equal(t, "b", f.trainer)
		f.set(func() { f.trainer = "c" }) // b's claim expired
		_, err = b.Publish(t.Context(), fakeWeights{2, 2})
		require.ErrorContains(t, err, "held by another trainer")
		require.NotContains(t, f.calls, "/v1/weights?trainer=b&version=2")
		require.NoError(t, b.Close())
		require.Equal(t, "c", f.trainer, "Close does not release another trainer's server")
	})
}

// A trainer that only dials learns whether the server would accept it and leaves no claim.
func TestServerIsTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, EasyRL)
		cfg := f.config()
		cfg.Trainer = Trainer{ID: "a", Name: "run a"}
		for _, holder := range []string{"", "a"} {
			f.set(func() { f.trainer = holder })
			a, err := Dial(t.Context(), cfg)
			require.NoError(t, err)
			<-time.After(3 * renewInterval)
			require.NoError(t, a.Close())
			require.Equal(t, holder, f.trainer)
		}
		f.set(func() { f.trainer = "b" })
		_, err := Dial(t.Context(), cfg)
		require.EqualError(t, err, "instance http://fake:8000: POST /v1/trainer: status 409: held by another trainer")
		require.Equal(t, "b", f.trainer)
	})
}

// A run that ends during a publish releases its servers.
func TestReleasesServerAfterCancelledPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, EasyRL)
		cfg := f.config()
		cfg.Trainer = Trainer{ID: "a", Name: "run a"}
		a, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		require.NoError(t, a.Claim(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = a.Publish(ctx, fakeWeights{1, 1})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, "a", f.trainer)
		require.NoError(t, a.Close())
		require.Empty(t, f.trainer)
	})
}
