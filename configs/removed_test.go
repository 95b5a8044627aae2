package configs

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every key that ever existed still works or has a message that says what to use instead.
// New keys are not listed here; docs/configuration.md has them.
func TestNoKeyIsForgotten(t *testing.T) {
	t.Parallel()
	known := Keys()
	for _, r := range removedKeys() {
		known = append(known, r.key)
	}
	require.Subset(t, known, strings.Fields(`
		run.name run.dir run.seed run.steps run.mode
		model.path
		model.init.config model.init.tokenizer model.init.hidden_size model.init.layers model.init.heads
		model.init.kv_heads model.init.head_dim model.init.ffn model.init.vocab_size
		data.train data.weights data.eval data.prompt_key data.answer_key data.source_key data.template `+
		`data.system data.thinking
		data.max_prompt_tokens data.shuffle
		rollout.prompts_per_step rollout.group_size rollout.temperature rollout.top_p rollout.top_k rollout.min_p
		rollout.max_tokens rollout.refill rollout.stop
		reward.kind reward.think reward.trim reward.flexible reward.format_score reward.pattern reward.compare `+
		`reward.tags
		reward.start reward.max_tokens reward.buffer reward.words reward.penalty reward.command reward.processes
		reward.memory_gib reward.url reward.requests reward.batch reward.timeout reward.retries
		loss.kind loss.epsilon_low loss.epsilon_high loss.dual_clip loss.beta loss.kl loss.aggregation loss.constant
		loss.advantage loss.old_policy loss.correction loss.correction_low loss.correction_high loss.filter loss.keep
		loss.overlong
		train.lr train.schedule train.warmup train.min_lr train.beta1 train.beta2 train.eps train.weight_decay
		train.clip_grad train.micro_batch_tokens train.order train.minibatches train.recompute
		sft.data sft.weights sft.eval sft.prompt_key sft.response_key sft.turns sft.steps sft.batch_size
		inference.kind inference.instances inference.threads inference.max_running inference.endpoints
		inference.min_instances inference.wait_seconds inference.weights_dir inference.watch inference.token_file
		device.kind device.threads
		parallel.dp parallel.tp parallel.pp
		checkpoint.every checkpoint.keep
		eval.every eval.k eval.temperature eval.top_p eval.top_k eval.prompts
		log.rollouts log.trace log.to
		control.listen control.token_file`))
}

// A file may set a removed key to its last default, as the run.toml of an older run does.
// Any other value is an error, and so is every -set.
func TestRemovedKeys(t *testing.T) {
	t.Parallel()
	other := map[reflect.Kind]string{reflect.String: `"x"`, reflect.Float64: "0.125", reflect.Int64: "3",
		reflect.Slice: "[1.5]"}
	for _, r := range removedKeys() {
		t.Run(r.key, func(t *testing.T) {
			t.Parallel()
			require.NotContains(t, Keys(), r.key)
			old := reflect.ValueOf(r.old)
			text := format(old)
			_, err := Load(write(t, r.key+" = "+text), nil)
			require.NoError(t, err)
			_, err = Load(nil, []string{r.key + "=" + text})
			require.EqualError(t, err, "-set: "+r.key+" "+r.instead)
			another := other[old.Kind()]
			if old.Kind() == reflect.Bool {
				another = fmt.Sprint(!old.Bool())
			}
			files := write(t, r.key+" = "+another)
			_, err = Load(files, nil)
			require.ErrorContains(t, err, files[0]+":1: "+r.key+" "+r.instead+"\n")
		})
	}
	files := write(t,
		"[reward.parts.late]\nkind = \"overlong\"\nbuffer = 5\nmax_tokens = 20\n[reward.sources.x]\nretries = 2\n")
	_, err := Load(files, nil)
	require.ErrorContains(t, err, ":4: reward.parts.late.max_tokens was removed: the limit is rollout.max_tokens")
}

// Messages about removed keys name existing keys only.
func TestRemovedKeysNameKeys(t *testing.T) {
	t.Parallel()
	for _, r := range removedKeys() {
		for _, key := range regexp.MustCompile(`\b[a-z]+(\.[a-z_]+)+`).FindAllString(r.instead, -1) {
			if key == "config.json" || key == "trace.json" {
				continue
			}
			require.True(t, slices.Contains(Keys(), key), "%s: %s", r.key, key)
		}
	}
}
