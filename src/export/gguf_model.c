/* GGUF files as weights. Values are converted as they are read, so a model needs no more memory
 * than its mapped file. */
#include "export/gguf_model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "export/gguf_read.h"

/* A tensor with the name, order and type of the family, not of the file. */
typedef struct tensor {
    by__checkpoint_computed computed;
    const uint8_t *data;
    const by__export_gguf_type *type;
    by__export_gguf_order order;
    int64_t head; /* width of a head, if rows are ordered by heads */
    int64_t rows; /* shape as a weight: [rows, columns] */
    int64_t columns;
    int64_t inner; /* elements of a row in the file */
    by_dtype dtype;
} tensor;

struct by__export_gguf_model {
    by__map map; /* {0}: the bytes are borrowed */
    by__format_gguf_file file;
    char *path;
    char *config;
    const by__export_gguf_architecture *architecture;
    int64_t experts; /* 0: no mixture */
    tensor *tensors;
    by__checkpoint_tensor_entry *entries;
    size_t count;
};

/* Returns element (row, column) of the weight. */
static float element(const tensor *t, int64_t row, int64_t column)
{
    if (t->order == BY__GGUF_TRANSPOSED) {
        int64_t other = row;
        row = column;
        column = other;
    } else if (t->order != BY__GGUF_PLAIN) { /* the inverse of by__gguf_head_row */
        int64_t in_head = row % t->head;
        int64_t half = t->head / 2;
        row = row - in_head + 2 * (in_head % half) + in_head / half;
    }
    int64_t at = row * t->inner + column;
    int64_t elements = (int64_t)t->type->elements;
    return t->type->decode(t->data + (size_t)(at / elements) * t->type->bytes,
                           (size_t)(at % elements));
}

static void read_elements(const by__checkpoint_computed *self, uint64_t first, size_t count,
                          void *out)
{
    const tensor *t = (const tensor *)(const void *)self;
    const by__export_gguf_type *to = by__export_gguf_type_named(by_dtype_name(t->dtype));
    int64_t row = (int64_t)first / t->columns;
    int64_t column = (int64_t)first % t->columns;
    uint8_t *bytes = out;
    for (size_t i = 0; i < count; i++) {
        float value = element(t, row, column);
        (void)to->encode(bytes + i * to->bytes, &value);
        if (++column == t->columns) {
            column = 0;
            row++;
        }
    }
}

/* Finds the layer of a tensor, "blk.12.attn_q" of "blk.12.attn_q.weight", its block number (-1:
 * outside blocks), and the rest of its name. Returns NULL if the architecture has no such
 * tensor. */
static const by__export_gguf_layer *find_layer(const by__export_gguf_architecture *a,
                                               const char *name, int64_t *block, const char **part)
{
    static const by__export_gguf_layer head = {"output", "lm_head", BY__GGUF_PLAIN, false};
    const by__export_gguf_layer *layers = a->layers;
    const char *rest = name;
    *block = -1;
    if (strncmp(name, "blk.", 4) == 0) {
        size_t digits = strspn(name + 4, "0123456789");
        if (digits == 0 || digits > 6 || name[4 + digits] != '.') {
            return NULL;
        }
        *block = strtol(name + 4, NULL, 10);
        rest = name + 4 + digits + 1;
        layers = a->blocks;
    }
    *part = strrchr(rest, '.');
    if (*part == NULL || (strcmp(*part, ".weight") != 0 && strcmp(*part, ".bias") != 0)) {
        return NULL;
    }
    size_t length = (size_t)(*part - rest);
    for (const by__export_gguf_layer *l = layers; l->gguf != NULL; l++) {
        if (strlen(l->gguf) == length && strncmp(rest, l->gguf, length) == 0) {
            return l;
        }
    }
    return *block < 0 && strncmp(rest, "output.", 7) == 0 ? &head : NULL;
}

static by_status name_entry(by__checkpoint_tensor_entry *entry,
                            const by__export_gguf_architecture *a,
                            const by__export_gguf_layer *layer, int64_t block, int64_t expert,
                            const char *part, by_error *error)
{
    by_string text = {0};
    by__string_append(&text, strcmp(layer->other, "lm_head") == 0 ? "" : a->prefix);
    if (block >= 0) {
        by_string_format(&text, "%s%" PRId64 ".", a->block, block);
    }
    if (layer->order == BY__GGUF_EXPERTS) {
        int before = (int)strcspn(layer->other, "*");
        by_string_format(&text, "%.*s%" PRId64 "%s%s", before, layer->other, expert,
                         layer->other + before + 1, part);
    } else {
        by_string_format(&text, "%s%s", layer->other, part);
    }
    return by__string_release(&text, &entry->name, error);
}

static by_status bad(const by__export_gguf_model *m, const by__format_gguf_description *d,
                     const char *what, by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s: tensor '%s' %s", m->path, d->name, what);
}

/* Returns the width of heads: from the metadata, or the rows divided by the number of heads. */
static by_status head_width(int64_t *out, const by__export_gguf_model *m,
                            const by__format_gguf_description *d, int64_t rows, bool of_keys,
                            by_error *error)
{
    char key[128];
    uint64_t heads = 0;
    uint64_t width = 0;
    const char *name = m->architecture->name;
    (void)snprintf(key, sizeof key, "%s.attention.key_length", name);
    if (!by__format_gguf_whole(&m->file, key, &width)) {
        (void)snprintf(key, sizeof key, "%s.attention.head_count%s", name, of_keys ? "_kv" : "");
        if (!by__format_gguf_whole(&m->file, key, &heads)) {
            (void)snprintf(key, sizeof key, "%s.attention.head_count", name);
            (void)by__format_gguf_whole(&m->file, key, &heads);
        }
        width = heads == 0 || heads > INT32_MAX ? 0 : (uint64_t)rows / heads;
    }
    if (width < 2 || width % 2 != 0 || width > INT32_MAX || rows % (int64_t)width != 0) {
        return bad(m, d, "has rows that do not make up heads of an even width", error);
    }
    *out = (int64_t)width;
    return BY_OK;
}

static void set_shape(by__checkpoint_tensor_entry *entry, tensor *t,
                      const by__format_gguf_description *d)
{
    entry->rank = d->rank == 1 ? 1 : 2;
    t->inner = d->size[0];
    if (d->rank == 1) {
        entry->shape[0] = d->size[0];
        t->rows = d->size[0];
        t->columns = 1;
        t->inner = 1;
        return;
    }
    bool turned = t->order == BY__GGUF_TRANSPOSED;
    t->rows = entry->shape[0] = d->size[turned ? 0 : 1];
    t->columns = entry->shape[1] = d->size[turned ? 1 : 0];
}

static by_dtype dtype_of(const by__export_gguf_type *type)
{
    return strcmp(type->name, "f16") == 0    ? BY_F16
           : strcmp(type->name, "bf16") == 0 ? BY_BF16
                                             : BY_F32;
}

/* Adds a tensor of the file, or the matrix of one of its experts. */
static by_status add_matrix(by__export_gguf_model *m, const by__format_gguf_description *d,
                            const by__export_gguf_layer *layer, const by__export_gguf_type *type,
                            int64_t expert, by__checkpoint_tensor_entry **added, by_error *error)
{
    tensor *t = &m->tensors[m->count];
    by__checkpoint_tensor_entry *entry = &m->entries[m->count];
    bool by_heads = layer->order == BY__GGUF_HEADS || layer->order == BY__GGUF_KV_HEADS;
    bool plain = layer->order == BY__GGUF_PLAIN || layer->order == BY__GGUF_EXPERTS ||
                 (by_heads && !m->architecture->pairs) || (d->rank == 1 && !by_heads);
    *t = (tensor){.computed = {read_elements},
                  .type = type,
                  .order = plain ? BY__GGUF_PLAIN : layer->order,
                  .dtype = dtype_of(type)};
    set_shape(entry, t, d);
    /* Rows consist of whole blocks, so that a matrix does, too. */
    t->data = d->data + (size_t)(expert * t->rows * t->columns) / type->elements * type->bytes;
    if (t->order == BY__GGUF_HEADS || t->order == BY__GGUF_KV_HEADS) {
        BY_TRY(head_width(&t->head, m, d, t->rows, t->order == BY__GGUF_KV_HEADS, error));
    }
    entry->dtype = (int)t->dtype;
    entry->type = by__checkpoint_type_name(t->dtype);
    entry->file = m->path;
    entry->end = (uint64_t)(t->rows * t->columns) * by_dtype_size(t->dtype);
    if (type->is_quantized) {
        entry->code_bytes = (uint64_t)(t->rows * t->columns) / type->elements * type->bytes;
    }
    if (plain && !type->is_quantized) {
        entry->data = t->data;
    } else {
        entry->computed = &t->computed;
    }
    *added = entry;
    return BY_OK;
}

static by_status add_tensor(by__export_gguf_model *m, const by__format_gguf_description *d,
                            by_error *error)
{
    int64_t block;
    const char *part;
    const by__export_gguf_layer *layer = find_layer(m->architecture, d->name, &block, &part);
    if (layer == NULL) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: tensor '%s' has no place in the family of architecture %s",
                            m->path, d->name, m->architecture->name);
    }
    bool experts = layer->order == BY__GGUF_EXPERTS;
    if (experts ? d->rank != 3 || d->size[2] != m->experts : d->rank < 1 || d->rank > 2) {
        return bad(m, d,
                   experts ? "is not one matrix for each expert"
                           : "is neither a vector nor a matrix",
                   error);
    }
    const by__export_gguf_type *type = by__export_gguf_type_of(d->type);
    if (type == NULL) {
        return bad(m, d,
                   "is of a type that is not read; f32, f16, bf16, q8_0, q4_0, q5_0, q4_k and q6_k "
                   "are",
                   error);
    }
    for (int64_t i = 0; i < (experts ? m->experts : 1); i++) {
        by__checkpoint_tensor_entry *entry;
        BY_TRY(add_matrix(m, d, layer, type, i, &entry, error));
        BY_TRY(name_entry(entry, m->architecture, layer, block, i, part, error));
        m->count++;
    }
    return BY_OK;
}

static by_status find_architecture(by__export_gguf_model *m, by_error *error)
{
    const char *text;
    size_t length;
    char name[64] = "";
    char *names;
    if (by__format_gguf_text(&m->file, "general.architecture", &text, &length) &&
        length < sizeof name) {
        memcpy(name, text, length);
        name[length] = '\0';
    }
    uint64_t experts = 0;
    char key[96];
    (void)snprintf(key, sizeof key, "%s.%s", name, BY__GGUF_EXPERT_COUNT);
    (void)by__format_gguf_whole(&m->file, key, &experts);
    m->experts = experts > INT32_MAX ? INT32_MAX : (int64_t)experts;
    m->architecture = by__export_gguf_architecture_named(name, experts > 0);
    if (m->architecture != NULL) {
        return BY_OK;
    }
    BY_TRY(by__export_gguf_architectures(&names, error));
    (void)by_error_set(error, BY_EFORMAT, "%s: general.architecture is '%s'%s; read are %s",
                       m->path, name, experts > 0 ? " with experts" : "", names);
    free(names);
    return BY_EFORMAT;
}

static by_status read_model(by__export_gguf_model *m, const uint8_t *data, size_t size,
                            by_error *error)
{
    BY_TRY(by__format_gguf_parse(&m->file, m->path, data, size, error));
    BY_TRY(find_architecture(m, error));
    BY_TRY(by__export_gguf_read_config(&m->config, m->architecture, m->path, &m->file, error));
    size_t count = 0;
    for (size_t i = 0; i < m->file.tensor_count; i++) {
        const by__format_gguf_description *d = &m->file.tensors[i];
        /* A matrix has at least one byte, so that there are at most as many as the file's bytes. */
        count += d->rank == 3 && d->size[2] == m->experts ? (size_t)m->experts : 1;
    }
    BY_TRY(by__alloc((void **)&m->tensors, count, sizeof *m->tensors, "tensors", error));
    BY_TRY(by__alloc((void **)&m->entries, count, sizeof *m->entries, "tensors", error));
    for (size_t i = 0; i < m->file.tensor_count; i++) {
        const by__format_gguf_description *d = &m->file.tensors[i];
        if (strcmp(d->name, "rope_freqs.weight") != 0) {
            BY_TRY(add_tensor(m, d, error));
        }
    }
    return BY_OK;
}

by_status by__export_gguf_model_parse(by__export_gguf_model **out, const char *name,
                                      const uint8_t *data, size_t size, by_error *error)
{
    by__export_gguf_model *m;
    BY_TRY(by__alloc((void **)&m, 1, sizeof *m, "a GGUF file", error));
    m->path = by__strdup(name);
    by_status status = m->path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                       : read_model(m, data, size, error);
    if (status != BY_OK) {
        by__export_gguf_model_close(&m);
        return status;
    }
    *out = m;
    return BY_OK;
}

by_status by__export_gguf_model_open(by__export_gguf_model **out, const char *path, by_error *error)
{
    by__map map;
    BY_TRY(by__map_open(&map, path, error));
    by_status status = by__export_gguf_model_parse(out, path, map.data, map.size, error);
    if (status != BY_OK) {
        by__map_close(&map);
        return status;
    }
    (*out)->map = map;
    return BY_OK;
}

void by__export_gguf_model_close(by__export_gguf_model **model)
{
    by__export_gguf_model *m = *model;
    if (m == NULL) {
        return;
    }
    for (size_t i = 0; i < m->count; i++) {
        free(m->entries[i].name);
    }
    free(m->entries);
    free(m->tensors);
    free(m->config);
    free(m->path);
    by__format_gguf_free(&m->file);
    by__map_close(&m->map);
    free(m);
    *model = NULL;
}

by_status by__export_gguf_model_weights(by_weights **out, const by__export_gguf_model *m,
                                        by_error *error)
{
    char *config = by__strdup(m->config);
    return config == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: config.json")
                          : by__weights_of(out, m->path, config, m->entries, m->count, error);
}
