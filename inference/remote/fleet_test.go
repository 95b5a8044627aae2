package remote

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference/fleet"
)

// faults of one answer, whatever the dialect.
func faults() map[string]http.HandlerFunc {
	say := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
	}
	return map[string]http.HandlerFunc{
		"truncated JSON": say(`{"choices":[{"index":0,"token_ids":[1`),
		"empty":          say(""),
		"null":           say("null"),
		"an empty list":  say("[]"),
		"NaN": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/generate" {
				say(strings.Replace(goodSGLang, "-0.1", "NaN", 1))(w, r)
				return
			}
			say(`{"weight_version":1,"weight_checksum":"sum","choices":[`+
				strings.Replace(goodChoice, "-0.1", "NaN", 1)+`]}`)(w, r)
		},
		"wrong lengths": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/generate" {
				say(strings.Replace(goodSGLang, "[-0.1,1,null],", "[-0.1],", 1))(w, r)
				return
			}
			say(`{"weight_version":1,"weight_checksum":"sum","choices":[`+
				strings.Replace(goodChoice, "[1,2]", "[1]", 1)+`]}`)(w, r)
		},
		"a duplicate": say(`{"weight_version":1,"weight_checksum":"sum","choices":[` + goodChoice + "," + goodChoice +
			"," + goodChoice + `]}`),
		"500":       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"502":       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"503":       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"no answer": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"late": func(w http.ResponseWriter, _ *http.Request) {
			<-time.After(time.Minute)
			w.WriteHeader(http.StatusInternalServerError)
		},
	}
}

// A fleet of three kinds of servers returns every response once, under the current
// weights, while servers fail, restart with base weights, and get another trainer's
// weights of the same version.
func TestFleetOfServers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { fleetUnderFire(t, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

func fleetUnderFire(t *testing.T, rng *rand.Rand) {
	cfg := fleet.DefaultConfig()
	cfg.Attempts, cfg.DeadAfter, cfg.MaxRestarts = 50, 1000, 1000 // many faults are expected
	fleet, err := fleet.New(cfg)
	require.NoError(t, err)
	defer func() { require.NoError(t, fleet.Close()) }()
	var mu sync.Mutex // guards rng
	var servers []*fake
	for i, kind := range allKinds() {
		f := newFake(t, kind)
		all := faults()
		names := []string{"truncated JSON", "empty", "null", "an empty list", "NaN", "wrong lengths", "a duplicate",
			"500", "502", "503", "no answer", "late"}
		require.Len(t, names, len(all))
		f.fault = func(w http.ResponseWriter, r *http.Request) bool {
			mu.Lock()
			n := rng.IntN(100)
			mu.Unlock()
			switch {
			case r.URL.Path != samples(kind):
			case n < len(names):
				all[names[n]](w, r)
				return true
			case n < 20:
				f.restart() // before it samples
			case n < 24 && kind == EasyRL: // another trainer publishes to it
				f.set(func() { f.value = 9 })
			}
			return false
		}
		inst := f.dial(func(c *Config) { c.URL = fmt.Sprintf("http://server%d:8000", i) })
		require.NoError(t, fleet.Add(t.Context(), inst))
		servers = append(servers, f)
	}
	for version := int64(1); version <= 3; version++ {
		w := fakeWeights{version, float32(version) / 8}
		require.NoError(t, fleet.Publish(t.Context(), w))
		var all sync.WaitGroup
		for i := range 30 {
			all.Go(func() {
				req := request(1 + i%3)
				req.PromptIDs = []int32{int32(i), int32(version), 9}
				req.Version = version
				out, _, err := fleet.Generate(context.WithoutCancel(t.Context()), req)
				if err != nil {
					t.Errorf("request %d of version %d: %v", i, version, err)
					return
				}
				for j, c := range out {
					ids, logprobs := (&fake{value: w.value}).sample(req.PromptIDs, j, 4)
					if c.Version != version || fmt.Sprint(c.IDs, c.Logprobs) != fmt.Sprint(ids, logprobs) {
						t.Errorf("request %d of version %d: response %d of version %d has other weights", i, version,
							j, c.Version)
					}
				}
			})
		}
		all.Wait()
	}
	tried := 0
	for _, f := range servers {
		tried += f.called(samples(f.kind))
	}
	require.Greater(t, tried, 90, "too few requests met a fault")
}
