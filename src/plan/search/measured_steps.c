/* Measured steps of a table, and the config of the model of each. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/search/calibration.h"

/* A table, and the row that is read. */
typedef struct step_row {
    const by_table *table;
    uint64_t row;
} step_row;

static by_status refuse(const step_row *r, const char *name, const char *what, by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s, row %llu: '%s' %s", by_table_name(r->table),
                        (unsigned long long)r->row + 1, name, what);
}

/* A number from `least` on; without the column, or where it is empty,
 * `otherwise`, if not NAN. */
static by_status read_number(double *out, const step_row *r, const char *name, double least,
                             double otherwise, by_error *error)
{
    const by_column *c = by_table_find(r->table, name);
    double value = c == NULL || c->kind != BY_COLUMN_NUMBER ? (double)NAN : c->numbers[r->row];
    if (c == NULL && isnan(otherwise)) {
        return by_error_set(error, BY_EARG, "%s: no column '%s'", by_table_name(r->table), name);
    }
    value = isnan(value) ? otherwise : value;
    if (!(value >= least) || value > 1e15) {
        return refuse(r, name, "is no number in its range", error);
    }
    *out = value;
    return BY_OK;
}

static by_status read_whole(int64_t *out, const step_row *r, const char *name, double least,
                            double otherwise, by_error *error)
{
    double value;
    BY_TRY(read_number(&value, r, name, least, otherwise, error));
    if (value > 1e9 || floor(value) < value) {
        return refuse(r, name, "is no whole number up to 1e9", error);
    }
    *out = (int64_t)value;
    return BY_OK;
}

static const char *read_text(const step_row *r, const char *name, const char *otherwise)
{
    const by_column *c = by_table_find(r->table, name);
    int32_t value = c == NULL || c->kind != BY_COLUMN_CATEGORY ? -1 : c->categories[r->row];
    return value < 0 ? otherwise : c->values[value];
}

/* ---- models ---- */

static by_status read_model(char text[512], const step_row *r, by_error *error)
{
    const char *kind = read_text(r, "kind", "gpt2");
    bool llama = strcmp(kind, "llama") == 0;
    int64_t layers;
    int64_t width;
    int64_t heads;
    int64_t kv_heads;
    int64_t mlp;
    int64_t context;
    int64_t vocab;
    int64_t tied;
    BY_TRY(read_whole(&layers, r, "layers", 1, (double)NAN, error));
    BY_TRY(read_whole(&width, r, "width", 1, (double)NAN, error));
    BY_TRY(read_whole(&heads, r, "heads", 1, (double)NAN, error));
    BY_TRY(read_whole(&context, r, "context", 1, (double)NAN, error));
    BY_TRY(read_whole(&kv_heads, r, "kv_heads", 1, (double)heads, error));
    BY_TRY(read_whole(&mlp, r, "mlp_width", 1, 4.0 * (double)width, error));
    BY_TRY(read_whole(&vocab, r, "vocabulary", 1, 51200, error));
    BY_TRY(read_whole(&tied, r, "tied", 0, llama ? 0 : 1, error));
    if (!llama && strcmp(kind, "gpt2") != 0) {
        return refuse(r, "kind", "is neither gpt2 nor llama", error);
    }
    char grouped[48] = "";
    if (llama) {
        (void)snprintf(grouped, sizeof grouped, ", kv_heads: %lld", (long long)kv_heads);
    }
    (void)snprintf(text, 512,
                   "model: {kind: %s, layers: %lld, width: %lld, heads: %lld, mlp_width: "
                   "%lld, "
                   "context: %lld, vocab: %lld, tied: %s%s}\nprecision: {compute: bf16}\n",
                   kind, (long long)layers, (long long)width, (long long)heads, (long long)mlp,
                   (long long)context, (long long)vocab, tied != 0 ? "true" : "false", grouped);
    return BY_OK;
}

static by_status find_model(size_t *out, by_calibration *c, const step_row *r, by_error *error)
{
    char text[512];
    BY_TRY(read_model(text, r, error));
    for (size_t i = 0; i < c->model_count; i++) {
        if (strcmp(c->models[i].text, text) == 0) {
            *out = i;
            return BY_OK;
        }
    }
    BY_TRY(by__reserve((void **)&c->models, &c->model_capacity, c->model_count + 1,
                       sizeof *c->models, error));
    by__search_case_model *m = &c->models[c->model_count];
    *m = (by__search_case_model){0};
    (void)snprintf(m->text, sizeof m->text, "%s", text);
    BY_TRY(
        by_config_parse(&m->config, by_table_name(r->table), text, strlen(text), NULL, 0, error));
    *out = c->model_count++;
    return by_config_resolve(m->config, error);
}

/* ---- layouts ---- */

static by_status read_seconds(double *out, const step_row *r, double tokens, by_error *error)
{
    double value;
    if (by_table_find(r->table, "step_s") != NULL) {
        return read_number(out, r, "step_s", 1e-9, (double)NAN, error);
    }
    if (by_table_find(r->table, "step_ms") != NULL) {
        BY_TRY(read_number(&value, r, "step_ms", 1e-6, (double)NAN, error));
        *out = 1e-3 * value;
        return BY_OK;
    }
    BY_TRY(read_number(&value, r, "tokens_per_s", 1e-6, (double)NAN, error));
    *out = tokens / value;
    return BY_OK;
}

static by_status read_recompute(by_search_recompute *out, const step_row *r, by_error *error)
{
    const char *text = read_text(r, "recompute", "none");
    bool full = strcmp(text, "full") == 0;
    if (!full && strcmp(text, "none") != 0 && strcmp(text, "selective") != 0) {
        return refuse(r, "recompute", "is none of none, selective, full", error);
    }
    /* What is recomputed selectively, fused attention recomputes anyway. */
    *out = full ? BY_SEARCH_RECOMPUTE_BLOCK : BY_SEARCH_RECOMPUTE_NONE;
    return BY_OK;
}

/* What a program does otherwise than banyan. */
static by_status read_program(by_measured_step *s, const step_row *r, by_error *error)
{
    const char *rest = read_text(r, "overlap", "gradients");
    const struct {
        const char *name;
        bool *is;
    } kinds[] = {{"gradients", &s->overlaps_gradients},
                 {"sends", &s->overlaps_sends},
                 {"tensor", &s->overlaps_tensor}};
    int64_t splits;
    BY_TRY(read_number(&s->gradient, r, "gradient_bytes", 0.125, 4.0, error));
    BY_TRY(read_number(&s->bucket, r, "bucket_mib", 0.0, 0.0, error));
    BY_TRY(read_whole(&splits, r, "split_sends", 0, 0, error));
    s->bucket *= 1048576.0 / 4.0;
    s->splits_sends = splits != 0;
    while (strcmp(rest, "none") != 0) {
        size_t length = strcspn(rest, "+");
        size_t k = 0;
        while (k < BY_ARRAY_LENGTH(kinds) &&
               (strlen(kinds[k].name) != length || strncmp(kinds[k].name, rest, length) != 0)) {
            k++;
        }
        if (k == BY_ARRAY_LENGTH(kinds)) {
            return refuse(r, "overlap", "is neither none nor of gradients+sends+tensor", error);
        }
        *kinds[k].is = true;
        if (rest[length] == '\0') {
            break;
        }
        rest += length + 1;
    }
    return BY_OK;
}

static by_status read_layout(by_measured_step *s, const step_row *r, by_error *error)
{
    by_search_choice *l = &s->layout;
    int64_t axes[4];
    int64_t values[4];
    static const char *const names[4] = {"tensor", "sequence", "pipeline", "shard"};
    for (int k = 0; k < 4; k++) {
        BY_TRY(read_whole(&axes[k], r, names[k], 1, 1, error));
    }
    BY_TRY(read_whole(&l->devices, r, "devices", 1, (double)NAN, error));
    BY_TRY(read_whole(&l->micro_batch, r, "micro_batch", 1, (double)NAN, error));
    BY_TRY(read_whole(&s->batch, r, "batch", 1, (double)NAN, error));
    BY_TRY(read_whole(&values[0], r, "zero", 0, 1, error));
    BY_TRY(read_whole(&values[1], r, "virtual_stages", 1, 1, error));
    BY_TRY(read_whole(&values[2], r, "sequence_parallel", 0, 0, error));
    BY_TRY(read_recompute(&l->recompute, r, error));
    BY_TRY(read_whole(&values[3], r, "sums", 0, 1, error));
    s->adds = values[3] != 0;
    BY_TRY(read_program(s, r, error));
    int64_t product = axes[0] * axes[1] * axes[2] * axes[3];
    if (product > l->devices || l->devices % product != 0) {
        return refuse(r, "devices", "is no multiple of the axes", error);
    }
    int64_t replicas = l->devices / product * axes[3];
    if (s->batch % l->micro_batch != 0 || s->batch / l->micro_batch < replicas) {
        return refuse(r, "micro_batch", "does not divide the batch among the replicas", error);
    }
    l->sizes[BY_MESH_TENSOR] = (int)axes[0];
    l->sizes[BY_MESH_SEQUENCE] = (int)axes[1];
    l->sizes[BY_MESH_PIPELINE] = (int)axes[2];
    l->sizes[BY_MESH_SHARD] = (int)axes[3];
    l->sizes[BY_MESH_DATA] = (int)(l->devices / product);
    l->sizes[BY_MESH_EXPERT] = 1;
    l->zero = (int)values[0];
    l->chunks = (int)values[1];
    l->sequence_parallel = values[2] != 0 && axes[0] > 1;
    l->micro_batches = (s->batch / l->micro_batch + replicas - 1) / replicas;
    return BY_OK;
}

by_status by__search_cases_read(by_calibration *c, const by_table *table, by_error *error)
{
    size_t rows = (size_t)by_table_rows(table);
    BY_TRY(by__alloc((void **)&c->steps, rows + 1, sizeof *c->steps, "steps", error));
    for (uint64_t row = 0; row < rows; row++) {
        const step_row r = {table, row};
        by_measured_step *s = &c->steps[c->count];
        BY_TRY(find_model(&s->model, c, &r, error));
        BY_TRY(read_layout(s, &r, error));
        double tokens = (double)s->batch * (double)c->models[s->model].config->model.context;
        BY_TRY(read_seconds(&s->seconds, &r, tokens, error));
        c->count++;
    }
    return c->count > 0 ? BY_OK : by_error_set(error, BY_EARG, "%s: no row", by_table_name(table));
}
