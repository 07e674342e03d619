/* The section `position`: how a model knows where its tokens are. A family says which kind it was
 * published with, and calls by__nn_place where tokens become vectors; queries and keys are rotated
 * where layers attend (attentions.c). */
#include <string.h>

#include "nn/nn.h"

typedef struct rope_keys {
    double theta;
} rope_keys;

typedef struct sinusoidal_keys {
    double scale;
} sinusoidal_keys;

/* A kind. own: the values of its keys. */
typedef struct position_row {
    by__config_kind kind;
    /* Adds the positions to x [B, T, width]; NULL: nothing is added. */
    by_value (*add)(by__nn_build *b, by_value x, const by__nn_position_table *table,
                    const void *own);
    bool rotates;
    bool bounded; /* there are no positions behind the context */
} position_row;

static const by__config_key rope_rows[] = {
    {"position", "theta", BY__KEY_REAL, BY__OWN(rope_keys, theta), "-1", 0, 1e12, BY__ABOVE_MIN,
     .derived = "`model.rope_theta`, or 10000", .later = true, .help = "base of the frequencies"},
};
static const by__config_key sinusoidal_rows[] = {
    {"position", "scale", BY__KEY_REAL, BY__OWN(sinusoidal_keys, scale), "1", 0, 1e6, BY__ABOVE_MIN,
     .later = true, .help = "factor on the sines and cosines"},
};
static const by__config_key_list rope_list = BY__KEY_LIST(rope_rows);
static const by__config_key_list sinusoidal_list = BY__KEY_LIST(sinusoidal_rows);

/* A row of a parameter for each position. */
static by_value add_learned(by__nn_build *b, by_value x, const by__nn_position_table *table,
                            const void *own)
{
    const by_model_config *c = b->config;
    const by_model_request *r = b->request;
    BY_UNUSED(own);
    if (table->leading) {
        return by_add(b->graph, x,
                      by__nn_weight(b, "token position embed", BY_SHAPE(1, table->rows, c->width),
                                    by__nn_init_normal(b), "%s", table->name));
    }
    by_value rows = by__nn_weight(b, "position embed", BY_SHAPE(table->rows, c->width),
                                  by__nn_init_normal(b), "%s", table->name);
    if (by__nn_is_cached(b) || r->mode == BY_MODEL_STEP) {
        b->model.positions = by__nn_input(b, "positions", BY_I32, BY_SHAPE(r->batch, r->time));
        return by_add(b->graph, x, by_embedding(b->graph, b->model.positions, rows));
    }
    return by_position(b->graph, x, rows);
}

/* Cosines in the first half of the width, sines in the second: rotated by an angle, (1, 0) is
 * (cosine, sine). */
static by_value add_sinusoidal(by__nn_build *b, by_value x, const by__nn_position_table *table,
                               const void *own)
{
    const sinusoidal_keys *k = own;
    by_graph *g = b->graph;
    int64_t half = b->config->width / 2;
    by_rotation rotation = {.theta = 10000.0f};
    BY_UNUSED(table);
    if (x == BY_NONE) {
        return BY_NONE;
    }
    int64_t time = g->values[x].shape.dim[1];
    by_shape shape = BY_SHAPE(1, time, half);
    by_value halves[2] = {by_fill(g, BY_F32, shape, (float)k->scale),
                          by_fill(g, BY_F32, shape, 0.0f)};
    by_value y = by_rope(g, by_concat(g, halves, 2, 2), b->model.start, 1, &rotation);
    return by_add(g, x, y);
}

static by_status resolve_sinusoidal(by_config *config, void *own, by_error *error)
{
    BY_UNUSED(own);
    return config->model.width % 2 == 0
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: position.kind sinusoidal needs an even model.width, not %lld",
                              by__config_where(config, "position.kind", "model.width"),
                              (long long)config->model.width);
}

static const position_row rows[] = {
    {.kind = {.name = "auto",
              .help = "As the family was published: rotary in Llama and Mixtral, learned in the "
                      "others; none with `attention.kind: alibi`."}},
    {.kind = {.name = "learned", .help = "A row of a table for each position of the context."},
     .add = add_learned,
     .bounded = true},
    {.kind = {.name = "rope",
              .help = "Rotations of queries and keys (Su et al. 2021), in Llama and Mixtral with "
                      "`model.rope_scaling`.",
              .keys = {&rope_list},
              .size = sizeof(rope_keys)},
     .rotates = true},
    {.kind = {.name = "sinusoidal",
              .help = "Sines and cosines of the position are added (Vaswani et al. 2017); half of "
                      "the width each.",
              .keys = {&sinusoidal_list},
              .size = sizeof(sinusoidal_keys),
              .resolve = resolve_sinusoidal},
     .add = add_sinusoidal},
    {.kind = {.name = "none",
              .help = "Nothing; a decoder finds positions by its mask (Kazemnejad "
                      "et al. 2023)."}},
};

const by__config_kind *by__nn_position_kind(size_t index)
{
    return index < BY_ARRAY_LENGTH(rows) ? &rows[index].kind : NULL;
}

static const position_row *find_row(const char *kind)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        if (strcmp(rows[i].kind.name, kind) == 0) {
            return &rows[i];
        }
    }
    return &rows[0];
}

/* The row of a config whose family has rotary or learned positions of its own. */
static const position_row *row_of(const by_model_config *c, bool rotary)
{
    const char *kind = c->position.kind;
    if (kind != NULL && strcmp(kind, "auto") != 0) {
        return find_row(kind);
    }
    bool alibi = c->attention.kind != NULL && strcmp(c->attention.kind, "alibi") == 0;
    return find_row(alibi ? "none" : rotary ? "rope" : "learned");
}

by_value by__nn_place(by__nn_build *b, by_value x, const by__nn_position_table *table)
{
    const position_row *row = row_of(b->config, table->rotary);
    return row->add == NULL
               ? x
               : row->add(b, x, table, by__config_kind_own(b->config->position.own, &row->kind));
}

const by_rotation *by__nn_rotation(by_rotation *buffer, const by_model_config *config,
                                   const by_rotation *usual)
{
    const position_row *row = row_of(config, usual != NULL);
    const rope_keys *k = by__config_kind_own(config->position.own, &row->kind);
    if (!row->rotates) {
        return NULL;
    }
    *buffer = usual == NULL ? (by_rotation){.theta = 10000.0f} : *usual;
    bool chosen = k != NULL && strcmp(config->position.kind, "rope") == 0 && k->theta > 0.0;
    buffer->theta = chosen ? (float)k->theta : buffer->theta;
    return buffer;
}

bool by__nn_positions_bounded(const by_model_config *config, bool rotary)
{
    return row_of(config, rotary)->bounded;
}
