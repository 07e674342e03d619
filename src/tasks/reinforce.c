/* Reinforcement learning from rewards (GRPO, Shao et al. 2024, arXiv 2402.03300): the model
 * completes prompts, each several times, and learns the completions that got more reward than the
 * others of their prompt, by the policy gradient (Williams 1992).
 *
 * Each step takes completions of the very weights that it changes, so the ratio of probabilities
 * that GRPO clips is 1, and the gradient of its objective is that of a cross-entropy over the
 * tokens of the completions, each weighted by the advantage of its completion: the loss is the one
 * of weighted tokens, with weights that may be negative. */
#include "tasks/reinforce_data.h"

#include <stdlib.h>
#include <string.h>

#include "banyan/ops.h"
#include "banyan/train_events.h"
#include "config/kind.h"
#include "data/loader/order.h"
#include "graph/graph.h"
#include "tasks/origin_files.h"
#include "tasks/tasks.h"
#include "tasks/text/language.h"
#include "tasks/text/task_tokenizer.h"
#include "tasks/text/text_data.h"
#include "text/pattern/pattern.h"

/* clang-format off: one row a key */
static const by__config_key keys[] = {
    {"data", "prompts", BY__KEY_TEXTS, BY__OWN(by__task_reinforce_keys, prompts), "[]",
     .help =
         "files of prompts: JSON lines (.jsonl, .ndjson), a JSON list (.json) or a Parquet file "
         "with prompts and their answers, or text with a prompt in each line"},
    {"data", "prompt_field", BY__KEY_TEXT, BY__OWN(by__task_reinforce_keys, prompt_field), "prompt",
     .min = 1, .help = "member of JSON lines that holds the prompt"},
    {"data", "answer_field", BY__KEY_TEXT, BY__OWN(by__task_reinforce_keys, answer_field), "answer",
     .min = 1, .help = "member of JSON lines that holds the right answer, for rewards"},
    {"data", "prompt_form", BY__KEY_TEXT, BY__OWN(by__task_reinforce_keys, prompt_form),
     "\"{prompt}\"", .min = 1,
     .help = "what the model reads: a text in which {prompt} stands for the prompt, such as "
             "\"Question: {prompt}\\nAnswer:\""},
    {"data", "tokenizer", BY__KEY_TEXT, BY__FIELD(data.tokenizer), "bpe", .min = 1,
     .help = "path of a tokenizer.json, or of a directory that contains one; bpe stands for that "
             "of model.from"},
    {"task", "group", BY__KEY_INT, BY__OWN(by__task_reinforce_keys, group), "8", 2, BY__MI20,
     .help = "completions of each prompt, which are compared; train.batch counts completions, so "
             "it is a multiple of this"},
    {"task", "max_tokens", BY__KEY_INT, BY__OWN(by__task_reinforce_keys, max_tokens), "64", 1,
     BY__MI24,
     .help = "tokens of a completion at most; longer prompts than model.context leaves "
             "room for are left out"},
    {"task", "temperature", BY__KEY_REAL, BY__OWN(by__task_reinforce_keys, temperature), "1.0", 0,
     100, BY__ABOVE_MIN,
     .help = "of sampling; only with 1 the completions are those of the model "
             "that learns"},
    {"task", "stop", BY__KEY_TEXTS, BY__OWN(by__task_reinforce_keys, stop), "[]",
     .help = "texts of one token each that end a completion, beside the end-of-text token of the "
             "tokenizer"},
    {"task", "reward", BY__KEY_TEXT, BY__OWN(by__task_reinforce_keys, reward), "exact",
     .choices = "exact|number|regex|length|command",
     .help = "exact: 1 if the completion is the answer, but for white space around both, else 0; "
             "number: 1 if the last number after #### is that of the answer (as in GSM8K); regex: "
             "1 if the completion matches reward_pattern, whose group, if it has one, must be the "
             "answer; length: less the further its tokens are from reward_tokens; command: what "
             "reward_command answers"},
    {"task", "reward_pattern", BY__KEY_TEXT, BY__OWN(by__task_reinforce_keys, reward_pattern),
     "\"\"", .help = "regular expression as Python's re reads it, for regex"},
    {"task", "reward_tokens", BY__KEY_INT, BY__OWN(by__task_reinforce_keys, reward_tokens), "16", 1,
     BY__MI24, .help = "for length: the reward is 1 - |tokens - this| / this, but at least 0"},
    {"task", "reward_command", BY__KEY_TEXTS, BY__OWN(by__task_reinforce_keys, reward_command),
     "[]",
     .help = "for command: a program and its arguments, started once by each rank. It gets a "
             "JSON object in a line for each completion (\"completion\", \"answer\", "
             "\"item\": the line of the file) and answers each with a line: a "
             "number"},
    {"task", "reward_timeout", BY__KEY_TIME, BY__OWN(by__task_reinforce_keys, reward_timeout),
     "60s", 0.001, 86400, .help = "for command: time for all answers of a step"},
    {"task", "passes", BY__KEY_REAL, BY__OWN(by__task_reinforce_keys, passes), "1.0", -1e9, 1e9,
     .help = "reward from which on a completion counts as right in pass@k, the share of prompts of "
             "which one of the k = group completions is right; nothing is learned from this"},
    {"task", "advantage", BY__KEY_TEXT, BY__OWN(by__task_reinforce_keys, advantage), "mean",
     .choices = "mean|deviation",
     .help = "mean: reward minus the mean of the group (Dr. GRPO, Liu et al. 2025); deviation: "
             "also divided by the standard deviation of the group (GRPO, Shao et al. 2024)"},
    {"task", "normalize", BY__KEY_TEXT, BY__OWN(by__task_reinforce_keys, normalize), "tokens",
     .choices = "tokens|sequences|constant",
     .help = "what the loss is divided by: tokens of all completions of a step (DAPO, Yu et al. "
             "2025); sequences: of each its own tokens, then the completions (GRPO); constant: "
             "the completions times max_tokens (Dr. GRPO)"},
    {"task", "kl", BY__KEY_REAL, BY__OWN(by__task_reinforce_keys, kl), "0.0", 0, 100,
     .help = "weight of the divergence from model.from, as it was at the start, in the objective "
             "(GRPO, equation 4); 0: no copy of it is kept"},
};
/* clang-format on */
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__task_row by__task_reinforce;

const by__task_reinforce_keys *by__task_reinforce_keys_of(const by_config *config)
{
    return by__config_kind_own(config->task.own, &by__task_reinforce.kind);
}

/* ---- the config ---- */

static by_status check_reward(const by_config *config, const by__task_reinforce_keys *k,
                              by_error *error)
{
    bool regex = strcmp(k->reward, "regex") == 0;
    bool command = strcmp(k->reward, "command") == 0;
    if (strstr(k->prompt_form, "{prompt}") == NULL) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: data.prompt_form \"%.100s\" has no {prompt}, so that all prompts "
                            "would be the same",
                            by__config_where(config, "data.prompt_form", "task.kind"),
                            k->prompt_form);
    }
    if (regex && k->reward_pattern[0] == '\0') {
        return by_error_set(error, BY_ECONFIG, "%s: task.reward regex needs task.reward_pattern",
                            by__config_where(config, "task.reward", "task.kind"));
    }
    if (command && k->reward_command.count == 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: task.reward command needs task.reward_command, such as "
                            "[python3, reward.py]",
                            by__config_where(config, "task.reward", "task.kind"));
    }
    return BY_OK;
}

static by_status check_room(const by_config *config, const by__task_reinforce_keys *k,
                            by_error *error)
{
    return config->model.context == 0 || k->max_tokens < config->model.context
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: task.max_tokens %lld leaves no room for a prompt in "
                              "model.context %lld",
                              by__config_where(config, "task.max_tokens", "model.context"),
                              (long long)k->max_tokens, (long long)config->model.context);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const by__task_reinforce_keys *k = own;
    int64_t divisor = by__config_batch_divisor(config);
    BY_TRY(check_reward(config, k, error));
    if (divisor % k->group != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: train.batch %lld counts completions, %lld of each prompt "
                            "(task.group): make it a multiple of that",
                            by__config_where(config, "train.batch", "task.group"),
                            (long long)divisor, (long long)k->group);
    }
    /* Else it is that of the model, which is not open yet. */
    bool known = config->model.from[0] == '\0' || by__config_is_given(config, "model.context");
    return known ? check_room(config, k, error) : BY_OK;
}

/* ---- data ---- */

typedef struct reinforce_data {
    by_task_data base;
    by_tokenizer *tokenizer;
    char *path;   /* of the tokenizer */
    char *origin; /* NULL: none */
    char *json;   /* tokenizer.json */
    size_t json_length;
    by__task_prompts prompts;
    int32_t stops[2 * BY_END_TOKENS];
    size_t stop_count;
    int64_t eos;
    char *eos_token;
    by__task_origin_files files;
    char *tokenizer_config;
    char content[33]; /* hash of prompts and answers */
    char summary[160];
} reinforce_data;

const by__task_prompts *by__task_reinforce_prompts(const by_task_data *data)
{
    return &((const reinforce_data *)data)->prompts;
}

const by_tokenizer *by__task_reinforce_tokenizer(const by_task_data *data)
{
    return ((const reinforce_data *)data)->tokenizer;
}

const int32_t *by__task_reinforce_stops(const by_task_data *data, size_t *count)
{
    const reinforce_data *d = (const reinforce_data *)data;
    *count = d->stop_count;
    return d->stops;
}

static void close_data(by_task_data *base)
{
    reinforce_data *d = (reinforce_data *)base;
    by_tokenizer_close(&d->tokenizer);
    by__task_prompts_free(&d->prompts);
    by__task_origin_files_free(&d->files);
    free(d->path);
    free(d->origin);
    free(d->json);
    free(d->eos_token);
    free(d->tokenizer_config);
    free(d);
}

/* Each text must be a token: a completion ends when one of them is drawn. */
static by_status find_stops(reinforce_data *d, const by_config *config, by_error *error)
{
    const by_string_list *stop = &by__task_reinforce_keys_of(config)->stop;
    if (stop->count > BY_END_TOKENS) {
        return by_error_set(error, BY_ECONFIG, "%s: task.stop has %zu texts, at most %d are taken",
                            by__config_where(config, "task.stop", "task.kind"), stop->count,
                            BY_END_TOKENS);
    }
    if (d->origin != NULL) {
        BY_TRY(by_end_tokens(d->stops, &d->stop_count, d->origin, d->tokenizer, error));
    } else if (d->eos >= 0) {
        d->stops[d->stop_count++] = (int32_t)d->eos;
    }
    for (size_t i = 0; i < stop->count; i++) {
        const char *text = stop->items[i];
        int64_t id = by_tokenizer_token_id(d->tokenizer, text, strlen(text));
        if (id < 0) {
            return by_error_set(error, BY_ECONFIG,
                                "%s: task.stop: \"%.60s\" is not one token of the tokenizer, %s",
                                by__config_where(config, "task.stop", "task.kind"), text, d->path);
        }
        d->stops[d->stop_count++] = (int32_t)id;
    }
    return BY_OK;
}

static by_status open_tokenizer(reinforce_data *d, const by_task_request *r, by_error *error)
{
    const char *run = r->progress == NULL ? NULL : r->progress->resume;
    BY_TRY(by__task_model_tokenizer(&d->path, &d->origin, r->config, run, error));
    BY_TRY(by_tokenizer_open(&d->tokenizer, d->path, error));
    BY_TRY(by_tokenizer_to_json(d->tokenizer, &d->json, &d->json_length, error));
    BY_TRY(by__task_find_eos(&d->eos, &d->eos_token, d->path, error));
    return find_stops(d, r->config, error);
}

static by_status open_data(by_task_data **out, const by_task_request *r, by_error *error)
{
    reinforce_data *d;
    const by__task_reinforce_keys *k = by__task_reinforce_keys_of(r->config);
    if (r->purpose != BY_TASK_TRAIN) {
        return by_error_set(
            error, BY_EARG,
            "task reinforce holds out no data; its log has the rewards, and `banyan "
            "eval RUN --suite FILE` scores answers");
    }
    if (k->prompts.count == 0) {
        return by_error_set(error, BY_ECONFIG,
                            "no data: set data.prompts=FILE, JSON lines with "
                            "\"prompt\" and \"answer\"");
    }
    if (k->kl > 0.0 && r->config->model.from[0] == '\0') {
        return by_error_set(error, BY_ECONFIG,
                            "%s: task.kl is the divergence from model.from, which is not set",
                            by__config_where(r->config, "task.kl", "task.kind"));
    }
    BY_TRY(by__alloc((void **)&d, 1, sizeof *d, "the data", error));
    *d = (reinforce_data){.base = {.task = &by__task_reinforce.task}, .eos = -1};
    by_status status = open_tokenizer(d, r, error);
    if (status != BY_OK) {
        close_data(&d->base);
        return status;
    }
    *out = &d->base;
    return BY_OK;
}

/* Without answers these rewards are 0 forever: of a pattern, if it has a group to compare. */
static by_status needs_answer(const by__task_reinforce_keys *k, bool *out, by_error *error)
{
    by__pattern *pattern;
    *out = strcmp(k->reward, "exact") == 0 || strcmp(k->reward, "number") == 0;
    if (strcmp(k->reward, "regex") != 0) {
        return BY_OK;
    }
    by_status status =
        by__pattern_open(&pattern, k->reward_pattern, strlen(k->reward_pattern), error);
    if (status != BY_OK) {
        status = status == BY_EFORMAT ? BY_ECONFIG : status;
        return by_error_prefix(error, status, "task.reward_pattern");
    }
    *out = by__pattern_groups(pattern) > 0;
    by__pattern_close(&pattern);
    return BY_OK;
}

static by_status read_prompts(reinforce_data *d, const by_config *config, by_error *error)
{
    const by__task_reinforce_keys *k = by__task_reinforce_keys_of(config);
    by__task_prompt_fields fields = {.prompt = k->prompt_field,
                                     .answer = k->answer_field,
                                     .needs_number = strcmp(k->reward, "number") == 0,
                                     .form = k->prompt_form};
    BY_TRY(needs_answer(k, &fields.needs_answer, error));
    by__task_prompts_free(&d->prompts);
    BY_TRY(check_room(config, k, error));
    d->prompts.most = (size_t)(config->model.context - k->max_tokens);
    for (size_t i = 0; i < k->prompts.count; i++) {
        BY_TRY(
            by__task_prompts_read(&d->prompts, k->prompts.items[i], &fields, d->tokenizer, error));
    }
    if (d->prompts.count == 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: data.prompts has no prompt of at most %zu tokens (%llu have "
                            "more), the difference of model.context and task.max_tokens",
                            by__config_where(config, "data.prompts", "task.kind"), d->prompts.most,
                            (unsigned long long)d->prompts.left_out);
    }
    by__hash128_hex(d->content, d->prompts.text.data, d->prompts.text.length);
    d->base.bytes = d->prompts.text.capacity + d->prompts.id_capacity * sizeof(int32_t);
    int length = snprintf(d->summary, sizeof d->summary, "%zu prompts", d->prompts.count);
    if (d->prompts.left_out > 0) {
        (void)snprintf(d->summary + length, sizeof d->summary - (size_t)length,
                       "; %llu are longer than %zu tokens and left out",
                       (unsigned long long)d->prompts.left_out, d->prompts.most);
    }
    d->base.summary = d->summary;
    d->base.train_examples =
        d->prompts.count * (uint64_t)k->group * (uint64_t)config->model.context;
    return BY_OK;
}

static by_status complete(by_task_data *base, by_config *config, by_error *error)
{
    reinforce_data *d = (reinforce_data *)base;
    int64_t vocab = by_tokenizer_vocab(d->tokenizer);
    if (config->model.vocab < 0) {
        int64_t unit = config->model.pad_vocab_to;
        config->model.vocab = (vocab + unit - 1) / unit * unit;
    }
    if (config->model.vocab < vocab) {
        return by_error_set(error, BY_ECONFIG,
                            "model.vocab %lld is less than the %lld of the tokenizer, %s",
                            (long long)config->model.vocab, (long long)vocab, d->path);
    }
    BY_TRY(by_config_resolve(config, error));
    return read_prompts(d, config, error);
}

/* ---- samples ---- */

typedef struct prompt_source {
    by_source base;
    uint64_t prompts;
    uint64_t group;
    by_array arrays[1];
} prompt_source;

/* The samples of a group follow each other, so the order of an epoch is one of prompts. */
static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    const prompt_source *s = (const prompt_source *)source;
    by__loader_order order;
    int32_t *out = rows[0];
    uint64_t group = sample->index / s->group;
    BY_UNUSED(error);
    by__loader_order_init(&order, s->prompts, sample->seed, group / s->prompts);
    out[BY__ROLLOUT_PROMPT] = (int32_t)by__loader_order_at(&order, group % s->prompts);
    out[BY__ROLLOUT_PLACE] = (int32_t)(sample->index % s->group);
    out[BY__ROLLOUT_LOW] = (int32_t)(uint32_t)group;
    out[BY__ROLLOUT_HIGH] = (int32_t)(uint32_t)(group >> 32);
    return BY_OK;
}

static void close_source(by_source *source)
{
    free(source);
}

static by_status open_source(by_source **out, by_task_data *base, const by_config *config,
                             bool training, by_error *error)
{
    const by__task_reinforce_keys *k = by__task_reinforce_keys_of(config);
    prompt_source *s;
    if (!training) {
        return by_error_set(error, BY_EARG, "task reinforce holds out no data");
    }
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "prompts", error));
    s->prompts = by__task_reinforce_prompts(base)->count;
    s->group = (uint64_t)k->group;
    s->arrays[0] =
        (by_array){.name = "sample", .dtype = BY_I32, .shape = BY_SHAPE(BY__ROLLOUT_FIELDS)};
    s->base = (by_source){.name = "prompts",
                          .arrays = s->arrays,
                          .array_count = 1,
                          .shuffle = true,
                          .samples = s->prompts * s->group,
                          .sample_targets = (uint64_t)k->max_tokens,
                          .targets = s->prompts * s->group * (uint64_t)k->max_tokens,
                          .fill = fill,
                          .close = close_source};
    *out = &s->base;
    return BY_OK;
}

static unsigned knows(const by_config *config)
{
    return (config->model.vocab > 0 ? (unsigned)BY_TASK_SIZES : 0) |
           (by__task_reinforce_keys_of(config)->prompts.count > 0 ? (unsigned)BY_TASK_DATA : 0);
}

/* ---- loss ---- */

static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    if (model->hidden == BY_NONE || model->head == BY_NONE || by_model_is_encoder(&config->model)) {
        return by_error_set(error, BY_ECONFIG,
                            "task.kind reinforce needs a model that continues a text; model.kind "
                            "%s does not",
                            config->model.kind);
    }
    const by_shape shape = BY_SHAPE(request->batch, request->time);
    by_value targets = by_graph_input(graph, "targets", BY_I32, shape);
    by_value weights = by_graph_input(graph, "weight", BY_F32, shape);
    by__graph_set_axes(graph, targets, "batch time");
    by__graph_set_axes(graph, weights, "batch time");
    model->loss =
        by_weighted_linear_cross_entropy(graph, model->hidden, model->head, targets, weights);
    if (model->auxiliary != BY_NONE) {
        by_value ids = by_count_ids(graph, targets, config->model.vocab);
        model->counted = by_sum(graph, ids, &(const int){0}, 1, true);
    }
    return BY_OK;
}

static const char *loss_label(const by_config *config)
{
    BY_UNUSED(config);
    return "surrogate of the policy gradient";
}

/* ---- checkpoints ---- */

static by_status keep(by_task_data *base, const by_config *config, by_task_kept *out,
                      by_error *error)
{
    reinforce_data *d = (reinforce_data *)base;
    if (d->tokenizer_config == NULL) {
        if (d->origin != NULL) {
            BY_TRY(by__task_origin_files_read(&d->files, d->origin, config->model.context, error));
        }
        BY_TRY(by__task_tokenizer_config(&d->tokenizer_config, d->eos_token, config->model.context,
                                         error));
    }
    const char *settings =
        d->files.tokenizer_config != NULL ? d->files.tokenizer_config : d->tokenizer_config;
    *out = (by_task_kept){
        .values = {{.key = "tokenizer_hash",
                    .kind = BY_VALUE_STRING,
                    .as.string = by_tokenizer_hash(d->tokenizer)},
                   {.key = "train_hash", .kind = BY_VALUE_STRING, .as.string = d->content}},
        .value_count = 2,
        .files = {{.name = "tokenizer.json", .data = d->json, .size = d->json_length},
                  {.name = "tokenizer_config.json", .data = settings, .size = strlen(settings)}},
        .file_count = 2,
        .eos = d->eos};
    by__task_origin_files_keep(&d->files, out);
    return BY_OK;
}

static by_status check(const by_task_data *base, const by_checkpoint *checkpoint, by_error *error)
{
    const reinforce_data *d = (const reinforce_data *)base;
    const char *tokenizer;
    const char *content;
    BY_TRY(by_checkpoint_value_string(checkpoint, "tokenizer_hash", &tokenizer, error));
    BY_TRY(by_checkpoint_value_string(checkpoint, "train_hash", &content, error));
    if (strcmp(tokenizer, by_tokenizer_hash(d->tokenizer)) != 0 ||
        strcmp(content, d->content) != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s was trained on other prompts (content %.8s, tokenizer %.8s) than "
                            "there are now (%.8s, %.8s): restore them, or start a new run with "
                            "model.from=%s",
                            by_checkpoint_path(checkpoint), content, tokenizer, d->content,
                            by_tokenizer_hash(d->tokenizer), by_checkpoint_path(checkpoint));
    }
    return BY_OK;
}

/* ---- texts ---- */

static by_status encode(by_task_data *base, const char *text, int32_t **ids, size_t *count,
                        int64_t *vocab, by_error *error)
{
    return by__task_text_to_ids(((reinforce_data *)base)->path, text, ids, count, vocab, error);
}

static by_status decode(by_task_data *base, const int32_t *ids, size_t count, char **text,
                        size_t *length, by_error *error)
{
    return by__task_text_of_ids(((reinforce_data *)base)->path, ids, count, text, length, error);
}

const by__task_row by__task_reinforce = {
    .kind = {.name = "reinforce",
             .help = "Reinforcement learning: completions of prompts that get more reward.",
             .keys = {&key_list},
             .size = sizeof(by__task_reinforce_keys),
             .resolve = resolve},
    .task = {.name = "reinforce",
             .examples = "tokens",
             .rolls_out = true,
             .loss_label = loss_label,
             .open = open_data,
             .close = close_data,
             .per_sample = by__task_text_per_sample,
             .knows = knows,
             .assume = by__task_text_assume,
             .complete = complete,
             .source = open_source,
             .loss = loss,
             .keep = keep,
             .check = check,
             .encode = encode,
             .decode = decode},
};
