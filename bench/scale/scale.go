package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
	"time"

	"golang.org/x/sys/unix"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/inference/simulate"
	"github.com/easyrl/easyrl/internal/indexed"
	"github.com/easyrl/easyrl/producer"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

const promptTokens = 100 // of each prompt

// scale holds the settings of a measurement; see the flags.
type scale struct {
	instances, prompts, group, maxTokens int
	cfg                                  simulate.Config
	ahead                                float64 // the fleet's setting
	inFlight                             int     // the producer's setting
}

// result holds the figures of a measurement.
type result struct {
	groups        int
	tokens        int64
	publish       time.Duration
	wall, ideal   time.Duration // of the step
	work          time.Duration // busy time summed over slots
	slots         int           // over all instances
	prefill       time.Duration // per instance, on average
	cpu           time.Duration // processor time of the process during the step
	before, after uint64        // live bytes
	early, late   uint64        // peak live bytes in the second and in the last quarter
	goroutines    int           // peak
}

func (r *result) cores() float64 { return r.cpu.Seconds() / r.wall.Seconds() }

// idle returns the share of a step in which slots have no response. Prefill does not
// count: it blocks all slots of its instance.
func (r *result) idle(step time.Duration) float64 {
	return 1 - r.work.Seconds()/float64(r.slots)/(step-r.prefill).Seconds()
}

// weights is a weight version without values.
type weights int64

func (w weights) Version() int64                   { return int64(w) }
func (w weights) Checksum() string                 { return "none" }
func (w weights) WriteSafetensors(io.Writer) error { return nil }

// unscored is a reward that costs nothing.
type unscored struct{}

func (unscored) Score(context.Context, reward.Input) (reward.Score, error) {
	return reward.Score{}, nil
}

// measure runs a step through the producer, the fleet and the simulated instances.
func (s *scale) measure(ctx context.Context) (*result, error) {
	r := &result{slots: s.instances * s.cfg.Slots, before: liveBytes()}
	fc := fleet.DefaultConfig()
	if s.ahead >= 0 {
		fc.Ahead = s.ahead
	}
	f, err := fleet.New(fc)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // closed below on success
	clock := simulate.NewClock()
	instances := make([]*simulate.Instance, s.instances)
	for i := range instances {
		cfg := s.cfg
		cfg.ID = fmt.Sprint("instance-", i)
		if instances[i], err = simulate.New(cfg, clock); err != nil {
			return nil, err
		}
		if err := f.Add(ctx, instances[i]); err != nil {
			return nil, err
		}
	}
	start := time.Now()
	if err := f.Publish(ctx, weights(1)); err != nil {
		return nil, err
	}
	r.publish = time.Since(start)
	pc := producer.DefaultConfig()
	pc.InFlight, pc.GroupSize, pc.Seed = s.inFlight, s.group, 1
	pc.Sampling = inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: s.maxTokens}
	p, err := producer.New(pc, producer.Deps{Fleet: f, Reward: unscored{}})
	if err != nil {
		return nil, err
	}
	lengths, err := s.step(ctx, p, r)
	if err != nil {
		return nil, err
	}
	for _, i := range instances {
		stats := i.Stats()
		r.work += stats.Busy
		r.prefill += stats.Prefill / time.Duration(s.instances)
	}
	r.ideal = listSchedule(lengths, s.cfg.TokensPerSecond, r.slots) + r.prefill
	if err := f.Close(); err != nil {
		return nil, err
	}
	r.after = liveBytes()
	return r, nil
}

// step runs the prompts and returns the lengths of the responses in prompt order.
func (s *scale) step(ctx context.Context, p *producer.Producer, r *result) ([]int32, error) {
	batch := rollout.Batch{Number: 1, Version: 1, Prompts: make([]rollout.Prompt, s.prompts)}
	for i := range batch.Prompts {
		ids := make([]int32, promptTokens)
		ids[0] = int32(i)
		batch.Prompts[i] = rollout.Prompt{ID: fmt.Sprint(i), IDs: ids}
	}
	start, cpu := time.Now(), processorTime()
	stream := p.Start(ctx, batch)
	lengths := make([]int32, s.prompts*s.group)
	for g := range stream.Groups() {
		for k := range g.Responses {
			length := &lengths[g.Index*s.group+k]
			if *length != 0 {
				return nil, fmt.Errorf("prompt %d came twice", g.Index)
			}
			*length = int32(g.Responses[k].Spans.Tokens())
			r.tokens += int64(*length)
		}
		r.groups++
		if r.groups%100 != 0 {
			continue
		}
		r.goroutines = max(r.goroutines, runtime.NumGoroutine())
		switch 4 * r.groups / s.prompts {
		case 1:
			r.early = max(r.early, lastLiveBytes())
		case 3:
			r.late = max(r.late, lastLiveBytes())
		}
	}
	_, err := stream.Wait()
	r.cpu, r.wall = processorTime()-cpu, time.Since(start)
	if err != nil {
		return nil, err
	}
	if r.groups != s.prompts {
		return nil, fmt.Errorf("%d groups of %d prompts", r.groups, s.prompts)
	}
	return lengths, nil
}

// listSchedule returns how long responses of these lengths, in tokens, take if each in
// turn goes to the first free slot. perSecond is the tokens per second of a slot.
func listSchedule(lengths []int32, perSecond float64, slots int) time.Duration {
	free := indexed.New(func(a, b int64) bool { return a < b }, nil) // tokens until a slot is free
	for range slots {
		free.Push(0)
	}
	last := int64(0)
	for _, n := range lengths {
		end := free.Pop() + int64(n)
		free.Push(end)
		last = max(last, end)
	}
	return time.Duration(float64(last) / perSecond * float64(time.Second))
}

// goroutineRecord is roughly the size in bytes of the record that Go keeps of an ended
// goroutine, for reuse. Go keeps as many records as goroutines ever ran at once.
const goroutineRecord = 512

// liveBytes returns the number of live bytes after a garbage collection, which it runs.
func liveBytes() uint64 {
	runtime.GC()
	return lastLiveBytes()
}

// lastLiveBytes returns the number of bytes that the last garbage collection found live.
func lastLiveBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// processorTime returns the processor time of this process so far.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
