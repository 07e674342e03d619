/* Writes GGUF files, version 3: "GGUF", u32 version, u64 tensors, u64 pairs; the pairs; for each
 * tensor its name, rank, sizes (the innermost first), type and offset; the data, each tensor on a
 * multiple of 32 bytes. A string is a u64 length and its bytes. */
#include <stdlib.h>
#include <string.h>

#include "export/gguf_write.h"

#define ALIGNMENT ((uint64_t)32)
/* Elements converted at a time, or one row if that is longer. */
#define CHUNK ((int64_t)1 << 18)

static void add_little(by_string *text, uint64_t value, size_t bytes)
{
    uint8_t out[8];
    for (size_t i = 0; i < bytes; i++) {
        out[i] = (uint8_t)(value >> (8 * i));
    }
    by_string_add(text, out, bytes);
}

static void add_string(by_string *text, const char *s, size_t length)
{
    add_little(text, length, 8);
    by_string_add(text, s, length);
}

static void begin_pair(by__export_gguf_pairs *pairs, const char *key, uint32_t type)
{
    add_string(&pairs->bytes, key, strlen(key));
    add_little(&pairs->bytes, type, 4);
    pairs->count++;
}

void by__export_gguf_put_u32(by__export_gguf_pairs *pairs, const char *key, uint32_t value)
{
    begin_pair(pairs, key, 4);
    add_little(&pairs->bytes, value, 4);
}

void by__export_gguf_put_f32(by__export_gguf_pairs *pairs, const char *key, float value)
{
    begin_pair(pairs, key, BY__GGUF_F32);
    by_string_add(&pairs->bytes, &value, sizeof value);
}

void by__export_gguf_put_bool(by__export_gguf_pairs *pairs, const char *key, bool value)
{
    begin_pair(pairs, key, 7);
    add_little(&pairs->bytes, value ? 1 : 0, 1);
}

void by__export_gguf_put_text(by__export_gguf_pairs *pairs, const char *key, const char *text)
{
    begin_pair(pairs, key, BY__GGUF_STRING);
    add_string(&pairs->bytes, text, strlen(text));
}

void by__export_gguf_begin_array(by__export_gguf_pairs *pairs, const char *key, uint32_t type,
                                 uint64_t count)
{
    begin_pair(pairs, key, 9);
    add_little(&pairs->bytes, type, 4);
    add_little(&pairs->bytes, count, 8);
}

void by__export_gguf_add_text(by__export_gguf_pairs *pairs, const char *text, size_t length)
{
    add_string(&pairs->bytes, text, length);
}

/* ---- the file ---- */

static uint64_t padding(uint64_t at)
{
    return (ALIGNMENT - at % ALIGNMENT) % ALIGNMENT;
}

/* Builds everything before the data and assigns tensors their offsets; *size is that of the whole
 * file. */
static by_status make_header(by_string *out, uint64_t *size, by__export_gguf_plan *plan,
                             const by__export_gguf_pairs *pairs, by_error *error)
{
    uint64_t offset = 0;
    by__string_append(out, "GGUF");
    add_little(out, 3, 4);
    add_little(out, plan->count, 8);
    add_little(out, pairs->count, 8);
    by_string_add(out, pairs->bytes.data, pairs->bytes.length);
    for (size_t i = 0; i < plan->count; i++) {
        by__export_gguf_tensor *t = &plan->tensors[i];
        add_string(out, t->name, strlen(t->name));
        add_little(out, (uint64_t)t->rank, 4);
        add_little(out, (uint64_t)t->columns, 8);
        if (t->rank >= 2) {
            add_little(out, (uint64_t)(t->rows / t->experts), 8);
        }
        if (t->rank == 3) {
            add_little(out, (uint64_t)t->experts, 8);
        }
        add_little(out, t->type->id, 4);
        add_little(out, offset, 8);
        t->offset = offset;
        offset += t->bytes + padding(t->bytes);
    }
    static const uint8_t zeros[ALIGNMENT];
    by_string_add(out, zeros, (size_t)padding(out->length));
    if (out->failed || pairs->bytes.failed) {
        return by_error_set(error, BY_EMEMORY, "out of memory: metadata");
    }
    *size = out->length + offset;
    return BY_OK;
}

typedef struct buffers {
    float *rows;
    float *scratch;
    uint8_t *blocks;
} buffers;

static by_status write_rows(by__checkpoint_sink *sink, const by__export_gguf_tensor *t, buffers *b,
                            const by_weights *weights, int64_t first, int64_t count,
                            by_error *error)
{
    const by__export_gguf_type *type = t->type;
    size_t blocks = (size_t)(count * t->columns) / type->elements;
    BY_TRY(by__export_gguf_rows(b->rows, b->scratch, t, weights, first, count, error));
    for (size_t i = 0; i < blocks; i++) {
        if (!type->encode(b->blocks + i * type->bytes, b->rows + i * type->elements)) {
            return by_error_set(error, BY_EARG,
                                "tensor '%s' has a value that %s cannot hold: it is not finite, or "
                                "too large; f32 and bf16 have it",
                                t->name, type->name);
        }
    }
    return by__checkpoint_sink_add(sink, b->blocks, blocks * type->bytes, error);
}

static by_status write_tensor(by__checkpoint_sink *sink, const by__export_gguf_tensor *t,
                              buffers *b, const by_weights *weights, by_error *error)
{
    static const uint8_t zeros[ALIGNMENT];
    int64_t most = t->columns == 0 ? 1 : CHUNK / t->columns;
    most = most < 1 ? 1 : most;
    for (int64_t first = 0; first < t->rows; first += most) {
        int64_t count = t->rows - first < most ? t->rows - first : most;
        BY_TRY(write_rows(sink, t, b, weights, first, count, error));
    }
    return by__checkpoint_sink_add(sink, zeros, (size_t)padding(t->bytes), error);
}

static by_status write_tensors(by__checkpoint_sink *sink, const by__export_gguf_plan *plan,
                               const by_weights *weights, by_error *error)
{
    buffers b = {0};
    size_t most = (size_t)CHUNK;
    for (size_t i = 0; i < plan->count; i++) {
        size_t columns = (size_t)plan->tensors[i].columns;
        most = columns > most ? columns : most;
    }
    by_status status = by__alloc((void **)&b.rows, most, sizeof *b.rows, "rows", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&b.scratch, most, sizeof *b.scratch, "rows", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&b.blocks, most, sizeof(float), "rows", error);
    }
    for (size_t i = 0; i < plan->count && status == BY_OK; i++) {
        status = write_tensor(sink, &plan->tensors[i], &b, weights, error);
    }
    free(b.rows);
    free(b.scratch);
    free(b.blocks);
    return status;
}

static by_status write_file(by__export *e, by__export_gguf_plan *plan,
                            const by__export_gguf_pairs *pairs, by_error *error)
{
    by_string header = {0};
    by__checkpoint_sink *sink = NULL;
    char *directory = NULL;
    char *name = NULL;
    uint64_t size = 0;
    by_status status = make_header(&header, &size, plan, pairs, error);
    if (status == BY_OK) {
        status = by__export_place(&directory, &name, e->options->output, error);
    }
    if (status == BY_OK) {
        status = by__checkpoint_sink_open(&sink, directory, name, size, error);
    }
    if (status == BY_OK) {
        status = by__checkpoint_sink_add(sink, header.data, header.length, error);
    }
    if (status == BY_OK) {
        status = write_tensors(sink, plan, e->source->weights, error);
    }
    if (status == BY_OK) {
        status = by__checkpoint_sink_commit(&sink, NULL, error);
    }
    if (status == BY_OK) {
        status = by__sync_dir(directory, error);
    }
    by__checkpoint_sink_discard(&sink);
    by_string_free(&header);
    free(directory);
    free(name);
    e->report = (by_export_report){.tensors = plan->count, .bytes = size, .widened = plan->widened};
    return status;
}

/* Adds the origin and the kind of the file. */
static void put_general(by__export_gguf_pairs *pairs, const by__export *e,
                        const by__export_gguf_architecture *architecture,
                        const by__export_gguf_type *type)
{
    const by__checkpoint_origin *s = &e->origin;
    by__export_gguf_put_text(pairs, "general.architecture", architecture->name);
    by__export_gguf_put_text(pairs, "general.type", "model");
    by__export_gguf_put_u32(pairs, "general.alignment", (uint32_t)ALIGNMENT);
    by__export_gguf_put_u32(pairs, "general.file_type", type->file_type);
    if (type->is_quantized) {
        by__export_gguf_put_u32(pairs, "general.quantization_version", 2);
    }
    if (s->run != NULL) {
        by__export_gguf_put_text(pairs, "general.name", s->run);
        by__export_gguf_put_text(pairs, "banyan.run", s->run);
    }
    if (s->config_hash != NULL) {
        by__export_gguf_put_text(pairs, "banyan.config_hash", s->config_hash);
    }
    if (s->data_hash != NULL) {
        by__export_gguf_put_text(pairs, "banyan.data_hash", s->data_hash);
    }
}

by_status by__export_gguf(by__export *e, by_error *error)
{
    const char *kind = json_string_value(json_object_get(e->config, "model_type"));
    const by__export_gguf_architecture *architecture =
        by__export_gguf_architecture_of(kind == NULL ? "" : kind);
    const char *own = by_dtype_name(by__export_dtype(e->source->weights));
    const char *wanted = e->options->dtype != NULL ? e->options->dtype : own;
    const by__export_gguf_type *type = by__export_gguf_type_named(wanted);
    by__export_gguf_plan plan = {0};
    by__export_gguf_pairs pairs = {0};
    char *names = NULL;
    if (architecture == NULL) {
        BY_TRY(by__export_gguf_architectures(&names, error));
        (void)by_error_set(error, BY_EFORMAT,
                           "model_type '%.60s' is not exported to GGUF; those of llama.cpp's "
                           "architectures %s are",
                           kind == NULL ? "" : kind, names);
        free(names);
        return BY_EFORMAT;
    }
    put_general(&pairs, e, architecture, type);
    by_status status = by__export_gguf_put_model(&pairs, e, architecture, error);
    if (status == BY_OK) {
        status = by__export_gguf_put_vocabulary(&pairs, e, error);
    }
    if (status == BY_OK) {
        status = by__export_gguf_plan_make(&plan, e, type, error);
    }
    if (status == BY_OK) {
        status = write_file(e, &plan, &pairs, error);
    }
    by__export_gguf_plan_free(&plan);
    by_string_free(&pairs.bytes);
    return status;
}
