package state

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
)

// step runs one event. It reports whether there are more.
func (w *world) step() bool {
	if len(w.data) == 0 {
		return false
	}
	switch op := w.pick(32); {
	case op < 7:
		w.submit()
	case op < 15:
		w.settle(w.pick(256))
	case op < 18:
		w.published(w.pick(256))
	case op < 20:
		w.enqueue(w.one(paused))
	case op < 22:
		w.watch()
	case op == 22:
		w.join()
	case op == 23 && w.pick(3) == 0:
		w.begin()
	case op < 26 && w.due:
		w.targets()
	case op < 26:
		w.s.Finish(w.now)
	case op < 28:
		w.probe()
	case op == 28:
		w.look()
	case op == 29:
		w.leave()
	case op == 30:
		w.part()
	case op == 31 && w.pick(2) == 0:
		w.rest()
	default:
		w.now = w.now.Add([]time.Duration{time.Millisecond, time.Second, 5 * time.Second, time.Minute,
			time.Hour}[w.pick(256)*5/256])
	}
	w.check()
	return true
}

// one returns some request in the phase, or nil.
func (w *world) one(phase int) *asked {
	var all []*asked
	for _, q := range w.requests {
		if q.phase == phase {
			all = append(all, q)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[w.pick(len(all))]
}

func (w *world) submit() {
	req := request(1+w.pick(4), 1+w.pick(9))
	req.Version = []int64{0, w.version, w.version, max(w.version-1, 0)}[w.pick(4)]
	req.PromptIDs = make([]int32, 100)
	req.PromptIDs[w.pick(100)] = int32(w.pick(4))
	q := &asked{Request: NewRequest(req), n: req.N, tokens: int64(req.N * req.Sampling.MaxTokens), version: req.Version}
	w.requests = append(w.requests, q)
	w.enqueue(q)
}

func (w *world) enqueue(q *asked) {
	if q == nil {
		return
	}
	w.logf("request %p of version %d enters", q.Request, q.version)
	q.phase, q.entered = queued, len(w.log)
	left, err := w.s.Enqueue(w.now, q.Request)
	if err != nil {
		w.end(q, err.Error())
		return
	}
	w.must(left > 0, "look again in %v", left)
}

// settle ends some call: successfully, unless the byte is a multiple of 4. Some answers are
// rejected.
func (w *world) settle(how int) {
	if len(w.calls) == 0 {
		return
	}
	c := w.calls[w.pick(len(w.calls))]
	o := Outcome{Err: errors.New("502")}
	switch {
	case c.h.left || w.closed:
		o.Err = fmt.Errorf("removed: %w", inference.ErrClosed)
	case how%4 != 0:
		o.Err = nil
		for i := range c.q.n {
			o.Completions = append(o.Completions, responses(1+(how+i)%9)...)
		}
	case how%32 < 8:
		o.Err = fmt.Errorf("other weights: %w", inference.ErrStale)
	case how%32 < 16:
		o.Err = fmt.Errorf("prompt: %w", inference.ErrInvalid)
	case how%64 == 16:
		o.Err = fmt.Errorf("watchdog: %w", ErrStuck)
	case how%64 == 20:
		o.Abandoned = true
	case how%32 >= 24:
		o.Err = &inference.BusyError{After: time.Duration(how) * time.Second, Err: errors.New("429")}
	}
	w.finish(c, o)
	if o.Err == nil && how%16 == 3 {
		w.check()
		w.reject(c)
	}
}

// reject rejects the answer to a call.
func (w *world) reject(c *sent) {
	w.logf("answer of %s is rejected", c.h.name)
	if c.h.epoch == c.epoch {
		c.h.generation = 0
	}
	w.s.Reject(w.now, c.Grant, errors.New("other bits"))
}

// finish ends a call and checks the verdict.
func (w *world) finish(c *sent, o Outcome) {
	q, h := c.q, c.h
	w.logf("call of %p on %s ends: %v, abandoned: %v", q.Request, h.name, o.Err, o.Abandoned)
	w.release(c)
	if errors.Is(o.Err, inference.ErrStale) && h.epoch == c.epoch && !o.Abandoned {
		h.generation = 0
	}
	v := w.s.Settle(w.now, c.Grant, o)
	w.verdicts[v.Next]++
	switch {
	case o.Err == nil:
		w.must(v.Next == Answered, "an answer gives verdict %d", v.Next)
		w.end(q, "answered")
	case o.Abandoned:
		w.must(v.Next == Cancelled, "an abandoned call gives verdict %d", v.Next)
		w.end(q, "cancelled")
	default:
		w.fault(q, h, v, o.Err)
	}
}

// fault checks the verdict on a try that failed on h.
func (w *world) fault(q *asked, h *host, v Verdict, err error) {
	if busy := new(inference.BusyError); errors.As(err, &busy) {
		w.must(v.Next == Retry && v.Pause == 0, "a busy instance gives verdict %d", v.Next)
		w.must(h.left || w.closed || h.state == Draining || w.s.members.get(h.handle).restUntil.After(w.now),
			"%s is busy and does not rest", h.name)
		q.phase = paused
		w.rested++
		return
	}
	if !errors.Is(err, inference.ErrStale) {
		q.faults++
	}
	if v.Next == Failed {
		w.must(errors.Is(err, inference.ErrInvalid) || q.faults == w.cfg.Attempts, "failed after %d tries of %d: %v",
			q.faults, w.cfg.Attempts, v.Err)
		w.end(q, v.Err.Error())
		return
	}
	w.must(v.Next == Retry && q.faults < w.cfg.Attempts, "fault %d of %d gives verdict %d", q.faults,
		w.cfg.Attempts, v.Next)
	w.must(v.Pause >= w.cfg.Backoff && v.Pause <= w.cfg.BackoffMax, "a pause of %v", v.Pause)
	q.phase, q.avoids = paused, h.handle
}

// watch asks what to do about some call whose instance has been quiet for a time. If the
// instance is silent, its calls end.
func (w *world) watch() {
	if len(w.calls) == 0 {
		return
	}
	c := w.calls[w.pick(len(w.calls))]
	served, n := c.h.serves(), 0
	for _, h := range w.instances {
		if h != c.h && h.serves() {
			n++
		}
	}
	quiet := []time.Duration{0, 500 * time.Millisecond, time.Minute, time.Hour}[w.pick(4)]
	idle := []time.Duration{0, quiet}[w.pick(2)]
	watch := w.s.Watch(w.now, c.Grant, quiet, idle)
	if watch.Err == nil {
		w.must(watch.Wait > 0, "watch again in %v", watch.Wait)
		return
	}
	w.logf("%s is quiet for %v", c.h.name, quiet)
	w.check()
	w.must(n >= max(1, w.cfg.MinServing) || idle >= time.Minute,
		"%s is bypassed, %d others serve and it is idle for %v", c.h.name, n, idle)
	w.must(quiet >= time.Minute, "%s is bypassed after %v", c.h.name, quiet)
	w.must(!served || c.h.state == Dead || c.h.state == Retired, "%s is silent and %s", c.h.name, c.h.state)
	w.silent++
	for _, o := range slices.Clone(w.calls) {
		if o.h == c.h {
			w.finish(o, Outcome{Err: watch.Err})
			w.check()
		}
	}
}

// rest tells the machine that an instance's time to rest may be over.
func (w *world) rest() {
	if len(w.rests) == 0 {
		return
	}
	at := w.pick(len(w.rests))
	r := w.rests[at]
	w.rests = append(w.rests[:at:at], w.rests[at+1:]...)
	w.now = w.now.Add(r.For)
	w.s.Rested(w.now, r.Instance)
}

func (w *world) look() {
	q := w.one(queued)
	if q == nil {
		return
	}
	if left, err := w.s.Look(w.now, q.Request); err != nil {
		w.end(q, err.Error())
	} else {
		w.must(left > 0, "look again in %v", left)
	}
}

// leave cancels a request that is queued or whose grant has not been sent.
func (w *world) leave() {
	q := w.one(queued + w.pick(2))
	if q == nil {
		return
	}
	if q.phase == running {
		at := slices.IndexFunc(w.calls, func(c *sent) bool { return c.q == q })
		w.release(w.calls[at])
	}
	w.s.Leave(w.now, q.Request)
	w.end(q, "left")
}

func (w *world) join() {
	name := fmt.Sprint("instance-", w.pick(8))
	order, replaced, err := w.s.Join(w.now, name, 1+w.pick(4), w.pick(2) == 0)
	if err != nil {
		return
	}
	for _, h := range w.instances {
		w.must(h.left || h.name != name || h.handle == replaced, "%s joins twice", name)
		if h.handle == replaced {
			w.must(h.state == Retired, "%s, %s, is replaced", name, h.state)
			h.left, w.parting = true, h
		}
	}
	w.logf("%s joins", name)
	w.instances = append(w.instances, &host{handle: order.Instance, name: name, state: Stale,
		capacity: w.s.members.get(order.Instance).capacity})
	if order.Version != 0 {
		w.orders = append(w.orders, order)
	}
}

// part drains or removes some instance.
func (w *world) part() {
	if len(w.instances) == 0 {
		return
	}
	h := w.instances[w.pick(len(w.instances))]
	if w.pick(2) == 0 {
		w.logf("%s drains", h.name)
		w.must(w.s.Drain(w.now, h.handle) == (!h.left && h.requests > 0), "%s has %d requests", h.name, h.requests)
		w.check()
		w.must(h.left || h.state == Draining, "%s is %s", h.name, h.state)
		return
	}
	w.logf("%s leaves", h.name)
	w.must(w.s.Remove(w.now, h.handle) == (!h.left && h.requests > 0), "%s has %d requests", h.name, h.requests)
	if !h.left {
		h.left, w.parting = true, h
	}
}

func (w *world) begin() {
	version := w.version + int64(min(1, w.pick(4))) // sometimes other weights of the same version
	version = max(version, 1)
	w.logf("publish of version %d begins", version)
	w.version, w.due = version, true
	w.generation++
	require.NoError(w.t, w.s.Begin(w.now, version))
}

func (w *world) targets() {
	w.due = false
	awaited, late, patience := w.s.Targets()
	w.must(patience > 0, "a publish is awaited for %v", patience)
	w.orders = append(append(w.orders, awaited...), late...)
}

// published ends some publish: successfully, unless the byte is one of the first.
func (w *world) published(how int) {
	if len(w.orders) == 0 {
		return
	}
	at := w.pick(len(w.orders))
	o := w.orders[at]
	w.orders = append(w.orders[:at:at], w.orders[at+1:]...)
	h := w.host(o.Instance)
	out := Publication{Checksum: sum(o.generation), Reported: sum(o.generation), Capacity: 1 + how%5}
	switch how {
	case 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15:
		out.Err = errors.New("no route to host")
	case 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31:
		out.Reported = sum(o.generation - 1)
	case 32, 33, 34, 35:
		out.Err = fmt.Errorf("watchdog: %w", ErrStuck)
	case 36, 37, 38, 39, 40, 41, 42, 43:
		out.Err, out.Abandoned = errors.New("the caller left"), true
	default:
		if o.generation == w.generation {
			h.generation, h.epoch, h.capacity = w.generation, h.epoch+1, out.Capacity
		}
	}
	w.logf("publish of generation %d to %s ends: %s, %v", o.generation, h.name, out.Reported, out.Err)
	err := w.s.Published(w.now, o, out)
	w.must((err != nil) == (o.generation == w.generation && (out.Err != nil || out.Reported != out.Checksum)),
		"the publish gives %v", err)
}

func (w *world) probe() {
	if len(w.probes) == 0 {
		return
	}
	at := w.pick(len(w.probes))
	p := w.probes[at]
	h := w.host(p.Instance)
	if !w.s.KeepProbing(p) {
		w.must(p.generation != w.generation || w.closed || h.left || h.serves() || h.state == Draining ||
			h.state == Retired, "%s, %s, is no longer probed", h.name, h.state)
		w.probes = append(w.probes[:at:at], w.probes[at+1:]...)
		return
	}
	if o, ok := w.s.Probed(p); ok && w.pick(2) == 0 {
		w.orders = append(w.orders, o)
	}
}

// start adds n instances that serve.
func (w *world) start(name string, n int) {
	for i := range n {
		h := &host{name: fmt.Sprint(name, i), state: Stale, capacity: 4}
		order, _, err := w.s.Join(w.now, h.name, h.capacity, i%2 == 0)
		require.NoError(w.t, err)
		h.handle = order.Instance
		w.instances = append(w.instances, h)
	}
	w.check()
	w.begin()
	w.check()
	w.orders = nil
	w.targets()
	for len(w.orders) > 0 {
		w.published(255)
		w.check()
	}
	w.s.Finish(w.now)
	w.check()
}

// calm adds instances that serve, answers everything and checks that each request ends.
func (w *world) calm() {
	w.start("calm-", w.cfg.MinServing)
	for len(w.calls) > 0 || w.one(paused) != nil || len(w.rests) > 0 {
		w.rest()
		w.check()
		w.enqueue(w.one(paused))
		w.check()
		w.settle(1)
		w.check()
	}
	w.must(w.one(queued) == nil, "the queue still holds requests")
}

// close closes the fleet and ends all calls.
func (w *world) close() {
	w.closed = true
	w.s.Close()
	w.check()
	awaited, late, _ := w.s.Targets()
	w.must(len(awaited)+len(late) == 0, "a closed fleet orders publishes")
	for len(w.calls) > 0 {
		w.settle(1)
		w.check()
	}
	for q := w.one(paused); q != nil; q = w.one(paused) {
		w.enqueue(q)
	}
	w.check()
}

// play runs all events and then the end.
func (w *world) play() {
	ends := w.pick(2)
	w.start("instance-", w.pick(6))
	for w.step() {
	}
	if ends == 0 {
		w.calm()
	}
	w.close()
	for _, q := range w.requests {
		w.must(false, "request %p is lost in phase %d", q.Request, q.phase)
	}
	for _, h := range w.instances {
		w.must(h.requests == 0, "%s still has %d requests", h.name, h.requests)
	}
}

// randomEvents returns the bytes of a random sequence of events.
func randomEvents(seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 3))
	data := make([]byte, 100+rng.IntN(600))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	return data
}

// Under any sequence of events, only instances that hold the current weights get work, each
// request ends once, and all books agree.
func TestMachineUnderRandomEvents(t *testing.T) {
	t.Parallel()
	verdicts := map[Next]int{}
	silent, rested := 0, 0
	for seed := range uint64(sequences) {
		w := newWorld(t, randomEvents(seed))
		w.logf("seed %d, %+v", seed, w.cfg)
		w.play()
		for next, n := range w.verdicts {
			verdicts[next] += n
		}
		silent += w.silent
		rested += w.rested
	}
	t.Logf("%d times silent, %d times busy; verdicts %v", silent, rested, verdicts)
	require.Greater(t, silent, sequences/40)
	require.Greater(t, rested, sequences/4)
	for _, next := range []Next{Answered, Cancelled, Failed, Retry} {
		require.Greater(t, verdicts[next], sequences/20, "verdict %d", next)
	}
}

func FuzzMachine(f *testing.F) {
	f.Add([]byte{})
	for seed := range uint64(8) {
		f.Add(randomEvents(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) { newWorld(t, data).play() })
}
