#include "data/nodes/pack/edge_spool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/paths.h"
#include "base/threads.h"
#include "data/nodes/graph_list.h"
#include "data/nodes/node_set.h"
#include "data/nodes/pack/text_chunks.h"
#include "formats/parquet.h"

/* Damaged lines that are reported one by one. */
#define NOTES 10

/* ---- edges of a piece of text ---- */

enum { FAULT_FORM, FAULT_NAMES, FAULT_NODE, FAULT_LOOP };

typedef struct edge_fault {
    uint64_t line; /* of the piece, from 0 */
    int kind;
    int32_t pair[2];
} edge_fault;

typedef struct edge_piece {
    int32_t (*pairs)[2];
    float *weights; /* if they are read beside the pairs */
    size_t capacity;
    size_t weight_capacity;
    size_t count;
    uint64_t lines;
    uint64_t loops;
    int32_t largest;
    edge_fault faults[NOTES];
    uint64_t fault_count;
} edge_piece;

typedef struct edge_reading {
    by__nodes_spool *spool;
    const by_graph_pack_options *options;
    const char *path;
    const char *unit; /* "line", or "row" of a file without a line of names */
    bool weighted;    /* weights are beside the pairs */
    edge_piece *pieces;
    size_t count;
} edge_reading;

static void add_fault(edge_piece *p, uint64_t line, int kind, const int32_t pair[2])
{
    if (p->fault_count < NOTES) {
        p->faults[p->fault_count] = (edge_fault){line, kind, {pair[0], pair[1]}};
    }
    p->fault_count++;
}

static by_status add_pair(edge_piece *p, const edge_reading *r, uint64_t line,
                          const int32_t pair[2], float weight, by_error *error)
{
    int64_t nodes = r->spool->nodes;
    if (nodes > 0 && (pair[0] >= nodes || pair[1] >= nodes)) {
        add_fault(p, line, FAULT_NODE, pair);
        return BY_OK;
    }
    if (pair[0] == pair[1]) {
        p->loops++;
        if (r->options->loops == BY_LOOPS_FAIL) {
            add_fault(p, line, FAULT_LOOP, pair);
            return BY_OK;
        }
    }
    BY_TRY(by__reserve((void **)&p->pairs, &p->capacity, p->count + 1, sizeof *p->pairs, error));
    if (r->weighted) {
        BY_TRY(by__reserve((void **)&p->weights, &p->weight_capacity, p->count + 1,
                           sizeof *p->weights, error));
        p->weights[p->count] = weight;
    }
    memcpy(p->pairs[p->count++], pair, sizeof *p->pairs);
    int32_t most = pair[0] > pair[1] ? pair[0] : pair[1];
    p->largest = most > p->largest ? most : p->largest;
    return BY_OK;
}

static void clear_piece(edge_piece *p)
{
    *p = (edge_piece){.pairs = p->pairs,
                      .weights = p->weights,
                      .capacity = p->capacity,
                      .weight_capacity = p->weight_capacity,
                      .largest = -1};
}

static by_status read_lines(void *context, size_t slot, const char *text, size_t size,
                            by_error *error)
{
    const edge_reading *r = context;
    edge_piece *p = &r->pieces[slot];
    clear_piece(p);
    for (size_t at = 0; at < size; p->lines++) {
        int32_t pair[2] = {0, 0};
        float weight = 1.0f;
        size_t end = by__nodes_line_end(text, size, at);
        by__nodes_edge_line found =
            by__nodes_edge_list_line(text, at, end, pair, r->weighted ? &weight : NULL);
        if (found == BY__EDGE_PAIR) {
            BY_TRY(add_pair(p, r, p->lines, pair, weight, error));
        } else if (found != BY__EDGE_NONE) {
            add_fault(p, p->lines, found == BY__EDGE_NAMES ? FAULT_NAMES : FAULT_FORM, pair);
        }
        at = end + 1;
    }
    return BY_OK;
}

/* ---- the spool ---- */

static by_status describe_fault(const edge_reading *r, const edge_fault *f, uint64_t line,
                                by_error *error)
{
    unsigned long long at = (unsigned long long)line;
    if (f->kind == FAULT_FORM || f->kind == FAULT_NAMES) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: %s %llu is not two numbers of nodes, from 0 to %d%s", r->path,
                            r->unit, at, INT32_MAX - 1,
                            r->weighted ? ", and a weight, a finite number from 0 on" : "");
    }
    if (f->kind == FAULT_LOOP) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: %s %llu is an edge from node %d to itself; --self-loops drop, "
                            "keep or add accepts it",
                            r->path, r->unit, at, f->pair[0]);
    }
    return by_error_set(error, BY_EFORMAT,
                        "%s: %s %llu has node %d; there are %lld, numbered from 0 (--corrupt skip "
                        "leaves such lines out)",
                        r->path, r->unit, at,
                        f->pair[0] >= r->spool->nodes ? f->pair[0] : f->pair[1],
                        (long long)r->spool->nodes);
}

static by_status take_faults(const edge_reading *r, edge_piece *p, uint64_t line, by_error *error)
{
    by__nodes_spool *s = r->spool;
    uint64_t count = p->fault_count;
    uint64_t first = 0;
    if (count > 0 && line + p->faults[0].line == 1 && p->faults[0].kind == FAULT_NAMES) {
        first = 1;
        count--;
    }
    for (uint64_t i = first; i < first + count && i < NOTES; i++) {
        by_error why = {0};
        const edge_fault *f = &p->faults[i];
        by_status status = describe_fault(r, f, line + f->line, &why);
        if (!r->options->skip_corrupt || f->kind == FAULT_LOOP) {
            return by_error_set(error, status, "%s", why.message);
        }
        if (s->noted < NOTES && r->options->note != NULL) {
            r->options->note(r->options->user, why.message);
            s->noted++;
        }
    }
    s->skipped += count;
    s->lines += count + p->count;
    return BY_OK;
}

static by_status write_bytes(const by__nodes_spool *s, int file, const void *data, size_t bytes,
                             by_error *error)
{
    for (const char *at = data; bytes > 0;) {
        ssize_t n = write(file, at, bytes);
        if (n < 0) {
            return by__io_error(error, "write edges in", s->directory);
        }
        at += n;
        bytes -= (size_t)n;
    }
    return BY_OK;
}

static by_status take_piece(void *context, size_t slot, uint64_t line, uint64_t *lines,
                            by_error *error)
{
    const edge_reading *r = context;
    edge_piece *p = &r->pieces[slot];
    by__nodes_spool *s = r->spool;
    *lines = p->lines;
    BY_TRY(take_faults(r, p, line, error));
    s->count += p->count;
    s->loops += p->loops;
    s->largest = p->largest > s->largest ? p->largest : s->largest;
    if (r->weighted) {
        BY_TRY(write_bytes(s, s->weight_file, p->weights, p->count * sizeof *p->weights, error));
    }
    return write_bytes(s, s->file, p->pairs, p->count * sizeof *p->pairs, error);
}

static by_status read_text(edge_reading *r, by_error *error)
{
    by__map text;
    const by__nodes_text_job job = {.context = r,
                                    .threads = r->count,
                                    .read = read_lines,
                                    .take = take_piece,
                                    .progress = r->options->progress,
                                    .user = r->options->user};
    BY_TRY(by__nodes_text_open(&text, r->path, r->spool->directory, error));
    by_status status = by__nodes_text_run(&job, &text, 0, 1, error);
    by__map_close(&text);
    return status;
}

/* ---- Parquet ---- */

/* Column `k` of those that --columns names, and its length; NULL: none is. */
static const char *wanted_column(const char *wanted, size_t k, size_t *length)
{
    for (size_t i = 0; wanted != NULL; i++) {
        const char *comma = strchr(wanted, ',');
        *length = comma == NULL ? strlen(wanted) : (size_t)(comma - wanted);
        if (i == k) {
            return wanted;
        }
        wanted = comma == NULL ? NULL : comma + 1;
    }
    return NULL;
}

/* Finds the columns of an edge: those of options->columns, or the first two of integers, and for a
 * weight the first other one of numbers. */
static by_status find_columns(const by__format_parquet *file, const edge_reading *r,
                              size_t columns[3], by_error *error)
{
    const char *wanted = r->options->columns;
    size_t all = r->weighted ? 3 : 2;
    size_t found = 0;
    for (size_t k = 0; k < all && found == k; k++) {
        size_t length = 0;
        const char *name = wanted_column(wanted, k, &length);
        for (size_t i = 0; i < file->column_count && found == k; i++) {
            const by__format_parquet_column *c = &file->columns[i];
            bool named =
                name != NULL && strlen(c->name) == length && memcmp(c->name, name, length) == 0;
            bool other = (k < 1 || i != columns[0]) && (k < 2 || i != columns[1]);
            bool number = c->kind == BY__PARQUET_INTEGER || (k == 2 && c->kind == BY__PARQUET_REAL);
            if (number && (named || (name == NULL && other))) {
                columns[found++] = i;
            }
        }
    }
    return found == all
               ? BY_OK
               : by_error_set(error, BY_EARG,
                              "%s has no %s%s%s; --columns SOURCE,TARGET%s names them", r->path,
                              r->weighted ? "two columns of integers and one of weights"
                                          : "two columns of integers",
                              wanted == NULL ? "" : " named ", wanted == NULL ? "" : wanted,
                              r->weighted ? ",WEIGHT" : "");
}

/* Takes the weight of a row, which may be an integer. */
static bool take_weight(float *out, const by__format_parquet_value *value, bool real)
{
    *out = real ? (float)value->as.real : (float)value->as.integer;
    return value->length >= 0 && *out >= 0.0f && isfinite(*out);
}

static by_status take_group(edge_reading *r, const by__format_parquet_values v[3], bool real,
                            uint64_t row, by_error *error)
{
    edge_piece *p = &r->pieces[0];
    uint64_t lines;
    clear_piece(p);
    for (size_t i = 0; i < v[0].count && i < v[1].count; i++) {
        int32_t pair[2] = {0, 0};
        float weight = 1.0f;
        bool good = true;
        for (int k = 0; k < 2; k++) {
            const by__format_parquet_value *value = &v[k].items[i];
            good = good && value->length >= 0 && value->as.integer >= 0 &&
                   value->as.integer < INT32_MAX;
            pair[k] = good ? (int32_t)value->as.integer : 0;
        }
        if (r->weighted) {
            good = good && i < v[2].count && take_weight(&weight, &v[2].items[i], real);
        }
        if (good) {
            BY_TRY(add_pair(p, r, i, pair, weight, error));
        } else {
            add_fault(p, i, FAULT_FORM, pair);
        }
    }
    p->lines = v[0].count;
    return take_piece(r, 0, row + 1, &lines, error);
}

static by_status read_groups(edge_reading *r, const by__format_parquet *file, by_error *error)
{
    size_t columns[3] = {0, 0, 0};
    uint64_t row = 0;
    BY_TRY(find_columns(file, r, columns, error));
    bool real = file->columns[columns[2]].kind == BY__PARQUET_REAL;
    for (size_t group = 0; group < file->groups; group++) {
        by__format_parquet_values v[3] = {{0}, {0}, {0}};
        by_status status = BY_OK;
        for (int k = 0; k < (r->weighted ? 3 : 2) && status == BY_OK; k++) {
            status = by__format_parquet_read_group(file, columns[k], group, &v[k], error);
        }
        if (status == BY_OK) {
            status = take_group(r, v, real, row, error);
        }
        row += v[0].count;
        for (int k = 0; k < 3; k++) {
            by__format_parquet_values_free(&v[k]);
        }
        BY_TRY(status);
        if (r->options->progress != NULL &&
            !r->options->progress(r->options->user, "reading", row, file->rows)) {
            return by_error_set(error, BY_ESTOPPED, "stopped: nothing was packed");
        }
    }
    return BY_OK;
}

static by_status read_parquet(edge_reading *r, const by__map *map, by_error *error)
{
    by__format_parquet file;
    r->unit = "row";
    by_status status = by__format_parquet_open(&file, r->path, map->data, map->size,
                                               by__format_parquet_max_rows(map->size), error);
    if (status == BY_OK) {
        status = read_groups(r, &file, error);
    }
    by__format_parquet_close(&file);
    return status;
}

/* ---- reading ---- */

by_status by__nodes_spool_open(by__nodes_spool *out, const char *directory, bool weighted,
                               by_error *error)
{
    *out = (by__nodes_spool){.file = -1, .weight_file = -1, .directory = directory, .largest = -1};
    BY_TRY(by__open_nameless(&out->file, directory, "edges", error));
    return weighted ? by__open_nameless(&out->weight_file, directory, "weights", error) : BY_OK;
}

void by__nodes_spool_close(by__nodes_spool *spool)
{
    by__map_close(&spool->map);
    by__map_close(&spool->weights);
    if (spool->file >= 0) {
        (void)close(spool->file);
    }
    if (spool->weight_file >= 0) {
        (void)close(spool->weight_file);
    }
    *spool = (by__nodes_spool){.file = -1, .weight_file = -1};
}

by_status by__nodes_spool_read(by__nodes_spool *spool, const char *path, bool weighted,
                               const by_graph_pack_options *options, by_error *error)
{
    edge_reading r = {
        .spool = spool, .options = options, .path = path, .unit = "line", .weighted = weighted};
    by__map map;
    BY_TRY(by__map_open(&map, path, error));
    r.count = options->threads > 0 ? options->threads : (size_t)by__thread_count(0);
    r.count = r.count < BY__MAX_CPUS ? r.count : BY__MAX_CPUS;
    by_status status = by__alloc((void **)&r.pieces, r.count, sizeof *r.pieces, "edges", error);
    if (status == BY_OK) {
        status = by__format_parquet_is(map.data, map.size) ? read_parquet(&r, &map, error)
                                                           : read_text(&r, error);
    }
    by__map_close(&map);
    for (size_t i = 0; r.pieces != NULL && i < r.count; i++) {
        free(r.pieces[i].pairs);
        free(r.pieces[i].weights);
    }
    free(r.pieces);
    return status;
}

/* Writes weights of `count` edges, which were numbers of a table. */
static by_status add_weights(by__nodes_spool *spool, const double *values, const char *path,
                             by_error *error)
{
    float *weights;
    size_t count = (size_t)spool->count;
    BY_TRY(by__alloc((void **)&weights, count + 1, sizeof *weights, "weights", error));
    for (size_t i = 0; i < count; i++) {
        weights[i] = (float)values[i];
    }
    by_status status = by__nodes_check_weights(weights, spool->count, path, error);
    if (status == BY_OK) {
        status = write_bytes(spool, spool->weight_file, weights, count * sizeof *weights, error);
    }
    free(weights);
    return status;
}

by_status by__nodes_spool_read_weights(by__nodes_spool *spool, const char *path, by_error *error)
{
    by__map text;
    double *values = NULL;
    uint64_t rows = 0;
    uint64_t columns = 0;
    BY_TRY(by__nodes_text_open(&text, path, spool->directory, error));
    by_status status = by__nodes_number_table_parse(&values, &rows, &columns, path,
                                                    (const char *)text.data, text.size, error);
    by__map_close(&text);
    if (status == BY_OK && (columns != 1 || rows != spool->count)) {
        status = by_error_set(
            error, BY_EFORMAT, "%s has %llu weights of %llu edges: one a line, in their order",
            path, (unsigned long long)(rows * columns), (unsigned long long)spool->count);
    }
    if (status == BY_OK) {
        status = add_weights(spool, values, path, error);
    }
    free(values);
    return status;
}

static by_status map_spool(by__map *out, const by__nodes_spool *spool, int file, size_t size,
                           by_error *error)
{
    void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (data == MAP_FAILED) {
        return by__io_error(error, "map edges in", spool->directory);
    }
    *out = (by__map){data, size};
    return BY_OK;
}

by_status by__nodes_spool_finish(by__nodes_spool *spool, const by_graph_pack_options *options,
                                 by_error *error)
{
    double budget = options->corrupt_budget;
    double most = budget < 1.0 ? budget * (double)spool->lines : budget;
    if ((double)spool->skipped > most) {
        return by_error_set(error, BY_EFORMAT,
                            "%llu of %llu lines of edges are damaged, more than --corrupt-budget "
                            "%g allows",
                            (unsigned long long)spool->skipped, (unsigned long long)spool->lines,
                            budget);
    }
    if (spool->count == 0) {
        return by_error_set(error, BY_EFORMAT, "%s: there are no edges", options->inputs[0]);
    }
    size_t count = (size_t)spool->count;
    if (spool->weight_file >= 0) {
        BY_TRY(map_spool(&spool->weights, spool, spool->weight_file, count * sizeof(float), error));
    }
    return map_spool(&spool->map, spool, spool->file, count * 2 * sizeof(int32_t), error);
}

/* ---- duplicates ---- */

typedef struct edge_search {
    int32_t pair[2];
    bool either_way;
    uint64_t found; /* how often */
} edge_search;

static bool is_wanted(edge_search *s, const int32_t pair[2])
{
    bool same = pair[0] == s->pair[0] && pair[1] == s->pair[1];
    bool back = s->either_way && pair[0] == s->pair[1] && pair[1] == s->pair[0];
    s->found += same || back;
    return (same || back) && s->found == 2;
}

/* The line of a text where the search ends; 0: behind it. */
static uint64_t search_text(edge_search *s, const by__map *text)
{
    const char *data = (const char *)text->data;
    uint64_t line = 0;
    for (size_t at = 0; at < text->size;) {
        int32_t pair[2];
        size_t end = by__nodes_line_end(data, text->size, at);
        line++;
        if (by__nodes_edge_list_line(data, at, end, pair, NULL) == BY__EDGE_PAIR &&
            is_wanted(s, pair)) {
            return line;
        }
        at = end + 1;
    }
    return 0;
}

by_status by__nodes_spool_refuse_twice(const by__nodes_spool *spool, const int32_t pair[2],
                                       bool either_way, const char *const *paths, size_t count,
                                       by_error *error)
{
    edge_search s = {.pair = {pair[0], pair[1]}, .either_way = either_way};
    for (size_t i = 0; i < count; i++) {
        by__map text;
        BY_TRY(by__nodes_text_open(&text, paths[i], spool->directory, error));
        bool is_text = !by__format_parquet_is(text.data, text.size);
        uint64_t line = is_text ? search_text(&s, &text) : 0;
        by__map_close(&text);
        if (line > 0) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: line %llu is the edge from node %d to node %d for the second "
                                "time%s",
                                paths[i], (unsigned long long)line, pair[0], pair[1],
                                either_way ? ", in either direction" : "");
        }
    }
    return by_error_set(error, BY_EFORMAT, "the edge from node %d to node %d is there twice",
                        pair[0], pair[1]);
}
