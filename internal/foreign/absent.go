package foreign

// absent lists the settings for which there is no key, and why.
func absent() []row {
	return []row{
		{"", "easyrl always computes in float32", "bf16 fp16 dtype torch_dtype tf32 bf16_full_eval fp16_full_eval precision mixed_precision param_dtype model_dtype optimization_dtype reduce_dtype grad_accum_dtype " +
			"cast_lm_head_to_fp32 amp half_precision compute_dtype"},
		{"", "easyrl always uses AdamW", "optim optimizer optimizer_name optimizer_type optim.type optimizer.type optim_args optim_target_modules optimizer_impl override_optimizer_config muon.* momentum nesterov"},
		{"", "easyrl's own kernels are always deterministic", "full_determinism full_determinism_enable deterministic use_deterministic_algorithms"},
		{"", "AdamW's first decay rate is always 0.9", "adam_beta1 betas1 beta1 adam_b1"},
		{"", "AdamW's epsilon is always 1e-8", "adam_epsilon adam_eps adam.eps optim.eps adamw_eps"},
		{"", "easyrl trains each group in one pass over its data", "num_iterations ppo_epochs ppo_epoch inner_epochs num_ppo_epochs off_policy_epochs mu update_epochs"},
		{"", "easyrl trains all weights, without adapters", "use_peft use_lora use_rslora use_dora lora_* lora lora.* peft_* peft target_modules qlora modules_to_save exclude_modules init_lora_weights"},
		{"", "easyrl does not quantize weights", "load_in_4bit load_in_8bit bnb_* use_bnb_nested_quant quantization quantization_config quantize fp8 quantization_config_file qat qat.* kv_cache_dtype"},
		{"", "easyrl has no critic: advantages come from groups or batches", "critic critic.* critic_* gae_lambda lam lambd gamma advantage.gamma advantage.lambd vf_coef value_clip value_loss_coef cliprange_value " +
			"freezing_actor_steps value_head_prefix save_value_network value_coef vf_lr discount"},
		{"", "easyrl has no entropy bonus", "entropy_coef entropy_coeff entropy_* ent_coef use_adaptive_entropy top_entropy_quantile entropy_bonus actor.entropy_coef calculate_entropy"},
		{"", "the reference model is always the starting weights", "sync_ref_model ref_model_* ref_reward_offload ref.* ref_model reference_model ref_num_nodes ref_num_gpus_per_node ref_policy enable_ema ema_beta"},
		{"", "the weight of the divergence is constant", "kl_target target_kl kl_horizon kl_ctrl.type kl_ctrl.horizon kl_ctrl.target_kl kl.target kl.horizon kl_ctrl adap_kl_ctrl horizon"},
		{"", "easyrl uses rewards as they are", "normalize_reward normalize_rewards reward_clip_range reward.clip_range clip_reward reward.normalize_enable reward_scaling whiten_rewards reward_baseline"},
		{"", "easyrl trains on verifiable rewards; a reward model can be a service, see reward.url", "reward_model reward_model_path reward_model.* reward_pretrain rm_path reward_model_name_or_path reward.model_name_or_path"},
		{"", "easyrl logs every step", "logging_steps logging_strategy logging_first_step log_interval log_every log_freq log_every_n_steps disable_tqdm log_level log_level_replica logging_nan_inf_filter log_on_each_node verbose debug"},
		{"", "easyrl does not report to this service; log.to takes \"tensorboard\", \"csv\" and \"mlflow=http://host:5000\"", "wandb_* wandb.* project project_name trackio_* swanlab_* comet_* neptune_* clearml_*"},
		{"", "easyrl continues a run with the flag -resume", "resume resume_from_checkpoint resume_mode resume_from_path load_checkpoint resume_step ckpt.load_enable ckpt.resume_step load_ckpt resume_from auto_resume " +
			"overwrite_output_dir resume_path ckpt.resume"},
		{"", "checkpoints are always complete Hugging Face folders, and the best one is kept", "save_hf_ckpt save_only_model load_best_model_at_end metric_for_best_model greater_is_better save_contents ckpt.save_hf save_on_each_node " +
			"best_metric_key save_format save_safetensors disable_ds_ckpt save_last save_sharded async_save"},
		{"", "easyrl does not upload models", "push_to_hub hub_* push_to_hub_*"},
		{"", "parallel.dp, parallel.tp and parallel.pp set the ranks that train, inference.endpoints those that sample", "nnodes n_gpus_per_node num_nodes num_gpus_per_node actor_num_* actor.num_* reward_num_* ddp_* fsdp fsdp_* fsdp.* deepspeed deepspeed_* " +
			"ds_config zero_stage zpg local_rank ray_* ray.* accelerator_config parallelism_config ulysses_sequence_parallel_size sequence_parallel* context_parallel* cp cp_size ep ep_size expert_parallel_size " +
			"ring_attn_size ring_head_stride overlap_comm num_machines num_processes ds.* sp_size colocate_critic_reward nccl_timeout strategy use_ds_universal_ckpt tensor_model_parallel_size_train"},
		{"", "easyrl keeps weights and moments on the trainer's device", "param_offload optimizer_offload adam_offload cpu_offload offload offload_policy activation_offloading enable_activation_offload " +
			"optim_cpu_offload offload_optimizer offload_param"},
		{"", "easyrl has its own kernels", "attn_implementation flash_attn use_flash_attn use_flash_attention flash_attention torch_compile* compile use_liger_kernel use_liger use_liger_loss liger_kernel_config use_fused_kernels use_torch_compile attn " +
			"attention_implementation cudagraph_capture_sizes torch_empty_cache_steps jit xformers use_unsloth enforce_eager deepcompile"},
		{"", "easyrl packs sequences without padding", "packing packing_samples packing_strategy padding_free use_remove_padding eval_packing pad_to_multiple_of group_by_length sample_packing remove_padding pad_token padding_side neat_packing " +
			"pad_mode pad_to_length padding pad_to_max_length length_column_name"},
		{"", "easyrl shares each prompt among its responses and sizes its cache itself", "enable_prefix_caching gpu_memory_utilization vllm_gpu_memory_utilization swap_space enable_chunked_prefill max_num_batched_tokens " +
			"kv_cache_* mem_fraction_static free_cache_engine cache_implementation use_cache vllm_enable_sleep* vllm_enable_sleep_mode enable_sleep num_gpu_blocks_override cpu_offload_gb preemption_mode " +
			"use_transformers_paged use_transformers_continuous_batching"},
		{"", "a setting of the server, not of the run", "tensor_parallel_size vllm_tensor_parallel_size tensor_model_parallel_size served_model_name load_format vllm_model_impl vllm_group_port trust_remote_code model_revision revision " +
			"tokenizer_mode skip_tokenizer_init disable_log_stats disable_log_requests scheduling_policy speculative_config enable_auto_tool_choice chat_template tool_call_parser reasoning_parser logprobs_mode"},
		{"", "easyrl samples from the policy's own distribution, without penalties", "repetition_penalty presence_penalty frequency_penalty length_penalty no_repeat_ngram_size logit_bias bad_words min_tokens min_new_tokens min_length " +
			"num_beams beam_width typical_p generation_kwargs logits_processors allowed_token_ids early_stopping"},
		{"", "easyrl keeps no minimum probability; see rollout.top_p", "min_p rollout.min_p"},
		{"", "responses end at the model's end-of-sequence tokens, and at rollout.stop", "stop_token_ids ignore_eos eos_token eos_token_id include_stop_str_in_output skip_special_tokens stop_properly_penalty_coef"},
		{"", "easyrl records log-probabilities and token ids itself", "logprobs prompt_logprobs return_token_ids calculate_log_probs return_tokens_as_token_ids return_logprobs"},
		{"", "easyrl answers prompts in one turn, without tools", "multi_turn multi_turn.* tools tool_config_path max_turns max_tool_calling_iterations agent agent.* env envs environment environments env.* function_tool_path max_assistant_turns " +
			"environment_factory max_steps_per_episode tools_key env_server harness"},
		{"", "easyrl trains on text", "image_key video_key audio_key freeze_vision_tower limit_mm_per_prompt image_patch_size processor return_multi_modal_inputs max_images_per_prompt"},
		{"", "easyrl reads data once, before the first step", "dataloader_* num_workers dataset_num_proc preprocessing_num_workers streaming dataset_streaming prefetch_factor pin_memory filter_overlong_prompts_workers remove_unused_columns " +
			"dataset_kwargs custom_cls.* overwrite_cache return_raw_input_ids return_full_prompt use_shm drop_last dataset_revision"},
		{"", "easyrl uses all rows of a file", "max_samples train_max_samples max_train_samples dataset_fraction limit_train_batches num_examples skip_first"},
		{"", "easyrl batches an evaluation itself", "per_device_eval_batch_size val_batch_size eval_batch_size eval_accumulation_steps eval_delay per_gpu_eval_batch_size include_for_metrics batch_eval_metrics val_only"},
		{"", "easyrl has no dropout, label smoothing or noise", "disable_dropout dropout attention_dropout hidden_dropout label_smoothing_factor label_smoothing neftune_noise_alpha"},
		{"", "easyrl trains dense decoders", "router_aux_loss_coef aux_loss_coef moe_* freeze_moe_router enable_rollout_routing_replay experts_implementation router_replay"},
		{"", "easyrl trains by policy gradients on one policy", "distillation distillation.* teacher_model teacher ptx_coef pretrain_data teacher_models multi_objective_aggregation sapo_* vespo_* tau_pos tau_neg clip_cov_* kl_cov_ratio rollout_rs*"},
		{"", "sft trains on responses alone", "completion_only_loss train_on_inputs response_template instruction_template train_on_prompt"},
		{"", "easyrl has its own profile: trace.json of each run", "profiler profiler.* nsys use_profiler profile profile_steps profile_interval timeline_json_file perf"},
		{"", "the command says what to do: easyrl train, sft or eval", "do_train do_predict do_test train.task task_type"},
	}
}

// others lists settings without a counterpart, by name or by how they begin. A name with a meaning of its own takes precedence.
func others() []row {
	return []row{{"", "easyrl has no such setting", "actor_rollout_ref.* transfer_queue.* global_profiler.* skip.* algorithm.* trainer.* reward.reward_manager.* reward.sandbox_fusion.* " +
		"sandbox_fusion.* megatron.* orchestrator.* model_init_kwargs ds3_gather_for_generation vllm_* log_multimodal log_completions_hub_repo off_policy_mask_threshold use_bias_correction_kl " +
		"transformers_continuous_batching_config ignore_bias_buffers lr_scheduler_kwargs average_tokens_across_devices activation_checkpointing_kwargs auto_find_batch_size include_num_input_tokens_seen " +
		"prediction_loss_only eval_do_concat_batches eval_use_gather_object enable_jit_checkpoint ignore_data_skip restore_callback_states_from_checkpoint label_names skip_memory_metrics max_ckpt_mem " +
		"actor_init_on_gpu gradient_checkpointing_use_reentrant disable_fast_tokenizer pretrain_split use_ms vllm.* algo.* train.partial_rollout_enable ckpt.* actor.* data.tokenizer data.disable_fast_tokenizer " +
		"eval.split model.gradient_checkpointing_reentrant model.pretrain_mode_enable dataset_split tokenizer_chat_template ignore_input_ids_mismatch balance_dp_token"}}
}
