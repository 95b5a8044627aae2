package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A server hears of its trainer as long as it is held, and is another's then.
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
		_, err = Dial(t.Context(), of("b"))
		require.EqualError(t, err, "instance http://fake:8000: POST /v1/trainer: status 409: it serves another")
		calls := f.called("/v1/trainer")
		<-time.After(3*beat + time.Second)
		synctest.Wait()
		require.Equal(t, calls+3, f.called("/v1/trainer"))
		f.set(func() { f.trainer = "" }) // it was started again
		_, err = a.Publish(t.Context(), fakeWeights{1, 1})
		require.NoError(t, err)
		require.Equal(t, "a", f.trainer)
		require.NoError(t, a.Close())
		require.Empty(t, f.trainer)
		b, err := Dial(t.Context(), of("b"))
		require.NoError(t, err)
		require.Equal(t, "b", f.trainer)
		f.set(func() { f.trainer = "c" }) // b was silent for too long
		_, err = b.Publish(t.Context(), fakeWeights{2, 2})
		require.ErrorContains(t, err, "it serves another")
		require.NotContains(t, f.calls, "/v1/weights?trainer=b&version=2")
		require.NoError(t, b.Close())
		require.Equal(t, "c", f.trainer, "what is another's is left alone")
	})
}

// A run that ends while it publishes lets its servers go.
func TestServerIsFreeAfterAPublishThatWasBrokenOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, EasyRL)
		cfg := f.config()
		cfg.Trainer = Trainer{ID: "a", Name: "run a"}
		a, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = a.Publish(ctx, fakeWeights{1, 1})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, "a", f.trainer)
		require.NoError(t, a.Close())
		require.Empty(t, f.trainer)
	})
}
