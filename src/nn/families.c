/* The table of model families, and the functions of by_model that dispatch to them; building a
 * model, and its config.json. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/token_ids.h"
#include "nn/series.h"

/* One row per family: by__nn_family_NAME of models/NAME.c. */
#define FAMILIES(ROW)                                                                              \
    ROW(gpt2)                                                                                      \
    ROW(llama)                                                                                     \
    ROW(mixtral)                                                                                   \
    ROW(bert)                                                                                      \
    ROW(vit)                                                                                       \
    ROW(resnet)                                                                                    \
    ROW(convnext)                                                                                  \
    ROW(mobilenet_v2)                                                                              \
    ROW(efficientnet)                                                                              \
    ROW(unet)                                                                                      \
    ROW(dit)                                                                                       \
    ROW(unet2d)                                                                                    \
    ROW(mlp)                                                                                       \
    ROW(dlinear)                                                                                   \
    ROW(patchtst)                                                                                  \
    ROW(tcn)                                                                                       \
    ROW(nbeats)                                                                                    \
    ROW(tide)                                                                                      \
    ROW(lstm)                                                                                      \
    ROW(gru)                                                                                       \
    ROW(gcn)                                                                                       \
    ROW(sage)                                                                                      \
    ROW(gat)                                                                                       \
    ROW(gin)                                                                                       \
    ROW(rgcn)

#define DECLARE(name) extern const by__nn_family by__nn_family_##name;
#define ADDRESS(name) &by__nn_family_##name,
FAMILIES(DECLARE)
static const by__nn_family *const families[] = {FAMILIES(ADDRESS)};

const by__config_kind *by__nn_family_kind(size_t index)
{
    return index < BY_ARRAY_LENGTH(families) ? &families[index]->kind : NULL;
}

const char *by__nn_families_reading(char buffer[256], const char *what)
{
    size_t length = 0;
    buffer[0] = '\0';
    for (size_t i = 0; i < BY_ARRAY_LENGTH(families) && length < 256; i++) {
        if (what == NULL || strcmp(families[i]->reads, what) == 0) {
            length += (size_t)snprintf(buffer + length, 256 - length, "%s%s",
                                       length == 0 ? "" : ", ", families[i]->kind.name);
        }
    }
    return buffer;
}

static by_status find_family(const by__nn_family **out, const by_model_config *config,
                             by_error *error)
{
    char all[256];
    const char *names[BY_ARRAY_LENGTH(families)];
    const char *kind = config->kind;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(families); i++) {
        const by__config_kind *row = &families[i]->kind;
        names[i] = row->name;
        if (strcmp(kind, names[i]) == 0) {
            if (row->size > 0 && by__config_kind_own(config->own, row) == NULL) {
                return by_error_set(error, BY_EARG,
                                    "model.kind %s: the config of a model is part of one that "
                                    "by_config_open, by_config_parse or by_config_default made",
                                    kind);
            }
            *out = families[i];
            return BY_OK;
        }
    }
    const char *nearest = by_nearest_name(kind, names, BY_ARRAY_LENGTH(names));
    return by_error_set(error, BY_ECONFIG, "model.kind: unknown model '%s'; %s%s", kind,
                        nearest == NULL ? "one of " : "nearest: ",
                        nearest == NULL ? by__nn_families_reading(all, NULL) : nearest);
}

static const by__nn_published *published_as(const by__nn_family *family,
                                            const by_model_config *config)
{
    return family->publish == NULL ? family->published : family->publish(config);
}

static bool reads_tokens(const by__nn_family *family)
{
    return strcmp(family->reads, "tokens") == 0;
}

static int64_t texts_of(const by_model_request *request)
{
    return request->texts > 1 ? request->texts : 1;
}

/* The tokens of each text, one after another. */
static by_value add_tokens(by__nn_build *b)
{
    const by_model_request *r = b->request;
    int64_t texts = texts_of(r);
    if (texts == 1) {
        by_value tokens = by_graph_input(b->graph, "tokens", BY_I32, BY_SHAPE(r->batch, r->time));
        by__graph_set_axes(b->graph, tokens, "batch time");
        return tokens;
    }
    by_value tokens =
        by_graph_input(b->graph, "tokens", BY_I32, BY_SHAPE(r->batch / texts, texts, r->time));
    return by_reshape(b->graph, tokens, BY_SHAPE(r->batch, r->time));
}

static by_value add_lengths(by__nn_build *b)
{
    int64_t batch = b->request->batch;
    int64_t texts = texts_of(b->request);
    if (texts == 1) {
        return by_graph_input(b->graph, "lengths", BY_I32, BY_SHAPE(batch));
    }
    by_value lengths = by_graph_input(b->graph, "lengths", BY_I32, BY_SHAPE(batch / texts, texts));
    return by_reshape(b->graph, lengths, BY_SHAPE(batch));
}

/* Adds the inputs common to models of tokens, and that of dropout. */
static void add_inputs(by__nn_build *b, const by__nn_family *family)
{
    const by_model_request *request = b->request;
    if (reads_tokens(family)) {
        b->model.tokens = add_tokens(b);
        bool for_loss = request->mode == BY_MODEL_TRAIN || request->mode == BY_MODEL_LOSS;
        if (request->documents && for_loss) {
            b->model.starts =
                by_graph_input(b->graph, "starts", BY_I32, BY_SHAPE(request->batch, request->time));
            by__graph_set_axes(b->graph, b->model.starts, "batch time");
        }
    }
    if (family->encoder && request->padded) {
        b->model.lengths = add_lengths(b);
    }
    if (family->encoder && request->segmented) {
        b->model.segments =
            by_graph_input(b->graph, "segments", BY_I32, BY_SHAPE(request->batch, request->time));
        by__graph_set_axes(b->graph, b->model.segments, "batch time");
    }
    if (request->mode == BY_MODEL_TRAIN && b->config->dropout > 0.0) {
        b->model.rng = by_graph_input(b->graph, "rng", BY_I32, BY_SHAPE(4));
    }
    if (by__nn_is_cached(b)) {
        b->model.start = by_graph_input(b->graph, "start", BY_I32, BY_SHAPE(1));
    }
    if (request->mode == BY_MODEL_STEP) {
        b->model.positions =
            by_graph_input(b->graph, "positions", BY_I32, BY_SHAPE(request->batch, request->time));
        b->model.start = b->model.positions;
        b->model.sessions = by_graph_input(b->graph, "sessions", BY_I32, BY_SHAPE(request->time));
        b->model.pages =
            by_graph_input(b->graph, "pages", BY_I32, BY_SHAPE(request->sessions, request->table));
        b->model.wanted = by_graph_input(b->graph, "wanted", BY_I32, BY_SHAPE(request->wanted));
    }
}

/* Adds the product of the head, for all positions or the requested rows. */
static void add_logits(by__nn_build *b)
{
    const by_model_request *request = b->request;
    by_value hidden = b->model.hidden;
    if (request->mode == BY_MODEL_STEP) {
        by_shape rows = BY_SHAPE(request->time, -1);
        hidden = by_embedding(b->graph, b->model.wanted, by_reshape(b->graph, hidden, rows));
    }
    b->model.logits = by__op_matmul_full(b->graph, hidden, b->model.head, b->model.head_bias,
                                         BY_NONE, false, true, BY_F32);
    by_graph_output(b->graph, b->model.logits, "logits");
}

by_status by__nn_model_check_context(const by_model_config *config, int64_t context,
                                     by_error *error)
{
    const by__nn_family *family = NULL;
    BY_TRY(find_family(&family, config, error));
    const char *why = family->bounded == NULL ? NULL : family->bounded(config);
    return why == NULL || context <= config->context
               ? BY_OK
               : by_error_set(error, BY_EARG, "context %lld: the model's is %lld, and %s",
                              (long long)context, (long long)config->context, why);
}

static by_status build(by_model *out, by_graph *graph, const by__nn_family *family,
                       const by_model_config *config, const by_model_request *request,
                       by_error *error)
{
    by_model_request all = *request; /* of all texts of all examples */
    all.batch *= texts_of(request);
    by__nn_build b = {.graph = graph,
                      .config = config,
                      .request = &all,
                      .prefix = "",
                      .model = BY_MODEL_NONE,
                      .router_load = BY_NONE,
                      .router_mass = BY_NONE};
    bool for_loss = request->mode == BY_MODEL_TRAIN || request->mode == BY_MODEL_LOSS;
    if (!for_loss && !reads_tokens(family)) {
        return by_error_set(error, BY_EARG,
                            "model.kind %s reads %s, not tokens: it has no logits "
                            "of positions and continues no text",
                            config->kind, family->reads);
    }
    if (family->encoder && request->mode >= BY_MODEL_PREFILL) {
        return by_error_set(error, BY_EARG,
                            "model.kind %s is an encoder: it sees the whole text, predicts masked "
                            "tokens of it, and continues none",
                            config->kind);
    }
    if (reads_tokens(family) && (for_loss || request->mode == BY_MODEL_LOGITS)) {
        BY_TRY(by__nn_model_check_context(config, request->time, error));
    }
    add_inputs(&b, family);
    bool ends = by__nn_ends_in_score(family, config);
    b.prefix = ends && family->prefix != NULL ? family->prefix : "";
    family->body(&b);
    if (ends && for_loss) {
        by__nn_sequence_add(&b);
    }
    if (family->queries != NULL) {
        by__nn_mup_apply(&b, family->queries);
    }
    if (!for_loss && request->mode != BY_MODEL_PREFILL) {
        if (b.model.head == BY_NONE && graph->error.status == BY_OK) {
            return by_error_set(
                error, BY_EARG, "model.kind %s: a model that ends in %s has no logits of tokens",
                config->kind, ends || b.model.output != BY_NONE ? "outputs" : "its states");
        }
        add_logits(&b);
    }
    BY_TRY(by_graph_check(graph, error));
    BY_TRY(by__nn_choose_output(&b.model, config, error));
    *out = b.model;
    return BY_OK;
}

/* Whether a model can be built whose pictures have sides of at least `side`. */
static bool builds_at(const by__nn_family *family, const by_model_config *config,
                      const by_model_request *request, int64_t side)
{
    by_model model;
    by_graph *graph;
    by_model_config larger = *config;
    larger.image_height = side > config->image_height ? side : config->image_height;
    larger.image_width = side > config->image_width ? side : config->image_width;
    if (by_graph_open(&graph, NULL) != BY_OK) {
        return false;
    }
    by_status status = build(&model, graph, family, &larger, request, NULL);
    by_graph_close(&graph);
    return status == BY_OK;
}

/* Says that pictures are too small, if a model of larger ones can be built: which is the least size
 * depends on all windows and strides of the family, so it is searched for. */
static void explain_size(const by__nn_family *family, const by_model_config *config,
                         const by_model_request *request, by_status status, by_error *error)
{
    const int64_t most = 4096;
    int64_t low =
        config->image_height < config->image_width ? config->image_height : config->image_width;
    int64_t high = low < 1 ? 1 : 2 * low;
    while (high <= most && !builds_at(family, config, request, high)) {
        low = high;
        high *= 2;
    }
    if (error == NULL || low < 1 || high > most) {
        return;
    }
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        bool builds = builds_at(family, config, request, middle);
        low = builds ? low : middle;
        high = builds ? middle : high;
    }
    if (!builds_at(family, config, request, high + 1)) {
        return; /* not every larger size will do: the family says which */
    }
    (void)by_error_set(error, status,
                       "pictures of %lld x %lld pixels (model.image_width, model.image_height) are "
                       "too small for this %s, which takes %lld x %lld and larger: set both, and "
                       "data.resize, to which pictures are then resized",
                       (long long)config->image_width, (long long)config->image_height,
                       config->kind, (long long)high, (long long)high);
}

by_status by_model_build(by_model *out, by_graph *graph, const by_model_config *config,
                         const by_model_request *request, by_error *error)
{
    const by__nn_family *family = NULL;
    BY_TRY(find_family(&family, config, error));
    by_status status = build(out, graph, family, config, request, error);
    if (status != BY_OK && strcmp(family->reads, "images") == 0) {
        explain_size(family, config, request, status, error);
    }
    return status;
}

bool by_model_is_rotary(const by_model_config *config)
{
    const by__nn_family *family = NULL;
    return find_family(&family, config, NULL) == BY_OK &&
           !by__nn_positions_bounded(config, family->rotary);
}

bool by_model_is_encoder(const by_model_config *config)
{
    const by__nn_family *family = NULL;
    return find_family(&family, config, NULL) == BY_OK && family->encoder;
}

const char *by_model_reads(const by_model_config *config)
{
    const by__nn_family *family = NULL;
    return find_family(&family, config, NULL) == BY_OK ? family->reads : "";
}

const char *by_model_name_prefix(const by_model_config *config)
{
    const by__nn_family *family = NULL;
    if (find_family(&family, config, NULL) != BY_OK) {
        return NULL;
    }
    /* Beside score.weight, which has no prefix, the names of all others have it. */
    return by__nn_ends_in_score(family, config) && family->prefix != NULL ? "" : family->prefix;
}

by__nn_file_names by__nn_model_file_names(const by_model_config *config)
{
    const by__nn_family *family = NULL;
    if (find_family(&family, config, NULL) != BY_OK) {
        return (by__nn_file_names){0};
    }
    bool ends = by__nn_ends_in_score(family, config);
    return (by__nn_file_names){.family = family->prefix,
                               .base =
                                   ends && family->prefix != NULL ? family->prefix : family->base,
                               .heads = family->other_heads,
                               .tied = config->tied == 1 && !ends ? family->embedding : NULL};
}

static bool forecasts(const by_model_config *config)
{
    return strcmp(by_model_reads(config), "series") == 0 && !by__nn_series_is_whole(config);
}

const char *by_model_usual_task(const by_model_config *config)
{
    const by__nn_family *family = NULL;
    if (find_family(&family, config, NULL) == BY_OK && family->usual_task != NULL) {
        return family->usual_task(config);
    }
    bool tokens = strcmp(by_model_reads(config), "tokens") == 0;
    return tokens && config->outputs < 1 ? "language"
           : forecasts(config)           ? "forecast"
           : config->outputs > 1         ? "classify"
                                         : "regress";
}

by__nn_node_sizes *by__nn_node_sizes_of(const by_model_config *config)
{
    const by__nn_family *family = NULL;
    return find_family(&family, config, NULL) == BY_OK && strcmp(family->reads, "nodes") == 0
               ? by__config_kind_own(config->own, &family->kind)
               : NULL;
}

by__nn_grid by__nn_model_grid(const by_model_config *config)
{
    const by__nn_family *family = NULL;
    return find_family(&family, config, NULL) == BY_OK && family->grid != NULL
               ? family->grid(config)
               : (by__nn_grid){0};
}

const char *by_model_adapted(const by_model_config *config)
{
    const by__nn_family *family = NULL;
    return find_family(&family, config, NULL) == BY_OK ? family->adapted : NULL;
}

by_status by__nn_model_reduce(by_config *config, const by__nn_reduction *to, by_error *error)
{
    const by__nn_family *family = NULL;
    by_model_config *c = &config->model;
    BY_TRY(find_family(&family, c, error));
    BY_TRY(by_config_resolve(config, error)); /* for derived values, such as the width of heads */
    char part[64];
    if (to->layers != NULL && by__nn_layers_differ(part, c)) {
        return by_error_set(error, BY_EARG,
                            "%s depends on the numbers of layers, so layers cannot be pruned",
                            part);
    }
    int64_t left = 0;
    for (int64_t i = 0; i < c->layers; i++) {
        left += to->layers == NULL || to->layers[i];
    }
    if (to->heads > 0 && to->heads != c->heads && family->reduce == NULL) {
        return by_error_set(error, BY_EARG,
                            "model.kind %s: the width of a head is width / heads, so heads cannot "
                            "be pruned; MLP channels and layers can",
                            c->kind);
    }
    c->layers = left;
    c->heads = to->heads > 0 ? to->heads : c->heads;
    c->kv_heads = to->kv_heads > 0 ? to->kv_heads : c->kv_heads;
    c->mlp_width = to->mlp_width > 0 ? to->mlp_width : c->mlp_width;
    if (family->reduce != NULL) {
        BY_TRY(family->reduce(c, to, error));
    }
    return by_config_resolve(config, error);
}

by_status by_model_config_json(char **out, const by_model_config *config, int64_t eos,
                               by_error *error)
{
    const by__nn_family *family = NULL;
    BY_TRY(find_family(&family, config, error));
    json_t *root = json_object();
    const by__nn_published *published = published_as(family, config);
    (void)json_object_set_new(root, "architectures", json_pack("[s]", published->architecture));
    (void)json_object_set_new(root, "model_type", json_string(published->model_type));
    (void)json_object_set_new(root, "initializer_range", json_real(config->init_std));
    (void)json_object_set_new(root, "torch_dtype", json_string("float32"));
    if (reads_tokens(family)) {
        json_t *end = eos < 0 ? json_null() : json_integer(eos);
        (void)json_object_set_new(root, "vocab_size", json_integer(config->vocab));
        (void)json_object_set_new(root, "tie_word_embeddings", json_boolean(config->tied));
        (void)json_object_set(root, "bos_token_id", end);
        (void)json_object_set_new(root, "eos_token_id", end);
    }
    family->write_config(root, config);
    if (by__nn_ends_in_score(family, config)) {
        by__nn_sequence_write(root, config, eos);
    }
    by__nn_parts_write(root, config, family->expresses);
    char *text = root == NULL ? NULL : by__json_dump(root, JSON_INDENT(2) | JSON_SORT_KEYS);
    json_decref(root);
    if (text == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: config.json");
    }
    *out = text;
    return BY_OK;
}

by_status by_model_config_keep_ids(char **json, const char *from, by_error *error)
{
    static const char *const keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    json_t *origin = by__json_read(from, 0, NULL);
    if (!json_is_object(origin)) {
        json_decref(origin);
        return by_error_set(error, BY_EFORMAT, "the config.json to start from is no JSON object");
    }
    json_t *root = by__json_read(*json, JSON_REJECT_DUPLICATES, NULL);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(keys); i++) {
        json_t *id = json_object_get(origin, keys[i]);
        (void)(id == NULL ? 0 : json_object_set(root, keys[i], id));
    }
    char *text = root == NULL ? NULL : by__json_dump(root, JSON_INDENT(2) | JSON_SORT_KEYS);
    json_decref(root);
    json_decref(origin);
    if (text == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: config.json");
    }
    free(*json);
    *json = text;
    return BY_OK;
}

by_status by_model_config_label(char **json, const char *const *labels, size_t count,
                                by_error *error)
{
    json_t *root = by__json_read(*json, JSON_REJECT_DUPLICATES, NULL);
    json_t *names = json_object();
    json_t *ids = json_object();
    for (size_t i = 0; i < count; i++) {
        char id[24];
        (void)snprintf(id, sizeof id, "%zu", i);
        (void)json_object_set_new(names, id, json_string(labels[i]));
        (void)json_object_set_new(ids, labels[i], json_integer((json_int_t)i));
    }
    (void)json_object_set_new(root, "id2label", names);
    (void)json_object_set_new(root, "label2id", ids);
    char *text = root == NULL ? NULL : by__json_dump(root, JSON_INDENT(2) | JSON_SORT_KEYS);
    json_decref(root);
    if (text == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: config.json");
    }
    free(*json);
    *json = text;
    return BY_OK;
}

static const by__nn_published *find_published(const by__nn_family *family, const char *type)
{
    const by__nn_published *row = family->published;
    while (row->model_type != NULL && strcmp(row->model_type, type) != 0) {
        row++;
    }
    return row->model_type == NULL ? NULL : row;
}

static by_status refuse_type(const char *name, const char *type, by_error *error)
{
    by_string all = {0};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(families); i++) {
        for (const by__nn_published *row = families[i]->published; row->model_type != NULL; row++) {
            by_string_format(&all, "%s%s", all.length == 0 ? "" : ", ", row->model_type);
        }
    }
    char *text;
    BY_TRY(by__string_release(&all, &text, error));
    by_status status =
        by_error_set(error, BY_EFORMAT, "%s: \"model_type\" is \"%s\"; supported: %s", name,
                     type == NULL ? "(missing)" : type, text);
    free(text);
    return status;
}

static by_status read_root(by_model_config *config, const char *name, const json_t *root,
                           by_error *error)
{
    const char *type = by__nn_json_model_type(root);
    const by__nn_published *published = NULL;
    const by__nn_family *family = NULL;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(families) && type != NULL && published == NULL; i++) {
        family = families[i];
        published = find_published(family, type);
    }
    if (published == NULL) {
        return refuse_type(name, type, error);
    }
    BY_TRY(by__nn_set_string(&config->kind, family->kind.name, error));
    BY_TRY(find_family(&family, config, error));
    if (reads_tokens(family)) {
        BY_TRY(by__nn_json_integer(&config->vocab, name, root, "vocab_size", BY__REQUIRED, error));
        BY_TRY(by__token_ids_check(name, root, error));
        /* transformers omits the key if it has the family's default. */
        bool tied = json_object_get(root, "tie_word_embeddings") == NULL && published->tied;
        BY_TRY(by__nn_json_switch(&config->tied, name, root, "tie_word_embeddings", tied, error));
    }
    BY_TRY(by__nn_parts_reset(config, error));
    BY_TRY(family->read_config(config, name, root, error));
    if (reads_tokens(family) && !family->encoder) {
        by__nn_sequence_read(config, root);
    }
    return by__nn_parts_read(config, name, root, error);
}

by_status by_model_config_from_json(by_model_config *config, const char *name, const char *json,
                                    size_t length, by_error *error)
{
    json_error_t where;
    json_t *root = by_json_load(json, length, JSON_REJECT_DUPLICATES, &where);
    if (!json_is_object(root)) {
        bool is_json = root != NULL;
        json_decref(root);
        return is_json ? by_error_set(error, BY_EFORMAT,
                                      "%s: it holds JSON, but not an object {...} of a model", name)
                       : by_error_set(error, BY_EFORMAT, "%s:%d: not JSON: %s", name, where.line,
                                      where.text);
    }
    by_status status = read_root(config, name, root, error);
    json_decref(root);
    return status;
}
