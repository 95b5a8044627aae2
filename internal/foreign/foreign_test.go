package foreign

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ours lists last parts of configuration keys that other programs use for the same setting.
const ours = " lr temperature top_p top_k seed beta weight_decay epsilon_high max_tokens stop min_lr clip_grad " +
	"shuffle prompt_key model.path group_size "

// testdata/names.txt lists the settings of TRL 0.19 and 1.16, Transformers 5.23, OpenRLHF 0.6 and
// 0.11, verl 0.9, prime-rl and vLLM, as their configuration classes and files declare them. Each
// has a meaning, or is a key here.
func TestSettingsOfOtherPrograms(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/names.txt")
	require.NoError(t, err)
	found := map[string]int{}
	for line := range strings.Lines(string(text)) {
		program, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		last := name[strings.LastIndexByte(name, '.')+1:]
		_, ok := Lookup(name)
		same := strings.Contains(ours, " "+last+" ") || strings.HasSuffix(name, "model.path")
		require.True(t, ok || same, "%s of %s", name, program)
		if ok {
			found[program]++
		}
	}
	for program, least := range map[string]int{"trl": 100, "transformers": 100, "openrlhf": 150, "verl": 150,
		"prime-rl": 25, "vllm": 30} {
		require.GreaterOrEqual(t, found[program], least, program)
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	for want, names := range map[string]string{
		"train.lr": "learning_rate --learning-rate actor_rollout_ref.actor.optim.lr actor.optim.lr " +
			"trainer.optim.lr LEARNING_RATE train.learning_rate",
		"run.steps": "max_steps num_train_epochs trainer.total_epochs epochs run.epochs " +
			"total_training_steps num_episodes",
		"rollout.group_size": "num_generations rollout.n actor_rollout_ref.rollout.n n_samples_per_prompt " +
			"rollouts_per_example",
		"rollout.prompts_per_step": "per_device_train_batch_size data.train_batch_size rollout_batch_size " +
			"gradient_accumulation_steps orchestrator.batch_size",
		"rollout.max_tokens": "max_completion_length max_new_tokens data.max_response_length generate_max_len " +
			"orchestrator.train.sampling.max_completion_tokens",
		"data.max_prompt_tokens": "max_prompt_length data.max_prompt_length prompt_max_len",
		"loss.beta": "kl_coef init_kl_coef actor_rollout_ref.actor.kl_loss_coef " +
			"algorithm.kl_ctrl.kl_coef algo.kl.init_coef",
		"loss.epsilon_low":         "epsilon clip_ratio eps_clip cliprange actor.eps_clip",
		"loss.epsilon_high":        "clip_ratio_high actor_rollout_ref.actor.clip_ratio_high",
		"loss.dual_clip":           "clip_ratio_c delta",
		"loss.aggregation":         "loss_agg_mode actor.loss_agg_mode",
		"loss.advantage":           "adv_estimator algorithm.adv_estimator advantage_estimator scale_rewards",
		"train.warmup":             "warmup_steps warmup_ratio lr_warmup_steps",
		"train.clip_grad":          "max_grad_norm grad_clip max_norm",
		"train.minibatches":        "ppo_mini_batch_size actor.ppo_mini_batch_size num_mini_batches",
		"train.recompute":          "gradient_checkpointing model.enable_gradient_checkpointing",
		"train.micro_batch_tokens": "ppo_max_token_len_per_gpu micro_train_batch_size",
		"checkpoint.every":         "save_steps trainer.save_freq ckpt.interval",
		"checkpoint.keep":          "save_total_limit max_ckpt_num ckpt.keep_last",
		"eval.every":               "eval_steps trainer.test_freq eval.steps eval.interval",
		"eval.k":                   "val_kwargs.n eval.n actor_rollout_ref.rollout.val_kwargs.n",
		"eval.temperature":         "val_kwargs.temperature",
		"model.path":               "model_name_or_path pretrain model.name",
		"data.train":               "data.train_files prompt_data dataset_name",
		"log.to":                   "report_to trainer.logger use_wandb",
		"reward.command":           "reward_funcs custom_reward_function.path",
		"reward.url":               "remote_rm_url",
		"inference.endpoints":      "vllm_server_base_url base_url vllm_server_host",
		"inference.max_running":    "max_num_seqs",
		"parallel.tp":              "tp_size",
		"run.dir":                  "output_dir trainer.default_local_dir save_path",
		"run.name":                 "run_name trainer.experiment_name wandb_run_name wandb.name",
		"reward.parts.NAME.weight": "reward_weights",
		"rollout.dynamic_sampling": "algorithm.filter_groups.enable dynamic_filtering",
		"loss.correction":          "vllm_importance_sampling_correction rollout_is",
		"" /* they have no key */ : "bf16 critic.optim.lr lora_r adam_epsilon ppo_epochs hub_model_id deepspeed " +
			"n_gpus_per_node wandb_project num_iterations actor_rollout_ref.rollout.mtp trainer.v1.x",
		"data.prompt_key":        "input_key dataset_text_field",
		"data.answer_key":        "label_key",
		"sft.response_key":       "output_key data.output_key",
		"inference.kind":         "use_vllm actor_rollout_ref.rollout.name",
		"inference.instances":    "vllm_num_engines vllm.num_engines",
		"device.kind":            "trainer.device use_cpu",
		"control.listen":         "host port",
		"train.beta2":            "adam_beta2 betas2 optim.betas",
		"train.schedule":         "lr_scheduler_type",
		"loss.kl":                "kl_loss_type kl_estimator",
		"loss.kind":              "loss_type policy_loss.loss_mode",
		"reward.kind":            "reward_manager",
		"data.weights":           "prompt_data_probs",
		"run.seed":               "data_seed",
		"run.mode":               "max_off_policy_steps async_train",
		"eval.prompts":           "val_max_samples eval.num_examples",
		"data.template":          "apply_chat_template",
		"loss.correction_high":   "vllm_importance_sampling_cap",
		"sft.turns":              "multiturn",
		"reward.parts.NAME.kind": "mask_truncated_completions",
		"inference.token_file":   "api_key",
	} {
		for name := range strings.FieldsSeq(names) {
			setting, ok := Lookup(name)
			require.True(t, ok, name)
			require.Equal(t, want, setting.Key, name)
		}
	}
	for _, name := range []string{"", ".", "run", "wibble", "train.wibble", "steps", "rollout.grop_size",
		"kind", "a.b"} {
		_, ok := Lookup(name)
		require.False(t, ok, name)
	}
	setting, _ := Lookup("warmup_ratio")
	require.Equal(t, "use train.warmup, in steps: the ratio times run.steps", setting.String())
	setting, _ = Lookup("bf16")
	require.Equal(t, "easyrl always computes in float32", setting.String())
	setting, _ = Lookup("learning_rate")
	require.Equal(t, "use train.lr", setting.String())
}

// A name has one meaning, and each setting without a key says why.
func TestTable(t *testing.T) {
	t.Parallel()
	seen, names := map[string]bool{}, 0
	require.Len(t, tables(), 2)
	for _, r := range slices.Concat(tables()...) {
		require.True(t, r.Key != "" || r.Note != "", r.names)
		require.LessOrEqual(t, len(r.Note), 120, r.Note)
		for _, name := range r.names {
			require.False(t, seen[name], name)
			require.Equal(t, normalize(name), name)
			seen[name] = true
			names++
		}
	}
	require.Greater(t, names, 700)
}
