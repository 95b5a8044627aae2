package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/trainer"
	"github.com/easyrl/easyrl/trainer/verify"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// recomputed takes steps with the groups that a run recorded and compares what comes of them with its record.
type recomputed struct {
	*replay
	audit *audit
	first int // first step to take

	// Of the step in progress:
	groups     []rollout.Group
	advantages [][]float64 // as recorded, by group and response; NaN where none is
	leafFaults []string    // how linear sums of leaves differ from the recorded ones

	part *part // of the audited step; nil to recompute all of it
}

// alteredStart reports that the weights with which the steps begin are not those that the run recorded.
type alteredStart struct{ what, got, recorded string }

func (e alteredStart) Error() string {
	return fmt.Sprintf("%s have checksum %s, recorded %s", e.what, e.got, e.recorded)
}

// take takes the steps up to last.
func (r *recomputed) take(ctx context.Context, last int, save bool) error {
	steps, err := r.scheduleSteps(last)
	if err != nil {
		return err
	}
	if err := r.load(ctx); err != nil {
		return err
	}
	r.state.BestStep = 0 // its link is the run's
	r.noteSettings()
	if r.from == "" {
		r.note("starting from %s, the model that the run started from", r.folder.Source)
	} else {
		r.note("starting after step %d from %s", r.first-1, r.from)
	}
	if err := r.checkSampled(); err != nil {
		return err
	}
	partial := r.audit.of.Leaves > 0 && last == r.audit.of.Step
	if partial && r.cfg.Log.Audit {
		if err := r.choose(); err != nil {
			return err
		}
	}
	sources := false
	for name := range r.audit.record[r.first].Values {
		sources = sources || strings.HasPrefix(name, sourcePrefix)
	}
	rollouts := trainer.Rollouts{Publish: r.publish, Produce: r.produce, BySource: sources}
	if r.cfg.Log.Audit {
		rollouts.Leaves, rollouts.Select = r.compareLeaves, r.selects
	}
	err = r.train(ctx, trainer.Config{Steps: last, ScheduleSteps: steps, MaxNonFinite: math.MaxInt, Unsaved: !save},
		func(int, report.Values) {}, rollouts)
	switch {
	case errors.Is(err, errPart):
		return nil
	case err != nil:
		return err
	case partial:
		return r.checkPart(last)
	}
	return r.check(last)
}

// sourcePrefix begins the names of metrics of single data sources.
const sourcePrefix = "reward_by_source/"

// checkSampled checks the weights that sampled the last step of the checkpoint, which a run with the old policy of
// the previous step saves.
func (r *recomputed) checkSampled() error {
	models, whole := r.models.(*trimodel.Models)
	if !whole || r.from == "" || r.cfg.Loss.OldPolicy != loss.PreviousStep || !trimodel.HasSampled(r.from) {
		return nil
	}
	sum, err := models.Tensors(trimodel.Tensors{Role: backend.OldPolicy}).Sum()
	if recorded := r.audit.before(r.first - 1); err == nil && recorded != "" && sum != recorded {
		return alteredStart{fmt.Sprintf("the weights that sampled step %d", r.first-1), sum, recorded}
	}
	return err
}

// publish compares the weights before a step with the record, and the step before with all of its record.
func (r *recomputed) publish(_ context.Context, w inference.Weights) error {
	step := int(w.Version())
	if step > r.first {
		return r.check(step - 1)
	}
	switch recorded := r.audit.before(step); recorded {
	case "":
		r.warn("the run records no checksum of the weights before step %d: they are taken as they are", step)
	case w.Checksum():
	default:
		return alteredStart{fmt.Sprintf("the weights before step %d", step), w.Checksum(), recorded}
	}
	return nil
}

// produce returns the recorded groups of a batch. The trainer asks for a group again if its recorded
// log-probabilities are not the recomputed ones; produce then ends the step with the difference.
func (r *recomputed) produce(ctx context.Context, batch rollout.Batch) rollout.Stream {
	if batch.Only != nil {
		return failed{r.tokens(ctx, batch.Number)}
	}
	step, err := r.read(batch.Number)
	if err != nil {
		return failed{err}
	}
	if batch.Number == r.audit.of.Step && r.audit.of.Leaves > 0 && r.part == nil {
		return failed{r.logprobs(ctx, batch.Number)}
	}
	return step.start(batch.Number)
}

// failed is a stream without groups.
type failed struct{ err error }

// Groups implements rollout.Stream.
func (f failed) Groups() <-chan rollout.Group {
	none := make(chan rollout.Group)
	close(none)
	return none
}

// Wait implements rollout.Stream.
func (f failed) Wait() (rollout.Stats, error) { return rollout.Stats{}, f.err }

// read reads the recorded groups of a step.
func (r *recomputed) read(step int) (*recordedStep, error) {
	r.of.Rollouts = r.audit.groups(step)
	text, err := trainer.ReadRollouts(r.of.Rollouts)
	if err != nil {
		return nil, usage.Wrap(err)
	}
	if line := report.CutOff(r.of.Rollouts); line != "" {
		return nil, usage.Errorf("%s: the last line is cut off, expected whole lines", r.of.Rollouts)
	}
	groups, err := trainer.ParseGroups(r.of.Rollouts, text, r.folder.Shape)
	if err != nil {
		return nil, usage.Wrap(err)
	}
	if g := &groups[0]; g.Step != step || g.Version != int64(step) {
		return nil, differs("%s has step %d and version %d, expected %d of both",
			r.of.Rollouts, g.Step, g.Version, step)
	}
	if err := r.fit(groups); err != nil {
		return nil, differs("%v", usage.OneLine(err))
	}
	r.groups = r.replay.groups.groups
	r.advantages = make([][]float64, len(r.groups))
	exact := r.exact(step)
	for i := range r.groups {
		g := &r.groups[i]
		if exact && r.verifies(step, g) {
			g.Reject = func(error) {}
		}
		r.advantages[i] = make([]float64, len(g.Responses))
		for j := range g.Responses {
			r.advantages[i][j] = math.NaN()
			if a := g.Responses[j].Advantage; a != nil {
				r.advantages[i][j] = *a
			}
		}
	}
	r.note("step %d: recomputing %d groups", step, len(groups))
	return r.replay.groups, nil
}

// exact reports whether the instances that sampled a step compute the trainer's log-probabilities, bit for bit.
func (r *recomputed) exact(step int) bool {
	largest, found := r.audit.record[step].Values["mismatch/logprob_abs_max"]
	if !found { // nothing was computed, or not with the weights that sampled
		return r.cfg.Inference.Kind == configs.Embedded || remote.IsExact(r.cfg.Inference.Kind)
	}
	if largest > 0 {
		r.note("step %d: its instances compute other log-probabilities than the trainer, which are not compared token "+
			"by token", step)
	}
	return largest == 0
}

// tokens returns the difference between the recorded and the recomputed log-probabilities of the step in progress,
// one of which the trainer has found.
func (r *recomputed) tokens(ctx context.Context, step int) error {
	verifier := verify.Verifier{Models: r.models, Rows: r.cfg.Train.MicroBatchTokens}
	first, count, all := "", 0, 0
	for i := range r.groups {
		g := &r.groups[i]
		found, err := verifier.Differences(ctx, g)
		if err != nil {
			return err
		}
		all += len(g.Responses)
		count += len(found)
		if first == "" && len(found) > 0 {
			first = tokenName(g, found[0])
		}
	}
	switch {
	case count == 0:
		return errors.New("the recorded log-probabilities differ in training but not alone")
	case count == all && all > 1:
		return differs("step %d differs: all %d responses have other log-probabilities than recorded, so a setting "+
			"such as rollout.temperature was altered; the first is %s", step, all, first)
	}
	return differs("step %d differs: %s (%d of %d responses differ)", step, first, count, all)
}

// tokenName describes a token of g whose log-probability differs.
func tokenName(g *rollout.Group, d verify.Difference) string {
	return fmt.Sprintf("group %d (prompt %s), response %d, token %d: recorded log-probability %v, recomputed %v",
		g.Index, g.Prompt.ID, d.Response, d.Token, d.Recorded, d.Recomputed)
}

// joined joins what differs in one line.
func joined(faults []string) string { return strings.Join(faults, "; ") }

// line returns the line of a step that was taken.
func (r *recomputed) line(step int) (line report.Line, err error) {
	err = report.EachLine(filepath.Join(r.cfg.Run.Dir, report.MetricsFile), func(l report.Line) error {
		if int(l.Values["step"]) == step {
			line = l
		}
		return nil
	})
	return line, err
}

// check compares a step that was taken with its record.
func (r *recomputed) check(step int) error {
	got, err := r.line(step)
	if err != nil {
		return err
	}
	recorded, found := r.audit.record[step]
	if !found || recorded.Checksum == "" {
		r.warn("the run records no checksum of step %d", step)
		return nil
	}
	faults := r.checkAdvantages()
	metrics := compareMetrics(recorded.Values, got.Values)
	faults = append(faults, metrics...)
	faults = append(faults, r.leafFaults...)
	r.leafFaults = nil
	switch same := got.Checksum == recorded.Checksum; {
	case same && len(faults) == 0:
		r.note("step %d: the weights have checksum %s, as recorded", step, got.Checksum)
		return nil
	case !same:
		faults = slices.Insert(faults, 0, alteredStart{"the weights after it", got.Checksum, recorded.Checksum}.Error())
		if len(faults) == 1 {
			faults = append(faults, "no metric differs, so what was altered shows in none: the recorded checksum, the "+
				"optimizer state of the checkpoint, or a setting such as train.weight_decay")
		}
	}
	return differs("step %d differs: %s", step, joined(faults))
}

// checkAdvantages compares the recorded advantages of the last step with the recomputed ones.
func (r *recomputed) checkAdvantages() (faults []string) {
	count := 0
	for i := range r.groups {
		g := &r.groups[i]
		for j, recorded := range r.advantages[i] {
			got := *g.Responses[j].Advantage
			if math.IsNaN(recorded) || got == recorded {
				continue
			}
			if count++; count == 1 {
				faults = append(faults, fmt.Sprintf("group %d (prompt %s), response %d: recorded advantage %v, "+
					"recomputed %v from the recorded rewards", g.Index, g.Prompt.ID, j, recorded, got))
			}
		}
	}
	if count > 1 {
		faults[0] += fmt.Sprintf(" (%d advantages differ)", count)
	}
	return faults
}

// compareMetrics compares those metrics of a step that follow from its groups, weights and settings. It returns at
// most shown differences.
func compareMetrics(recorded, got report.Values) (faults []string) {
	const shown = 4
	all := report.Values{}
	for _, values := range []report.Values{recorded, got} {
		for name, v := range values {
			if follows(name) && report.Finite(v) { // others are not recorded
				all[name] = v
			}
		}
	}
	const groups = "groups/trained" // first, because all others differ too if a group is missing
	delete(all, groups)
	for _, name := range append([]string{groups}, all.Names()...) {
		was, recordedOne := recorded[name]
		now, gotOne := got[name]
		if was == now && recordedOne == gotOne {
			continue
		}
		text := func(v float64, found bool) string {
			if !found {
				return "none"
			}
			return fmt.Sprint(v)
		}
		fault := fmt.Sprintf("%s is recorded as %s, recomputed %s", name, text(was, recordedOne), text(now, gotOne))
		if name == "actor/lr" {
			fault += " (train.lr, train.schedule, train.warmup, train.min_lr, run.steps)"
		}
		faults = append(faults, fault)
	}
	if n := len(faults); n > shown {
		faults = append(faults[:shown], fmt.Sprintf("%d other metrics differ", n-shown))
	}
	return faults
}

// follows reports whether a metric follows from a step's groups, weights and settings.
func follows(name string) bool {
	switch name {
	case "version", "groups/trained":
		return true
	case "reward/retries", "reward/sampled_mean": // of what was not trained
		return false
	}
	group, _, _ := strings.Cut(name, "/")
	return slices.Contains([]string{"reward", "reward_by_source", "response_length", "prompt_length", "actor",
		"mismatch", "staleness", "tokens"}, group)
}
