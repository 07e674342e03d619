/* Texts of a column of a table, which a model of tokens reads instead of features. */
#include <stdlib.h>
#include <string.h>

#include "data/table/encoding.h"
#include "tasks/examples/examples_open.h"

/* Tokens of all texts are a multiple of this, where the context allows it: kernels are fastest at
 * such sizes. */
#define UNIT 8

/* clang-format off: one row a key */
static const by__config_key keys[] = {
    {"data", "text_column", BY__KEY_TEXT, BY__OWN(by__task_examples_keys, text_column), "\"\"",
     .later = true,
     .help = "column of texts for a model of tokens, instead of features: other columns than the "
             "target are not read; empty: none"},
    {"data", "max_tokens", BY__KEY_INT, BY__OWN(by__task_examples_keys, max_tokens), "-1", 1,
     BY__MI24, .later = true, .derived = "those of the longest text, at most model.context",
     .help = "tokens of a text of text_column, with those that the tokenizer adds; the end of a "
             "longer text is left out"},
    {"data", "tokenizer", BY__KEY_TEXT, BY__FIELD(data.tokenizer), "bpe", .min = 1, .later = true,
     .help = "of text_column: the path of a tokenizer.json, or of a directory that contains one or "
             "BERT's vocab.txt; bpe stands for that of model.from"},
};
/* clang-format on */
const by__config_key_list by__task_text_column_keys = BY__KEY_LIST(keys);

static const by__config_key pair_keys[] = {
    {"data", "pair_column", BY__KEY_TEXT, BY__OWN(by__task_examples_keys, pair_column), "\"\"",
     .later = true,
     .help = "column of second texts (model.kind bert): both of a row are read as one, [CLS] text "
             "[SEP] second text [SEP], with the segments 0 and 1; of what is too long together the "
             "end of the longer text is left out; empty: none"},
};
const by__config_key_list by__task_pair_column_keys = BY__KEY_LIST(pair_keys);

/* The values of the keys; NULL: those of another task. */
static const by__task_examples_keys *keys_of(const by_config *config)
{
    const by__task_row *row = by__task_examples_row(config);
    return row != NULL && row->texts ? by__config_kind_own(config->task.own, &row->kind) : NULL;
}

bool by__task_pads_texts(const by_config *config)
{
    const by__task_examples_keys *k = keys_of(config);
    return k != NULL && k->text_column[0] != '\0';
}

bool by__task_pairs_texts(const by_config *config)
{
    const by__task_examples_keys *k = by__task_pads_texts(config) ? keys_of(config) : NULL;
    return k != NULL && k->pair_column != NULL && k->pair_column[0] != '\0';
}

int64_t by__task_time(const by_config *config)
{
    const by__task_examples_keys *k = by__task_pads_texts(config) ? keys_of(config) : NULL;
    int64_t context = config->model.context;
    return k != NULL && k->max_tokens > 0 && k->max_tokens < context ? k->max_tokens : context;
}

/* The columns of texts of an example; NULLs behind them. */
static int columns_of(const char *out[3], const by__task_row *row, const char *text,
                      const by__task_examples_keys *k)
{
    int count = 1;
    out[0] = text;
    out[1] = row->pairs ? k->positive_column : NULL;
    out[2] = row->pairs && k->negative_column[0] != '\0' ? k->negative_column : NULL;
    while (count < 3 && out[count] != NULL) {
        count++;
    }
    return count;
}

int64_t by__task_texts(const by_config *config)
{
    const char *columns[3];
    const by__task_examples_keys *k = by__task_pads_texts(config) ? keys_of(config) : NULL;
    if (by__task_has_pairs(config)) {
        return 2;
    }
    return k == NULL ? 1 : columns_of(columns, by__task_examples_row(config), k->text_column, k);
}

int by__task_examples_text_columns(const char *out[3], const by__task_examples *d)
{
    const char *text = by__task_examples_text(d);
    return text == NULL ? 0 : columns_of(out, by__task_row_of(d->base.task), text, d->keys);
}

const char *by__task_examples_text(const by__task_examples *d)
{
    const char *column = d->keys->text_column; /* NULL: a task of images alone */
    bool named = column != NULL && column[0] != '\0';
    return d->encoding != NULL ? by_encoding_text(d->encoding) : named ? column : NULL;
}

const char *by__task_examples_pair(const by__task_examples *d)
{
    const char *column = d->keys->pair_column;
    bool named = column != NULL && column[0] != '\0';
    return d->encoding != NULL ? by_encoding_pair(d->encoding) : named ? column : NULL;
}

/* ---- texts as tokens ---- */

/* The ids of the distinct texts of a column, and behind them those of the empty text. */
typedef struct encoded_texts {
    by_token_buffer ids;
    size_t *ends; /* [count + 1]: where those of each end */
    size_t count;
} encoded_texts;

static void free_texts(encoded_texts *e)
{
    by_token_buffer_free(&e->ids);
    free(e->ends);
}

static by_status encode_texts(encoded_texts *e, const by__task_examples *d, const by_column *column,
                              by_error *error)
{
    by_encoder *encoder;
    e->count = column->value_count;
    BY_TRY(by__alloc((void **)&e->ends, e->count + 1, sizeof *e->ends, "texts", error));
    BY_TRY(by_encoder_open(&encoder, d->texts.tokenizer, error));
    by_status status = BY_OK;
    for (size_t i = 0; i <= e->count && status == BY_OK; i++) {
        const char *text = i < e->count ? column->values[i] : "";
        status = by_encoder_encode(encoder, text, strlen(text), &e->ids,
                                   BY_ENCODE_ORDINARY | BY_ENCODE_ADD_SPECIAL, error);
        e->ends[i] = e->ids.count;
    }
    by_encoder_close(&encoder);
    return status;
}

static size_t begin_of(const encoded_texts *e, size_t i)
{
    return i == 0 ? 0 : e->ends[i - 1];
}

/* The tokens of every text: as many as the longest has, rounded up, within the context. */
static int64_t find_time(const encoded_texts *e, int64_t context)
{
    size_t longest = 1;
    for (size_t i = 0; i <= e->count; i++) {
        size_t length = e->ends[i] - begin_of(e, i);
        longest = length > longest ? length : longest;
    }
    int64_t time = (int64_t)by__round_up(longest, UNIT);
    return time < context ? time : context;
}

/* Writes a text of `time` tokens at most, and returns how many it has. Of a longer one those at the
 * end of the empty text, such as [SEP], are kept. */
static int32_t put_text(int32_t *out, const by__task_examples *d, const encoded_texts *e, size_t i)
{
    size_t time = (size_t)d->texts.time;
    const uint32_t *ids = e->ids.ids + begin_of(e, i);
    const uint32_t *empty = e->ids.ids + begin_of(e, e->count);
    size_t length = e->ends[i] - begin_of(e, i);
    size_t added = e->ends[e->count] - begin_of(e, e->count);
    size_t after = added - d->texts.before < time ? added - d->texts.before : time;
    size_t first = length > time ? time - after : length;
    for (size_t t = 0; t < first; t++) {
        out[t] = (int32_t)ids[t];
    }
    for (size_t t = first; length > time && t < time; t++) {
        out[t] = (int32_t)empty[added - (time - t)];
    }
    return (int32_t)(length > time ? time : length);
}

static by_status add_array(by__table_more *more, const char *name, by_dtype dtype,
                           const by_shape *shape, void **out, by_error *error)
{
    by_array *array = &more->arrays[more->count];
    size_t size = by_dtype_size(dtype);
    BY_TRY(by__alloc(out, (size_t)by_shape_count(shape), size, name, error));
    *array = (by_array){.name = by__strdup(name), .dtype = dtype, .shape = *shape, .data = *out};
    more->count++;
    return array->name == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: name") : BY_OK;
}

/* What the tokenizer adds behind a text. */
static size_t added_after(const by__task_examples *d, const encoded_texts *e)
{
    return e->ends[e->count] - begin_of(e, e->count) - d->texts.before;
}

/* The tokens of a text alone. */
static size_t length_alone(const by__task_examples *d, const encoded_texts *e, size_t i)
{
    return e->ends[i] - begin_of(e, i) - d->texts.before - added_after(d, e);
}

/* Writes two texts, each with what the tokenizer adds behind one, and the segment of each token;
 * returns how many there are. Of texts that are too long together, the last token of the longer one
 * is left out, of the second if they are equal, until they fit, as transformers does
 * ("longest_first"). */
static int32_t put_pair(int32_t *out, int32_t *segments, const by__task_examples *d,
                        const encoded_texts e[2], const size_t which[2], bool *cut)
{
    size_t time = (size_t)d->texts.time;
    size_t before = d->texts.before;
    size_t after = added_after(d, &e[0]);
    size_t kept[2] = {length_alone(d, &e[0], which[0]), length_alone(d, &e[1], which[1])};
    size_t added = before + 2 * after;
    size_t at = 0;
    while (kept[0] + kept[1] > 0 && kept[0] + kept[1] + added > time) {
        kept[kept[0] > kept[1] ? 0 : 1]--;
        *cut = true;
    }
    for (int k = 0; k < 2; k++) {
        const uint32_t *ids = e[k].ids.ids + begin_of(&e[k], which[k]);
        const uint32_t *empty = e[k].ids.ids + begin_of(&e[k], e[k].count);
        size_t first = k == 0 ? 0 : before; /* nothing is added in front of the second */
        for (size_t t = first; t < before + kept[k] + after && at < time; t++) {
            size_t behind = t - (before + kept[k]);
            out[at] = (int32_t)(t < before + kept[k] ? ids[t] : empty[before + behind]);
            segments[at++] = k;
        }
    }
    return (int32_t)at;
}

/* Where the rows of texts, and of the tags of their words, are written. */
typedef struct text_rows {
    int32_t *tokens;
    int32_t *lengths;
    int32_t *segments; /* NULL: texts have no pairs */
    int32_t *labels;   /* NULL: texts have no tags */
    float *weights;    /* of these: how many there are */
    uint64_t cut;      /* texts that were too long */
} text_rows;

static by_status refuse_row(const by_table *table, int64_t row, const char *what,
                            const char *column, by_error *error)
{
    return by_error_set(error, BY_EFORMAT,
                        "%s: row %lld has no %s in '%.60s', or one that stands for a missing "
                        "value, as NA and None do: leave it out",
                        by_table_name(table), (long long)row + 1, what, column);
}

static const char *text_of(const by_column *column, int64_t row)
{
    int32_t value = column->categories == NULL ? -1 : column->categories[row];
    return value < 0 ? NULL : column->values[value];
}

/* Returns the next word at *at, of *length bytes; 0: there is none. */
static const char *next_word(const char **at, size_t *length)
{
    const char *word = *at + strspn(*at, " \t\r\n");
    *length = strcspn(word, " \t\r\n");
    *at = word + *length;
    return word;
}

/* The class of a tag. */
static by_status find_tag(int32_t *out, const by__task_examples *d, const char *tag, size_t length,
                          by_error *error)
{
    const by__table_encoded *f = &d->encoding->targets[0];
    char *copy = by__strndup(tag, length);
    if (copy == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a tag");
    }
    *out = by__same_value((const char *const *)f->values, f->count, &f->aliases, copy);
    free(copy);
    return *out >= 0 ? BY_OK
                     : by_error_set(error, BY_EFORMAT,
                                    "'%.*s' in '%.60s' is none of the %zu tags that were learned",
                                    length < 60 ? (int)length : 60, tag, f->name, f->count);
}

/* Writes the tokens of each word, with its tag (tags NULL: a placeholder) at the first of them and
 * -1 elsewhere, between the tokens that the tokenizer adds to a text. */
static by_status put_words(text_rows *rows, int64_t row, const by__task_examples *d,
                           const encoded_texts *e, const char *text, const char *tags,
                           by_error *error)
{
    size_t time = (size_t)d->texts.time;
    int32_t *tokens = rows->tokens + (size_t)row * time;
    int32_t *labels = rows->labels + (size_t)row * time;
    const uint32_t *empty = e->ids.ids + begin_of(e, e->count);
    size_t added = e->ends[e->count] - begin_of(e, e->count);
    size_t before = d->texts.before < time ? d->texts.before : time;
    size_t after = added - before < time - before ? added - before : time - before;
    by_token_buffer ids = {0};
    by_status status = BY_OK;
    size_t at = 0;
    size_t length;
    size_t tagged;
    bool cut = false;
    for (; at < before; at++) {
        tokens[at] = (int32_t)empty[at];
    }
    for (size_t t = 0; t < time; t++) {
        labels[t] = -1;
    }
    for (;;) {
        int32_t class = 0;
        const char *word = next_word(&text, &length);
        const char *tag = tags == NULL ? word : next_word(&tags, &tagged);
        if (length == 0 || (tags != NULL && tagged == 0)) {
            status = tags == NULL || length == tagged
                         ? BY_OK
                         : by_error_set(error, BY_EFORMAT, "there are %s tags than words",
                                        length == 0 ? "more" : "fewer");
            break;
        }
        ids.count = 0;
        status = tags == NULL ? BY_OK : find_tag(&class, d, tag, tagged, error);
        if (status == BY_OK) {
            status = by_tokenizer_encode(d->texts.tokenizer, word, length, &ids, BY_ENCODE_ORDINARY,
                                         error);
        }
        if (status != BY_OK) {
            break;
        }
        cut = cut || ids.count > time - after - at;
        for (size_t i = 0; i < ids.count && at < time - after; i++, at++) {
            tokens[at] = (int32_t)ids.ids[i];
            labels[at] = i == 0 ? class : -1;
            rows->weights[row] += i == 0 ? 1.0f : 0.0f;
        }
    }
    for (size_t i = 0; i < after; i++) {
        tokens[at++] = (int32_t)empty[added - after + i];
    }
    rows->lengths[row] = (int32_t)at;
    rows->cut += cut;
    by_token_buffer_free(&ids);
    return status;
}

/* The columns of texts of a table, encoded. */
typedef struct text_columns {
    const by_column *columns[3];
    encoded_texts encoded[3];
    int count;
    bool joined; /* two columns are one text */
} text_columns;

static void close_columns(text_columns *c)
{
    for (int i = 0; i < c->count; i++) {
        free_texts(&c->encoded[i]);
    }
}

static by_status open_columns(text_columns *out, const by__task_examples *d, const by_table *table,
                              by_error *error)
{
    const char *names[3] = {0};
    *out = (text_columns){.count = by__task_examples_text_columns(names, d)};
    if (by__task_examples_pair(d) != NULL) {
        out->joined = true;
        names[out->count++] = by__task_examples_pair(d);
    }
    for (int i = 0; i < out->count; i++) {
        out->columns[i] = by_table_find(table, names[i]);
        if (out->columns[i] == NULL) {
            return by_error_set(error, BY_EFORMAT, "%s: there is no column '%.60s' of texts",
                                by_table_name(table), names[i]);
        }
        BY_TRY(encode_texts(&out->encoded[i], d, out->columns[i], error));
    }
    return BY_OK;
}

/* A 1 at the last token of each text, by which a model that reads from left to right finds it. */
static by_status add_last(by__table_more *more, const text_rows *rows, const by_shape *tokens,
                          by_error *error)
{
    float *last;
    BY_TRY(add_array(more, "last", BY_F32, tokens, (void **)&last, error));
    for (int64_t i = 0; i < tokens->dim[0]; i++) {
        last[i * tokens->dim[1] + rows->lengths[i] - 1] = 1.0f;
    }
    return BY_OK;
}

/* Weights of the mean of each text's tokens, and a number in the place of a target. */
static by_status add_pairs(by__table_more *more, const text_rows *rows, const by_shape *tokens,
                           by_error *error)
{
    float *mean;
    void *targets;
    int64_t time = tokens->dim[2];
    BY_TRY(add_array(more, "mean", BY_F32, tokens, (void **)&mean, error));
    BY_TRY(add_array(more, "targets", BY_F32, &BY_SHAPE(tokens->dim[0]), &targets, error));
    for (int64_t i = 0; i < tokens->dim[0] * tokens->dim[1]; i++) {
        for (int64_t t = 0; t < rows->lengths[i]; t++) {
            mean[i * time + t] = 1.0f / (float)rows->lengths[i];
        }
    }
    return BY_OK;
}

static by_status add_arrays(by__table_more *more, text_rows *out, const by__task_row *row,
                            const by_shape *tokens, bool joined, by_error *error)
{
    by_shape lengths = *tokens;
    void *weights;
    lengths.rank--;
    *out = (text_rows){0};
    BY_TRY(add_array(more, "tokens", BY_I32, tokens, (void **)&out->tokens, error));
    BY_TRY(add_array(more, "lengths", BY_I32, &lengths, (void **)&out->lengths, error));
    if (joined) {
        BY_TRY(add_array(more, "segments", BY_I32, tokens, (void **)&out->segments, error));
    }
    if (row->tags) {
        BY_TRY(add_array(more, "labels", BY_I32, tokens, (void **)&out->labels, error));
        BY_TRY(add_array(more, "weight", BY_F32, &lengths, &weights, error));
        out->weights = weights;
    }
    return BY_OK;
}

/* A row without tokens has token 0: what is predicted has a place in a batch. */
static by_status check_length(text_rows *rows, int64_t at, const by_table *table, int64_t row,
                              bool targets, by_error *error)
{
    if (rows->lengths[at] == 0 && targets) {
        return by_error_set(error, BY_EFORMAT, "%s: the text of row %lld has no tokens",
                            by_table_name(table), (long long)row + 1);
    }
    rows->lengths[at] = rows->lengths[at] == 0 ? 1 : rows->lengths[at];
    return BY_OK;
}

/* Writes both texts of a row as one. */
static by_status put_joined(text_rows *rows, int64_t row, const by__task_examples *d,
                            const text_columns *c, const by_table *table, bool targets,
                            by_error *error)
{
    int64_t at = row * d->texts.time;
    size_t which[2];
    bool cut = false;
    for (int i = 0; i < 2; i++) {
        bool missing = text_of(c->columns[i], row) == NULL;
        if (missing && targets) {
            return refuse_row(table, row, "text", c->columns[i]->name, error);
        }
        which[i] = missing ? c->encoded[i].count : (size_t)c->columns[i]->categories[row];
    }
    rows->lengths[row] =
        put_pair(rows->tokens + at, rows->segments + at, d, c->encoded, which, &cut);
    rows->cut += cut;
    return check_length(rows, row, table, row, targets, error);
}

/* Writes text i of a row. */
static by_status put_cell(text_rows *rows, int64_t row, const by__task_examples *d,
                          const text_columns *c, int i, const by_table *table, bool targets,
                          by_error *error)
{
    const encoded_texts *e = &c->encoded[i];
    const char *text = text_of(c->columns[i], row);
    int64_t at = row * c->count + i;
    if (text == NULL && targets) {
        return refuse_row(table, row, "text", c->columns[i]->name, error);
    }
    if (rows->labels != NULL) {
        const by_column *tags =
            targets ? by_table_find(table, by_encoding_target(d->encoding, 0)) : NULL;
        const char *tag = tags == NULL ? NULL : text_of(tags, row);
        if (tags != NULL && tag == NULL) {
            return refuse_row(table, row, "tags", tags->name, error);
        }
        by_status status = put_words(rows, row, d, e, text == NULL ? "" : text, tag, error);
        if (status != BY_OK) {
            return by_error_prefix(error, status, "%s: row %lld", by_table_name(table),
                                   (long long)row + 1);
        }
    } else {
        size_t which = text == NULL ? e->count : (size_t)c->columns[i]->categories[row];
        rows->lengths[at] = put_text(rows->tokens + at * d->texts.time, d, e, which);
        rows->cut += e->ends[which] - begin_of(e, which) > (size_t)d->texts.time;
    }
    return check_length(rows, at, table, row, targets, error);
}

static by_status put_rows(by__table_more *more, const by__task_examples *d, const by_table *table,
                          const text_columns *c, bool targets, by__task_examples_cut *cut,
                          by_error *error)
{
    text_rows rows;
    const by__task_row *row = by__task_row_of(d->base.task);
    int64_t count = (int64_t)by_table_rows(table);
    by_shape shape =
        row->pairs ? BY_SHAPE(count, c->count, d->texts.time) : BY_SHAPE(count, d->texts.time);
    int texts = c->joined ? 1 : c->count;
    BY_TRY(add_arrays(more, &rows, row, &shape, c->joined, error));
    for (int64_t r = 0; r < count; r++) {
        for (int i = 0; i < texts; i++) {
            BY_TRY(c->joined ? put_joined(&rows, r, d, c, table, targets, error)
                             : put_cell(&rows, r, d, c, i, table, targets, error));
        }
    }
    cut->cut += rows.cut;
    cut->texts += (uint64_t)(count * texts);
    return row->pairs      ? add_pairs(more, &rows, &shape, error)
           : d->texts.last ? add_last(more, &rows, &shape, error)
                           : BY_OK;
}

/* The tokens of the longest pair, rounded up, within the context. */
static int64_t find_joined_time(const by__task_examples *d, const text_columns *c,
                                const by_table *table)
{
    size_t longest = 1;
    for (uint64_t r = 0; r < by_table_rows(table); r++) {
        size_t length = d->texts.before + 2 * added_after(d, &c->encoded[0]);
        for (int i = 0; i < 2; i++) {
            int32_t value = c->columns[i]->categories == NULL ? -1 : c->columns[i]->categories[r];
            length += value < 0 ? 0 : length_alone(d, &c->encoded[i], (size_t)value);
        }
        longest = length > longest ? length : longest;
    }
    int64_t time = (int64_t)by__round_up(longest, UNIT);
    return time < d->texts.context ? time : d->texts.context;
}

by_status by__task_examples_measure_texts(by__task_examples *d, const by_table *table,
                                          by_error *error)
{
    text_columns c;
    if (by__task_examples_text(d) == NULL || d->texts.time > 0) {
        return BY_OK;
    }
    by_status status = open_columns(&c, d, table, error);
    if (status == BY_OK && c.joined) {
        d->texts.time = find_joined_time(d, &c, table);
    }
    for (int i = 0; i < c.count && status == BY_OK && !c.joined; i++) {
        int64_t time = find_time(&c.encoded[i], d->texts.context);
        d->texts.time = time > d->texts.time ? time : d->texts.time;
    }
    close_columns(&c);
    return status;
}

by_status by__task_examples_apply_encoding(by_array_set **out, const by__task_examples *d,
                                           const by_table *table, bool targets, const char *weight,
                                           by__task_examples_cut *cut, by_error *error)
{
    by__table_more more = {0};
    text_columns c;
    const by__task_row *row = by__task_row_of(d->base.task);
    if (d->windows.context > 0) {
        return by__task_examples_apply_windows(out, d, table, targets, cut, error);
    }
    if (by_encoding_text(d->encoding) == NULL) {
        return by__table_encoding_apply(d->encoding, table, targets, weight, NULL, out, error);
    }
    by_status status = open_columns(&c, d, table, error);
    if (status == BY_OK) {
        status = put_rows(&more, d, table, &c, targets, cut, error);
    }
    close_columns(&c);
    if (status != BY_OK) {
        by__table_more_free(&more);
        return status;
    }
    targets = targets && !row->tags && !row->pairs;
    return by__table_encoding_apply(d->encoding, table, targets, weight, &more, out, error);
}

by_status by__task_examples_tell_cut(const by__task_examples *d, const by_task_request *r,
                                     by_error *error)
{
    const by__task_examples_texts *t = &d->texts;
    by_string text = {0};
    char *told;
    if (t->cut.cut == 0) {
        return BY_OK;
    }
    if (d->windows.context > 0) {
        by_string_format(&text,
                         "%llu series have fewer rows than the %lld of a window, and are "
                         "left out",
                         (unsigned long long)t->cut.cut, (long long)d->windows.context);
        BY_TRY(by__string_release(&text, &told, error));
        by__task_examples_remark(r, told);
        free(told);
        return BY_OK;
    }
    by_string_format(&text, "%llu of %llu texts have more than %lld tokens, and are cut there%s",
                     (unsigned long long)t->cut.cut, (unsigned long long)t->cut.texts,
                     (long long)t->time,
                     by__task_row_of(d->base.task)->tags ? ": words behind that have no tag" : "");
    by_string_format(&text,
                     t->time < t->context ? "; data.max_tokens may be up to %lld"
                                          : "; model.context %lld allows no more",
                     (long long)t->context);
    BY_TRY(by__string_release(&text, &told, error));
    by__task_examples_remark(r, told);
    free(told);
    return BY_OK;
}
