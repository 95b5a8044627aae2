package foreign

// Notes that several rows share.
const (
	stepsNote    = "in steps: epochs × prompts / rollout.prompts_per_step (sft.steps for easyrl sft)"
	sftSteps     = "or sft.steps for easyrl sft"
	promptsNote  = "in prompts (sft.batch_size for easyrl sft)"
	samplesNote  = "in prompts of a whole step: responses / rollout.group_size (sft.batch_size for easyrl sft)"
	microNote    = "in tokens per forward and backward pass"
	serversNote  = "as URLs such as http://127.0.0.1:8000, and inference.kind"
	warmupNote   = "in steps: the ratio times run.steps"
	rewardNote   = `and reward.kind = "command" (a program) or "http" (a service)`
	epsilonNote  = "and loss.epsilon_high for the upper bound"
	lossKindNote = `one of "grpo", "gspo", "gspo-token", "cispo" and "reinforce"; variants are set by loss.aggregation and loss.advantage`
)

// keys lists the settings that have a key.
func keys() []row {
	var all []row
	for _, table := range [][]row{runKeys(), dataKeys(), samplingKeys(), lossKeys(), trainKeys(), otherKeys()} {
		all = append(all, table...)
	}
	return all
}

func runKeys() []row {
	return []row{
		{"run.steps", sftSteps, "max_steps total_training_steps max_train_steps num_steps n_steps total_steps training_steps iterations num_training_steps max_iterations"},
		{"run.steps", stepsNote, "epochs epoch num_train_epochs total_epochs max_epochs num_epochs n_epochs num_episodes total_episodes train.num_episodes"},
		{"run.dir", "", "output_dir output_path save_path save_dir default_local_dir logging_dir log_dir out_dir output ckpt_path ckpt.path ckpt.output_dir checkpoint_dir " +
			"tensorboard_dir default_hdfs_dir rollout_data_dir"},
		{"run.name", "", "run_name experiment_name exp_name wandb_run_name wandb.run_name wandb.name job_name"},
		{"run.seed", "", "data_seed random_seed rng_seed data_loader_seed"},
		{"run.mode", `"periodic-async", "sync" or "colocated"`, "async_train async_enable train.async_enable colocate_all_models colocate_all vllm_mode hybrid_engine " +
			"colocate_actor_ref trainer_mode max_async_level max_off_policy_steps async_queue_size max_staleness staleness_threshold async_steps"},
		{"model.path", "", "model_name_or_path model_name model_id pretrained_model_name_or_path pretrain pretrained model.name model_path base_model policy_model actor_model " +
			"hf_path hf_model_path checkpoint_path init_from model.pretrain tokenizer_name_or_path tokenizer_path tokenizer.name hf_config_path model"},
	}
}

func dataKeys() []row {
	return []row{
		{"data.train", "as files in JSON lines, JSON or Parquet (sft.data for easyrl sft)", "train_files train_file training_files dataset_name dataset dataset_path train_dataset train_data prompt_data " +
			"prompt_dataset data_files data_path dataset_train_split prompt_split train_split dataset_config data_dir datasets"},
		{"data.weights", "", "prompt_data_probs prompt_probs dataset_probs pretrain_data_probs env_ratios interleave_probs"},
		{"data.eval", "", "val_files val_file eval_dataset eval_data validation_files test_files eval_files eval.dataset test_data dataset_test_split eval_split val_data eval_file"},
		{"data.prompt_key", "", "input_key dataset_text_field prompt_column text_field prompt_field question_key messages_key input_field query_key text_column"},
		{"data.answer_key", "", "label_key answer_column ground_truth_key target_key solution_key reference_key reward_fn_key label_field answer_field"},
		{"sft.response_key", "", "output_key response_column completion_key response_field"},
		{"data.template", `"auto", "chat" or "none"`, "apply_chat_template use_chat_template custom_chat_template chat_template_path return_raw_chat input_template"},
		{"data.system", "", "system_prompt system_message"},
		{"data.thinking", "", "enable_thinking enable_thinking_default chat_template_kwargs"},
		{"data.max_prompt_tokens", "", "max_prompt_length prompt_max_len prompt_length max_prompt_len max_input_length max_input_len filter_overlong_prompts truncation truncation_mode"},
		{"data.shuffle", "", "shuffle_dataset shuffle_data train_sampling_strategy validation_shuffle"},
		{"eval.prompts", "", "val_max_samples max_eval_samples num_eval_examples eval_samples eval.num_examples val.num_examples"},
	}
}

func samplingKeys() []row {
	return []row{
		{"rollout.group_size", "", "num_generations n_samples_per_prompt num_return_sequences rollouts_per_example n num_samples_per_prompt rollout.n group num_rollouts " +
			"rollout_n samples_per_prompt rloo_k num_samples generations_per_prompt best_of"},
		{"rollout.prompts_per_step", "", "data.train_batch_size rollout_batch_size gen_batch_size rollout.batch_size vllm_generate_batch_size prompts_per_batch n_prompts num_prompts"},
		{"rollout.prompts_per_step", samplesNote, "per_device_train_batch_size generation_batch_size orchestrator.batch_size global_batch_size train.batch_size gradient_accumulation_steps " +
			"accumulation_steps grad_accum_steps gradient_accumulation per_gpu_train_batch_size steps_per_generation"},
		{"rollout.prompts_per_step", promptsNote, "train_batch_size batch_size bsz num_prompts_per_step"},
		{"rollout.max_tokens", "", "max_completion_length max_new_tokens max_response_length generate_max_len response_length max_completion_tokens max_tokens_per_response " +
			"max_output_tokens max_output_len max_gen_len max_generation_length max_response_tokens"},
		{"rollout.max_tokens", "with data.max_prompt_tokens; the model sets the context", "max_model_len max_seq_length max_seq_len max_length seq_len vllm_max_model_length max_len model_max_length max_sequence_length context_length block_size"},
		{"rollout.temperature", "", "sampling_temperature gen_temperature actor_temperature temp"},
		{"rollout.stop", "", "stop_strings stop_sequences stop_words stop_tokens"},
		{"rollout.dynamic_sampling", "the number of times per step that a prompt is replaced", "filter_groups.enable filter_groups.max_num_gen_batches dynamic_filtering dynamic_filtering_enable dynamic_sampling_max_gen_batches " +
			"online_difficulty_filtering dynamic_sampling_filter filter_groups zero_variance_filter"},
		{"eval.k", "", "val_kwargs.n eval.n eval_n_samples_per_prompt eval.n_samples_per_prompt num_generations_eval eval.rollouts_per_example val.rollouts_per_example eval.group_size eval_k val_n"},
		{"eval.temperature", "", "val_kwargs.temperature eval_temperature val_temperature"},
		{"eval.temperature", "0 for greedy", "val_kwargs.do_sample"},
		{"eval.top_p", "", "val_kwargs.top_p eval_top_p"},
		{"eval.top_k", "", "val_kwargs.top_k eval_top_k"},
		{"rollout.temperature", "more than 0; eval.temperature may be 0", "do_sample"},
	}
}

func lossKeys() []row {
	return []row{
		{"loss.kind", lossKindNote, "loss_type loss_mode policy_loss_type algorithm algo importance_sampling_level policy_loss policy_loss.loss_mode rl_algorithm objective loss.type"},
		{"loss.beta", "", "kl_coef init_kl_coef kl_loss_coef kl_coeff kl_beta kl_penalty_coef kl_ctrl.kl_coef kl.init_coef kl_weight beta_kl ppo_kl_coef kl_coefficient kl_lambda kl_loss_weight"},
		{"loss.beta", "more than 0 for a divergence from the reference model, which enters the loss", "use_kl_loss kl.use_loss use_kl_in_reward use_kl use_reference_model"},
		{"loss.kl", `"k2" or "k3"`, "kl_loss_type kl_penalty kl_estimator kl.estimator kl_type kl_estimator_type"},
		{"loss.epsilon_low", epsilonNote, "epsilon clip_ratio eps_clip clip_range cliprange clip_eps clip_epsilon ppo_clip eps_clip_low_high clip_param ppo_clip_ratio eps"},
		{"loss.epsilon_low", "", "clip_ratio_low eps_clip_low epsilon_lower clip_low cliprange_low"},
		{"loss.epsilon_high", "", "clip_ratio_high eps_clip_high epsilon_upper clip_high cliprange_high"},
		{"loss.dual_clip", "", "clip_ratio_c delta actor.dual_clip dual_clip_ratio"},
		{"loss.aggregation", `"token-mean", "sequence-mean" or "constant"`, "loss_agg_mode loss_aggregation aggregation_mode loss_scale_factor agg_mode normalize_by token_level_loss"},
		{"loss.advantage", "", "adv_estimator advantage_estimator advantage.estimator adv_estimation"},
		{"loss.advantage", `"group" with and "group-mean" without the standard deviation`, "scale_rewards norm_adv_by_std_in_grpo no_advantage_std_norm advantage.no_std_norm normalize_advantages whiten_advantages"},
		{"loss.correction", `"truncate" or "mask", and loss.correction_high`, "vllm_importance_sampling_correction vllm_importance_sampling_mode rollout_is tis enable_vllm_is_correction use_tis is_correction_mode " +
			"is_correction_level rollout_correction.rollout_is rollout_correction.bypass_mode"},
		{"loss.correction_high", "", "vllm_importance_sampling_cap vllm_importance_sampling_clip_max rollout_is_threshold tis_imp_ratio_cap is_correction_threshold tis_cap"},
		{"loss.old_policy", "", "old_policy_mode use_old_policy"},
	}
}

func trainKeys() []row {
	return []row{
		{"train.lr", "", "learning_rate actor_learning_rate base_lr max_lr peak_lr optim.lr adam.lr actor_lr policy_lr init_lr lr_actor"},
		{"train.schedule", `"constant", "linear" or "cosine"`, "lr_scheduler_type lr_scheduler scheduler lr_schedule warmup_style lr_decay_style scheduler.type scheduler_type decay_style"},
		{"train.warmup", "", "warmup_steps lr_warmup_steps num_warmup_steps warmup_iters warmup_step lr_warmup_iters"},
		{"train.warmup", warmupNote, "warmup_ratio lr_warmup_ratio lr_warmup_steps_ratio warmup_fraction"},
		{"train.min_lr", "", "min_lr_ratio min_lr_rate lr_min_ratio"},
		{"train.min_lr", "a fraction of train.lr", "scheduler.min_lr min_learning_rate lr_end"},
		{"train.beta2", "", "adam_beta2 betas2 adam_b2 optim.betas2"},
		{"train.beta2", "the second of them; the first is always 0.9", "betas adam_betas adam.betas optim.betas"},
		{"train.weight_decay", "", "l2 wd adam.weight_decay l2_reg"},
		{"train.clip_grad", "", "max_grad_norm max_norm grad_clip gradient_clip gradient_clipping gradient_clip_val clip_grad_norm grad_norm_clip max_gradient_norm optim.max_norm grad_max_norm"},
		{"train.micro_batch_tokens", microNote, "ppo_micro_batch_size ppo_micro_batch_size_per_gpu micro_batch_size micro_batch_size_per_gpu micro_train_batch_size ppo_max_token_len_per_gpu max_tokens_per_gpu " +
			"max_token_len_per_gpu log_prob_micro_batch_size log_prob_micro_batch_size_per_gpu log_prob_max_token_len_per_gpu micro_rollout_batch_size use_dynamic_bsz log_prob_use_dynamic_bsz " +
			"dynamic_batch_enable train.micro_batch_size use_dynamic_batch_size token_batch_size mini_batch_tokens"},
		{"train.minibatches", "how many there are in a step: prompts per step / mini-batch size", "ppo_mini_batch_size mini_batch_size num_mini_batches num_minibatches minibatch_size ppo_minibatch_size num_mini_batch"},
		{"train.recompute", "", "gradient_checkpointing activation_checkpointing enable_gradient_checkpointing gradient_checkpointing_enable use_gradient_checkpointing model.ac recompute_activations activation_recompute " +
			"gradient_checkpointing_kwargs recompute_granularity"},
		{"device.kind", "", "device accelerator use_cpu no_cuda trainer.device device_type"},
		{"device.threads", "", "num_threads omp_num_threads n_threads torch_num_threads num_cpus"},
		{"parallel.dp", "", "data_parallel_size dp_size num_gpus n_gpus dp_replicate nproc_per_node world_size"},
		{"parallel.tp", "", "tensor_parallel tp_size tensor_model_parallel tensor_parallel_degree model.tp"},
		{"parallel.pp", "", "pipeline_parallel_size pp_size pipeline_model_parallel_size"},
		{"sft.turns", `"last" or "all"`, "multiturn assistant_only_loss train_on_turns train_all_turns"},
	}
}

func otherKeys() []row {
	return []row{
		{"checkpoint.every", "", "save_steps save_freq save_interval save_every checkpoint_interval ckpt.interval checkpoint_freq ckpt.save_steps checkpoint.interval checkpoint.steps save_every_n_steps ckpt_interval " +
			"checkpoint_every save_strategy"},
		{"checkpoint.keep", "", "save_total_limit max_ckpt_num max_actor_ckpt_to_keep max_ckpt_to_keep keep_last ckpt.max_num max_checkpoints keep_last_n max_to_keep num_checkpoints_to_keep"},
		{"eval.every", "", "eval_steps test_freq eval_freq eval_interval eval.steps val_freq eval.interval val.interval validation_freq eval_every val_check_interval evaluation_strategy eval_strategy " +
			"val_every eval_every_n_steps do_eval val_before_train eval_on_start"},
		{"log.to", `"tensorboard", "csv" or "mlflow=http://host:5000"`, "report_to logger loggers use_tensorboard use_wandb trainer.logger log_with tracker tracking wandb use_mlflow"},
		{"log.rollouts", "", "log_completions log_val_generations log_unique_prompts save_rollouts log_rollouts num_completions_to_print"},
		{"reward.kind", "", "reward_manager reward_type reward_manager.name reward_fn.name reward_name reward_style"},
		{"reward.command", rewardNote, "reward_funcs reward_function reward_func custom_reward_function custom_reward_function.path custom_reward_function.name reward_fn reward_function_path reward_functions rewards agent_func_path"},
		{"reward.url", `and reward.kind = "http"`, "remote_rm_url remote_url reward_model_url reward_url rm_url sandbox_fusion.url reward_server reward_endpoint"},
		{"reward.parts.NAME.weight", `with reward.kind = "sum"`, "reward_weights reward_weight"},
		{"reward.concurrency", "", "reward_num_workers reward_model.num_workers reward.num_workers sandbox_fusion.max_concurrent reward_workers num_reward_workers"},
		{"reward.timeout", "in seconds", "reward_timeout reward_fn_timeout"},
		{"reward.buffer", `with reward.kind = "overlong"`, "overlong_buffer_len overlong_buffer.len overlong_buffer soft_overlong_buffer"},
		{"reward.parts.NAME.kind", `"overlong", with reward.kind = "sum"`, "overlong_penalty_factor mask_truncated_completions overlong_buffer.penalty_factor overlong_filtering"},
		{"inference.endpoints", serversNote, "vllm_server_base_url vllm_server_host vllm_server_port base_url server_url server_urls vllm_server_url api_base openai_api_base client.base_url inference_url server_host server_port"},
		{"inference.kind", `"embedded", "easyrl", "vllm" or "sglang"`, "use_vllm rollout.name backend rollout_backend inference_backend use_sglang vllm_sync_backend vllm_sync_with_ray inference_engine generation_backend weight_sync_backend"},
		{"inference.instances", "", "vllm_num_engines num_engines num_inference_engines vllm.num_engines num_vllm_engines n_engines num_replicas rollout_num_engines num_inference_workers"},
		{"inference.max_running", "", "max_num_seqs max_inflight_rollouts max_concurrent max_running_requests max_batch_size max_concurrency max_num_sequences max_concurrent_requests"},
		{"inference.token_file", "a file with the token", "api_key vllm_api_key auth_token client.api_key"},
		{"inference.wait_seconds", "in seconds", "vllm_server_timeout server_timeout init_timeout connection_timeout"},
		{"control.listen", `such as "127.0.0.1:7000"`, "host port listen listen_address dashboard_port metrics_port prometheus_port status_port"},
	}
}
