/* What other programs call the keys: nanoGPT, Hugging Face (TrainingArguments, config.json, PEFT),
 * PyTorch and Lightning, vLLM, llama.cpp. A row applies to the schemas that have its key. */
#include <stdlib.h>
#include <string.h>

#include "config/schema.h"

#define STEPS_OF_EPOCHS "steps = epochs x training examples / train.batch"
#define PRECISIONS      "compute: f32, bf16 or fp16"
#define BETAS           "a list of both, betas: [0.9, 0.95]"
#define LAUNCHED                                                                                   \
    "start ranks with banyan launch -n N train CONFIG; parallel says how they share the work"
#define DEVICES "device: auto, or cpu"
#define GPU_NAMES                                                                                  \
    "devices|gpu|gpus|n_gpu|num_gpus|cuda|use_cuda|accelerator|no_cuda|use_cpu|device_map|gpu_"    \
    "ids|"                                                                                         \
    "n_gpu_layers|ngl|gpu_memory_utilization|cuda_visible_devices"

typedef struct alias {
    const char *key;   /* NULL: there is no such key, as `note` explains */
    const char *names; /* separated by |, in lower case, with underscores */
    const char *note;  /* what to write where the values differ; NULL: the same value */
} alias;

static const alias aliases[] = {
    {"name", "run_name|experiment_name|exp_name|job_name|experiment", NULL},
    {"seed", "random_seed|manual_seed|random_state|rng_seed|data_seed", NULL},
    {"task.kind", "task_type|objective|problem_type", NULL},
    {"task.smoothing", "label_smoothing|label_smoothing_factor", NULL},
    {"task.loss", "loss_fn|loss_function|criterion", NULL},
    {"model.kind", "model_type|arch|architecture|architectures|model_name|family", NULL},
    {"model.layers", "n_layer|n_layers|num_layers|num_hidden_layers|depth|block_count|num_blocks",
     NULL},
    {"model.heads", "n_head|n_heads|num_heads|num_attention_heads|nhead|head_count", NULL},
    {"model.kv_heads",
     "n_kv_head|n_kv_heads|num_kv_heads|num_key_value_heads|head_count_kv|n_head_kv", NULL},
    {"model.width",
     "n_embd|n_embed|d_model|hidden_size|hidden_dim|embed_dim|embedding_dim|dim|embedding_length|"
     "emb_dim",
     NULL},
    {"model.mlp_width",
     "intermediate_size|ffn_dim|n_inner|dim_feedforward|ffn_hidden_size|feed_forward_length|mlp_"
     "dim|d_ff|hidden_features",
     NULL},
    {"model.context",
     "block_size|n_ctx|n_positions|max_position_embeddings|seq_len|seq_length|sequence_length|max_"
     "seq_len|max_seq_length|max_length|context_length|ctx_size|ctx_len|cutoff_len|model_max_"
     "length|max_model_len|lookback|lookback_window|input_size|input_chunk_length|history_length",
     NULL},
    {"model.vocab", "vocab_size|n_vocab|padded_vocab_size|num_embeddings", NULL},
    {"model.dropout",
     "resid_pdrop|attn_pdrop|embd_pdrop|hidden_dropout_prob|attention_dropout|attention_probs_"
     "dropout_prob|dropout_p|dropout_rate|drop_rate|hidden_dropout",
     NULL},
    {"model.norm_eps",
     "rms_norm_eps|layer_norm_eps|layer_norm_epsilon|norm_epsilon|layernorm_epsilon", NULL},
    {"model.init_std", "initializer_range|init_stddev|initializer_std", NULL},
    {"model.tied",
     "tie_word_embeddings|tie_embeddings|tied_embeddings|weight_tying|share_embeddings",
     "true or false"},
    {"model.window", "sliding_window|attention_window|window_size", NULL},
    {"model.rope_theta", "rope_base|rope_freq_base|theta", NULL},
    {"model.rope_factor", "rope_scale|rope_scaling_factor", NULL},
    {"model.qkv_bias", "attention_bias|attn_bias", "true or false"},
    {"model.experts", "num_local_experts|num_experts|n_experts|n_expert|expert_count", NULL},
    {"model.experts_per_token", "num_experts_per_tok|moe_top_k|n_expert_used|experts_top_k", NULL},
    {"model.router_aux_loss_coef", "aux_loss_coef|moe_aux_loss_coeff|load_balancing_loss", NULL},
    {"model.patch", "patch_size", NULL},
    {"model.channels", "num_channels|in_chans|in_channels", NULL},
    {"model.image_height", "image_size|img_size",
     "model.image_width too; both are taken from the data"},
    {"model.outputs",
     "horizon|pred_len|prediction_length|forecast_horizon|output_chunk_length|forecast_length",
     NULL},
    {"model.outputs", "num_labels|num_classes|n_classes|out_features", "taken from the data"},
    {"model.hidden", "hidden_layers|hidden_sizes|hidden_layer_sizes|hidden_units|layer_sizes",
     "a list, hidden: [128, 128]"},
    {"model.activation", "hidden_act|activation_function|act_fn|activation_fn|nonlinearity", NULL},
    {"model.from",
     "init_from|model_name_or_path|pretrained|pretrained_model_name_or_path|base_model|checkpoint_"
     "path|load_from|init_checkpoint|finetune_from|weights_path",
     "a run, or a directory with config.json and weights"},
    {"data.text",
     "dataset|datasets|data_path|dataset_path|dataset_name|train_file|train_files|train_data|data_"
     "dir|input|inputs|corpus|text_file|data_file|data_files|dataset_dir|train_text|path|file|"
     "files",
     NULL},
    {"data.valid",
     "validation_file|valid_file|val_file|val_data|valid_data|eval_file|eval_data|eval_dataset|"
     "validation_data|test_file",
     "a directory of banyan pack; data.valid_fraction holds out a part of the text"},
    {"data.valid_fraction",
     "val_fraction|val_split|validation_split|test_size|val_ratio|val_size|validation_fraction|"
     "eval_fraction|valid_split|holdout",
     NULL},
    {"data.tokenizer",
     "tokenizer_path|tokenizer_name|tokenizer_name_or_path|tokenizer_file|tokenizer_type", NULL},
    {"data.field", "text_column|text_field|dataset_text_field|content_field|text_key", NULL},
    {"data.packing", "sample_packing|pack_sequences", "stream or best_fit"},
    {"data.dedup", "deduplicate|deduplication", "none, exact or near"},
    {"data.cache", "cache_dir|data_cache", NULL},
    {"data.target", "target_column|label_column|label|target_col|label_col|y|y_column|response",
     NULL},
    {"data.ignore", "drop_columns|ignore_columns|exclude_columns|exclude", NULL},
    {"data.category_columns",
     "categorical|categorical_features|categorical_columns|cat_features|cat_columns", NULL},
    {"data.table", "csv|csv_file|csv_path|table_path|parquet", NULL},
    {"data.images", "image_dir|image_folder|images_path|image_path", NULL},
    {"train.steps",
     "max_steps|max_iters|num_steps|total_steps|iterations|max_iterations|n_steps|num_iterations|"
     "train_steps|lr_decay_iters|num_training_steps|max_train_steps",
     NULL},
    {"train.steps", "epochs|num_epochs|max_epochs|n_epochs|num_train_epochs|epoch",
     STEPS_OF_EPOCHS},
    {"train.batch",
     "batch_size|global_batch_size|bs|train_batch_size|total_batch_size|minibatch|effective_batch_"
     "size|n_batch",
     "sequences of a whole step, over all ranks and micro-batches"},
    {"train.micro_batch",
     "micro_batch_size|per_device_train_batch_size|per_device_batch_size|per_gpu_train_batch_size|"
     "device_batch_size|train_micro_batch_size_per_gpu|n_ubatch|per_device_eval_batch_size|eval_"
     "batch_size",
     NULL},
    {"train.micro_batch",
     "gradient_accumulation_steps|accumulate_grad_batches|grad_accum|grad_accum_steps|accum_steps|"
     "accumulation_steps|gradient_accumulation",
     "micro_batch = train.batch / (accumulation steps x ranks)"},
    {"train.eval_every",
     "eval_interval|eval_steps|val_every|val_interval|val_check_interval|eval_freq|evaluation_"
     "steps|eval_strategy|evaluation_strategy|check_val_every_n_epoch|validation_interval|eval_"
     "period",
     "steps between evaluations; 0: at the end only"},
    {"train.eval_batches",
     "eval_iters|limit_val_batches|val_steps|max_eval_steps|eval_samples|max_eval_samples", NULL},
    {"train.log_every",
     "log_interval|logging_steps|log_freq|log_every_n_steps|print_every|log_steps|logging_interval|"
     "logging_strategy",
     NULL},
    {"train.threads", "num_threads|n_threads|cpus|cores|omp_num_threads|intra_op_threads", NULL},
    {"optimizer.kind", "optim|optimizer_type|optimizer_name|optimizer_class|optim_type", NULL},
    {"optimizer.lr",
     "learning_rate|lrate|lr_max|max_lr|peak_lr|base_lr|initial_lr|lr_peak|step_size|eta|alpha_lr",
     NULL},
    {"optimizer.min_lr",
     "lr_min|eta_min|end_lr|final_lr|min_learning_rate|lr_end|learning_rate_min", NULL},
    {"optimizer.schedule",
     "lr_scheduler_type|lr_schedule|scheduler|lr_scheduler|lr_decay_style|decay_lr|schedule_type|"
     "learning_rate_schedule|lr_decay",
     "cosine, linear, constant or wsd"},
    {"optimizer.warmup",
     "warmup_steps|warmup_iters|num_warmup_steps|lr_warmup_steps|warmup_iterations|lr_warmup_iters|"
     "warmup_ratio|warmup_fraction|warmup_proportion|warm_up|warmup_epochs|pct_start",
     "a number of steps or, below 1, a share of them"},
    {"optimizer.decay",
     "cooldown|decay_steps|cooldown_steps|lr_wsd_decay_iters|decay_iters|warmdown|warmdown_iters",
     "a number of steps or, below 1, a share of them"},
    {"optimizer.weight_decay", "wd|l2|l2_reg|adam_weight_decay|decay_weight|l2_regularization",
     NULL},
    {"optimizer.clip",
     "grad_clip|max_grad_norm|clip_grad|clip_grad_norm|gradient_clip_val|grad_norm_clip|gradient_"
     "clipping|max_norm|clip_norm|grad_clip_norm",
     NULL},
    {"optimizer.betas", "adam_beta1|adam_beta2|beta1|beta2|adam_betas|beta_1|beta_2|b1|b2", BETAS},
    {"optimizer.eps", "adam_epsilon|adam_eps|epsilon", NULL},
    {"optimizer.ema", "ema_decay|ema_rate|use_ema|polyak|swa_decay|model_ema_decay",
     "the decay, such as 0.999"},
    {"optimizer.groups",
     "param_groups|parameter_groups|freeze|frozen|freeze_layers|no_decay|trainable",
     "a list, groups: [{match: \"*.bias\", frozen: true}]"},
    {"optimizer.layer_decay", "layerwise_lr_decay|llrd|layer_lr_decay|layer_wise_decay", NULL},
    {"lora.rank", "lora_r|lora_rank|r|lora_dim|adapter_rank", NULL},
    {"lora.alpha", "lora_alpha", NULL},
    {"lora.dropout", "lora_dropout", NULL},
    {"lora.targets", "target_modules|lora_target|lora_target_modules|lora_modules", NULL},
    {"lora.train_also", "modules_to_save", NULL},
    {"lora.rslora", "use_rslora", "true or false"},
    {"lora.base", "load_in_4bit|load_in_8bit|qlora|quantization_bit", "int4 or int8"},
    {"lora.from", "adapter_path|lora_path|peft_path|adapter_name_or_path", NULL},
    {"distill.teacher", "teacher_model|teacher_path|teacher_model_name_or_path", NULL},
    {"precision.compute",
     "dtype|torch_dtype|bf16|fp16|mixed_precision|amp|precision|float16|bfloat16|half|autocast|use_"
     "amp|compute_dtype",
     PRECISIONS},
    {"precision.tf32", "allow_tf32|enable_tf32|use_tf32", "true or false"},
    {"memory.recompute",
     "gradient_checkpointing|activation_checkpointing|recompute_granularity|checkpoint_activations|"
     "use_checkpoint|activation_recomputation|grad_checkpointing",
     "recompute: block"},
    {"memory.budget", "max_memory|memory_limit|mem_limit|max_memory_mb", "a size, budget: 16GiB"},
    {"parallel.tensor",
     "tensor_parallel_size|tensor_model_parallel_size|tp|tp_size|tensor_parallel|model_parallel_"
     "size",
     NULL},
    {"parallel.pipeline",
     "pipeline_parallel_size|pipeline_model_parallel_size|pp|pp_size|pipeline_stages", NULL},
    {"parallel.data", "data_parallel_size|dp|dp_size|ddp", NULL},
    {"parallel.expert", "expert_parallel_size|ep|ep_size|expert_model_parallel_size", NULL},
    {"parallel.sync_batch_norm", "sync_bn|sync_batchnorm|convert_sync_batchnorm", NULL},
    {"parallel.sequence", "context_parallel_size|cp|cp_size|sequence_parallel_size", NULL},
    {"parallel.shard", "fsdp|deepspeed|zero_stage|sharding_strategy|fsdp_config|zero_optimization",
     "shard: N ranks that divide the state; parallel.zero: 1, 2 or 3 says what they divide"},
    {"offload.optimizer", "cpu_offload|offload_optimizer|optimizer_offload", "none or disk"},
    {"checkpoint.every",
     "save_every|save_steps|save_interval|checkpoint_every|checkpoint_interval|ckpt_interval|save_"
     "freq|save_strategy|checkpointing_steps|ckpt_every|always_save_checkpoint|save_period",
     "steps between checkpoints"},
    {"checkpoint.keep",
     "save_total_limit|max_checkpoints|keep_last|keep_checkpoints|max_to_keep|num_checkpoints|keep_"
     "last_n",
     NULL},
    {"track.sinks",
     "report_to|logger|loggers|tensorboard|wandb|wandb_log|use_wandb|log_with|tracker|trackers|"
     "tensorboard_dir",
     "a list of tensorboard, wandb, mlflow and prometheus, such as sinks: [tensorboard]"},
    {"track.mlflow", "mlflow_uri|mlflow_tracking_uri|tracking_uri", NULL},
    {"track.project", "wandb_project|project_name|mlflow_experiment|experiment_id", NULL},
    {"track.sample_prompt", "sample_text|sample_start", NULL},
    {"run.dir",
     "output_dir|out_dir|save_dir|log_dir|logging_dir|default_root_dir|work_dir|exp_dir|checkpoint_"
     "dir|results_dir|save_path|output_path|output",
     NULL},
    {"gateway.listen", "host|port|address|bind|http_port|listen_address|server_port|uds",
     "HOST:PORT, listen: 127.0.0.1:8080"},
    {"gateway.keys", "api_key|api_keys|api_key_file|auth|token", "a file of keys"},
    {"gateway.deadline", "request_timeout|timeout|timeout_s", NULL},
    {"gateway.body", "max_body_size|client_max_body_size|max_request_size", NULL},
    {"worker.model", "models|checkpoint|model_path|model_tag|hf_repo|model_dir", NULL},
    {"worker.name", "served_model_name|alias|model_name|model_id", NULL},
    {"worker.context",
     "max_model_len|ctx_size|n_ctx|max_seq_len|max_length|context_length|max_context_len_to_"
     "capture",
     NULL},
    {"worker.sessions",
     "max_num_seqs|parallel|n_parallel|np|max_batch_size|max_concurrency|batch_size", NULL},
    {"worker.precision", "dtype|quantization|torch_dtype|quantize|weight_dtype", NULL},
    {"worker.kv", "kv_cache_dtype|cache_type_k|cache_type_v", "int8"},
    {"worker.threads", "num_threads|n_threads|cpus", NULL},
    {"worker.count", "workers|num_workers|replicas|data_parallel_size|num_replicas|min_replicas",
     NULL},
    {"scaling.most", "max_replicas|max_workers|autoscaling", NULL},
    {"cors.origins", "allowed_origins|allow_origins|cors_origins|cors_allow_origins", NULL},
    {"tracing.endpoint", "otlp_traces_endpoint|otlp_endpoint|otel_exporter_otlp_endpoint|jaeger",
     NULL},
    {"train",
     "training|trainer|training_args|training_arguments|train_config|hyperparameters|hparams",
     NULL},
    {"model", "network|model_config|model_args|net", NULL},
    {"data", "dataloader|data_config|data_args|dataset_config", NULL},
    {"optimizer", "optimization|optim_config|optimizer_config", NULL},
    {"checkpoint", "checkpointing|checkpoints|ckpt|saving", NULL},
    {"track", "logging|tracking|monitoring|callbacks", NULL},
    {"parallel", "parallelism|mesh", NULL},
    {"gateway", "server|http|api", NULL},
    {"device", GPU_NAMES, DEVICES},
    {"worker.device", "device|" GPU_NAMES, DEVICES},
    {NULL,
     "world_size|nproc_per_node|num_processes|nnodes|num_nodes|num_machines|local_rank|backend|ddp_"
     "backend|strategy|distributed|nodes|node_rank|master_addr|master_port",
     LAUNCHED},
    {NULL, "compile|torch_compile|jit|compile_model|use_compile",
     "every run is compiled before its first step"},
    {NULL,
     "resume|resume_from|resume_from_checkpoint|resume_checkpoint|resume_training|auto_resume",
     "continue a run with banyan train --resume RUN"},
    {NULL, "eval_only|do_eval|do_train|do_predict|test_only",
     "banyan train, eval and predict are commands"},
    {NULL,
     "num_workers|dataloader_num_workers|prefetch_factor|pin_memory|persistent_workers|dataloader_"
     "pin_memory",
     "the loader prepares batches beside the computation by itself"},
    {NULL,
     "shuffle|drop_last|shuffle_buffer|shuffle_buffer_size|group_by_length|dataloader_drop_last",
     "training data are always shuffled, by seed, and every step has a whole batch"},
    {NULL,
     "load_best_model_at_end|save_best_only|metric_for_best_model|early_stopping|patience|early_"
     "stopping_patience",
     "the best checkpoint is marked: use it with --best"},
    {NULL,
     "flash_attention|flash_attn|use_flash_attention_2|attn_implementation|use_cache|sdpa|xformers|"
     "enable_prefix_caching|enable_chunked_prefill",
     "the kernels of the processor are chosen by themselves"},
};

/* Copies a name in lower case, with underscores; returns false if it is too long for any row. */
static bool normalize(char out[64], const char *name)
{
    size_t length = strlen(name);
    if (length >= 64) {
        return false;
    }
    for (size_t i = 0; i <= length; i++) {
        char c = name[i];
        out[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c == '-' || c == ' ' ? '_' : c;
    }
    return true;
}

/* Returns true if a schema has a key or a section of this path. */
static bool has(const by__config *config, const char *path)
{
    return by__config_section_find(config->schema, path) != NULL ||
           by__config_entry_first(config, path) != NULL;
}

/* Appends the keys of exactly this name: "model.dropout" or "lora.dropout". */
static void add_same(by_string *out, const by__config *config, const char *name, bool active)
{
    for (size_t i = 0; i < config->count; i++) {
        const by__config_entry *entry = &config->entries[i];
        bool same = strcmp(entry->key.name, name) == 0;
        char shown[96];
        (void)snprintf(shown, sizeof shown, "\"%s\"%s", entry->path,
                       strchr(entry->path, '.') == NULL ? " (a key of no section)" : "");
        if (same && active == by__config_entry_active(config, entry) &&
            (out->data == NULL || strstr(out->data, shown) == NULL)) {
            by_string_format(out, "%s%s", out->length == 0 ? "" : " or ", shown);
        }
    }
}

/* Returns the row of a name whose key a schema has, or one that explains why there is none. With a
 * section, the key is in it. */
static const alias *find_alias(const by__config *config, const char *section, const char *name)
{
    size_t length = section == NULL ? 0 : strlen(section);
    const alias *none = NULL;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(aliases); i++) {
        const alias *a = &aliases[i];
        bool here = section == NULL || (a->key != NULL && strncmp(a->key, section, length) == 0 &&
                                        a->key[length] == '.');
        if (!here || !by_name_listed(a->names, name)) {
            continue;
        }
        if (a->key != NULL && has(config, a->key)) {
            return a;
        }
        none = a->key == NULL ? a : none;
    }
    return none;
}

static void add_alias(by_string *out, const alias *other)
{
    if (other->key == NULL) {
        by_string_format(out, "there is no such key: %s", other->note);
    } else {
        by_string_format(out, "did you mean \"%s\"?%s%s%s", other->key,
                         other->note == NULL ? "" : " (", other->note == NULL ? "" : other->note,
                         other->note == NULL ? "" : ")");
    }
}

bool by__config_key_suggest(by_string *out, const by__config *config, const char *name)
{
    char plain[64];
    by_string same = {0};
    if (!normalize(plain, name)) {
        return false;
    }
    const char *dot = strrchr(plain, '.');
    const char *last = dot == NULL ? plain : dot + 1;
    if (dot != NULL && has(config, plain)) { /* in a file */
        by_string_format(out, "write \"%s\" below \"%.*s:\"", last, (int)(dot - plain), plain);
        return true;
    }
    add_same(&same, config, last, true);
    const alias *other = same.length > 0 ? NULL : find_alias(config, NULL, last);
    if (same.length == 0 && other == NULL) {
        add_same(&same, config, last, false);
    }
    bool found = same.length > 0 || other != NULL;
    if (same.length > 0) {
        by_string_format(out, "did you mean %s?", same.data);
    } else if (found) {
        add_alias(out, other);
    }
    by_string_free(&same);
    return found;
}

bool by__config_key_suggest_near(by_string *out, const by__config *config, const char *name)
{
    char nearest[64] = "";
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(aliases); i++) {
        for (const char *p = aliases[i].names; *p != '\0'; p += *p == '|') {
            char other[64];
            const char *one = other;
            size_t length = strcspn(p, "|");
            (void)snprintf(other, sizeof other, "%.*s", (int)length, p);
            p += length;
            size_t distance = by__edit_distance(name, other);
            if (distance < least && by_nearest_name(name, &one, 1) != NULL) {
                least = distance;
                memcpy(nearest, other, sizeof nearest);
            }
        }
    }
    return nearest[0] != '\0' && by__config_key_suggest(out, config, nearest);
}

const char *by__config_key_alias(size_t index, const char **names)
{
    if (index >= BY_ARRAY_LENGTH(aliases)) {
        return NULL;
    }
    *names = aliases[index].names;
    return aliases[index].key == NULL ? "" : aliases[index].key;
}

/* ---- the error for a key that there is not ---- */

/* Lists the names that a section accepts; at the top level also sections and `base`. */
static size_t names_in(const by__config *config, const char *section, const char **names)
{
    size_t count = 0;
    for (size_t i = 0; i < config->count; i++) {
        const by__config_key *key = &config->entries[i].key;
        if (strcmp(key->section, section) == 0 &&
            by__config_entry_first(config, config->entries[i].path) == &config->entries[i]) {
            names[count++] = key->name;
        }
    }
    if (section[0] == '\0') {
        names[count++] = "base";
        for (size_t i = 1; i < config->schema->sections->count; i++) {
            names[count++] = config->schema->sections->rows[i].name;
        }
    }
    return count;
}

/* Appends the key whose name is nearest: of this section, or else of any. */
static bool suggest_near(by_string *out, const by__config *config, const char **names,
                         const char *section, const char *name)
{
    const char *near = by_nearest_name(name, names, names_in(config, section, names));
    const by__config_entry *entry =
        near == NULL ? NULL : by__config_entry_find(config, section, near);
    if (near == NULL) {
        for (size_t i = 0; i < config->count; i++) {
            names[i] = config->entries[i].key.name;
        }
        near = by_nearest_name(name, names, config->count);
        for (size_t i = 0; i < config->count && entry == NULL; i++) {
            entry = names[i] == near ? &config->entries[i] : NULL;
        }
    }
    if (near == NULL) {
        return false;
    }
    by_string_format(out, "did you mean \"%s\"", entry == NULL ? near : entry->path);
    if (entry != NULL && entry->kind != NULL) {
        by__string_append(out, " (of ");
        by__config_entry_owners(out, config, entry);
        by__string_append(out, ")");
    }
    by__string_append(out, "?");
    return true;
}

/* Of a key of this section that is one letter off, such as a plural, before keys of that very name
 * elsewhere. */
static bool suggest_slip(by_string *out, const by__config *config, const char **names,
                         const char *section, const char *name)
{
    const char *near = by_nearest_name(name, names, names_in(config, section, names));
    return section[0] != '\0' && near != NULL && strlen(name) > 3 &&
           by__edit_distance(name, near) == 1 && suggest_near(out, config, names, section, name);
}

/* What another program calls a key of this section, which a key of the same name elsewhere is not:
 * data.path is data.text, not offload.path. */
static bool suggest_alias(by_string *out, const by__config *config, const char *section,
                          const char *name)
{
    char plain[64];
    const alias *other =
        section[0] != '\0' && normalize(plain, name) ? find_alias(config, section, plain) : NULL;
    if (other != NULL) {
        add_alias(out, other);
    }
    return other != NULL;
}

/* What others call the kind of a section: model.type, optimizer.name. */
static bool suggest_kind(by_string *out, const by__config *config, const char *section,
                         const char *name)
{
    static const char *const names[] = {"type", "name", "class", "class_name", "_target_"};
    bool means = false;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        means = means || strcmp(name, names[i]) == 0;
    }
    means = means && section[0] != '\0' && by__config_entry_find(config, section, "kind") != NULL;
    if (means) {
        by_string_format(out, "did you mean \"%s.kind\"?", section);
    }
    return means;
}

static by_status refuse_unknown(const by__config *config, const char **names, const char *where,
                                const char *section, const char *name, by_error *error)
{
    by_string text = {0};
    bool glued = strchr(name, ':') != NULL;
    by_string_format(&text, "%s: unknown key \"%.60s\"%s%s; ", where, name,
                     section[0] == '\0' ? "" : " in section ", section);
    if (glued) {
        by__string_append(&text, "a colon is followed by a blank: KEY: VALUE");
    } else if (!suggest_kind(&text, config, section, name) &&
               !suggest_slip(&text, config, names, section, name) &&
               !suggest_alias(&text, config, section, name) &&
               !by__config_key_suggest(&text, config, name) &&
               !suggest_near(&text, config, names, section, name) &&
               !by__config_key_suggest_near(&text, config, name)) {
        size_t count = names_in(config, section, names);
        by__string_append(&text, "keys here are ");
        for (size_t i = 0; i < count; i++) {
            by_string_format(&text, "%s%s", i == 0 ? "" : ", ", names[i]);
        }
    }
    by_status status =
        by_error_set(error, BY_ECONFIG, "%s", text.failed ? "unknown key" : text.data);
    by_string_free(&text);
    return status;
}

by_status by__config_key_unknown(const by__config *config, const char *where, const char *section,
                                 const char *name, by_error *error)
{
    const char **names;
    BY_TRY(by__alloc((void **)&names, config->count + config->schema->sections->count + 1,
                     sizeof *names, "names of keys", error));
    by_status status = refuse_unknown(config, names, where, section, name, error);
    free(names);
    return status;
}
