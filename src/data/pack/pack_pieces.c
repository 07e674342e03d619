#include "data/pack/pack_pieces.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/paths.h"

/* What joining costs, in thousandths of what encoding does: measured on books and GPT-2's
 * vocabulary. */
#define JOINING ((uint64_t)70)

/* Numbers in front of a unit; arrays of ids, documents and skipped lines follow. */
typedef struct piece_head {
    uint64_t unit;
    uint64_t ids;
    uint64_t documents;
    uint64_t skipped;
    uint64_t text_bytes;
    uint64_t texts;
    uint64_t lines;
} piece_head;

/* ---- shares ---- */

/* Encoding and joining together are shared evenly: rank 0 does all of the joining. */
static uint64_t joiner_share(size_t ranks)
{
    uint64_t even = (1000 + JOINING) / ranks;
    return even > JOINING ? even - JOINING : 0;
}

uint64_t by__data_piece_share(size_t rank, size_t ranks)
{
    uint64_t joiner = joiner_share(ranks);
    return rank == 0 ? joiner : (1000 - joiner) / (ranks - 1);
}

/* How many of the first pieces are rank 0's, rounded. */
static uint64_t joiner_pieces(uint64_t pieces, size_t ranks)
{
    return (pieces * joiner_share(ranks) + 500) / 1000;
}

size_t by__data_piece_owner(uint64_t piece, size_t ranks)
{
    uint64_t before = joiner_pieces(piece, ranks);
    bool is_joiner = joiner_pieces(piece + 1, ranks) > before;
    return is_joiner ? 0 : 1 + (size_t)((piece - before) % (ranks - 1));
}

/* ---- files ---- */

static by_status piece_path(char **out, const char *directory, uint64_t piece, by_error *error)
{
    char name[40];
    (void)snprintf(name, sizeof name, "piece-%08" PRIu64, piece);
    return by__path_make(out, directory, name, error);
}

/* Whether the hash that ends a piece is that of the rest. */
static bool has_its_hash(const void *text, size_t size)
{
    uint64_t sum;
    if (size < sizeof sum) {
        return false;
    }
    memcpy(&sum, (const char *)text + size - sizeof sum, sizeof sum);
    return sum == by__hash64(text, size - sizeof sum);
}

by_status by__data_piece_is_whole(bool *out, const char *directory, uint64_t piece, by_error *error)
{
    char *path;
    by__map map;
    *out = false;
    BY_TRY(piece_path(&path, directory, piece, error));
    if (by__path_exists(path) && by__map_open(&map, path, NULL) == BY_OK) {
        *out = has_its_hash(map.data, map.size);
        by__map_close(&map);
    }
    free(path);
    return BY_OK;
}

/* ---- writing ---- */

/* Appends tokens, of 2 bytes if these hold all of them. */
static void add_ids(by__data_piece_writer *w, const by_token_buffer *ids)
{
    uint16_t narrow[512];
    if (w->width == 4) {
        by_string_add(&w->text, ids->ids, ids->count * sizeof *ids->ids);
        return;
    }
    for (size_t i = 0; i < ids->count; i += BY_ARRAY_LENGTH(narrow)) {
        size_t left = ids->count - i;
        size_t n = left < BY_ARRAY_LENGTH(narrow) ? left : BY_ARRAY_LENGTH(narrow);
        for (size_t k = 0; k < n; k++) {
            narrow[k] = (uint16_t)ids->ids[i + k];
        }
        by_string_add(&w->text, narrow, n * sizeof *narrow);
    }
}

by_status by__data_piece_add(by__data_piece_writer *w, uint64_t piece, uint64_t unit,
                             const by__data_unit_tokens *t, by_error *error)
{
    const piece_head head = {.unit = unit,
                             .ids = t->ids.count,
                             .documents = t->document_count,
                             .skipped = t->skipped_count,
                             .text_bytes = t->text_bytes,
                             .texts = t->texts,
                             .lines = t->lines};
    if (piece != w->piece) {
        BY_TRY(by__data_piece_finish(w, error));
    }
    w->piece = piece;
    by_string_add(&w->text, &head, sizeof head);
    add_ids(w, &t->ids);
    by_string_add(&w->text, t->documents, t->document_count * sizeof *t->documents);
    by_string_add(&w->text, t->skipped, t->skipped_count * sizeof *t->skipped);
    return w->text.failed ? by_error_set(error, BY_EMEMORY, "out of memory: a piece of tokens")
                          : BY_OK;
}

by_status by__data_piece_finish(by__data_piece_writer *w, by_error *error)
{
    char *path;
    if (w->text.length == 0) {
        return BY_OK;
    }
    uint64_t sum = by__hash64(w->text.data, w->text.length);
    by_string_add(&w->text, &sum, sizeof sum);
    if (w->text.failed) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a piece of tokens");
    }
    BY_TRY(piece_path(&path, w->directory, w->piece, error));
    by_status status = by__file_write_unsynced(path, w->text.data, w->text.length, error);
    w->text.length = 0;
    free(path);
    return status;
}

void by__data_piece_writer_free(by__data_piece_writer *w)
{
    by_string_free(&w->text);
}

/* ---- reading ---- */

static by_status refuse(const by__data_piece_reader *r, by_error *error)
{
    return by_error_set(error, BY_EFORMAT,
                        "%s/piece-%08" PRIu64 " is damaged: remove %s, and pack again",
                        r->directory, r->piece, r->directory);
}

static by_status open_piece(by__data_piece_reader *r, uint64_t piece, by_error *error)
{
    char *path;
    by__data_piece_reader_free(r);
    r->piece = piece;
    BY_TRY(piece_path(&path, r->directory, piece, error));
    by_status status = by__map_open(&r->map, path, error);
    free(path);
    BY_TRY(status);
    r->is_open = true;
    if (!has_its_hash(r->map.data, r->map.size)) {
        return refuse(r, error);
    }
    r->size = r->map.size - sizeof(uint64_t);
    return BY_OK;
}

/* Takes an array of `count` elements out of the piece. */
static by_status take(by__data_piece_reader *r, void **items, size_t *capacity, uint64_t count,
                      size_t element, by_error *error)
{
    if (count > (r->size - r->at) / element) {
        return refuse(r, error);
    }
    BY_TRY(by__reserve(items, capacity, (size_t)count + 1, element, error));
    memcpy(*items, r->map.data + r->at, (size_t)count * element);
    r->at += (size_t)count * element;
    return BY_OK;
}

static by_status take_ids(by__data_piece_reader *r, by_token_buffer *out, uint64_t count,
                          by_error *error)
{
    out->count = 0;
    if (r->width == 4) {
        BY_TRY(take(r, (void **)&out->ids, &out->capacity, count, sizeof *out->ids, error));
        out->count = (size_t)count;
        return BY_OK;
    }
    if (count > (r->size - r->at) / sizeof(uint16_t)) {
        return refuse(r, error);
    }
    BY_TRY(by__reserve((void **)&out->ids, &out->capacity, (size_t)count + 1, sizeof *out->ids,
                       error));
    for (size_t i = 0; i < count; i++) {
        uint16_t id;
        memcpy(&id, r->map.data + r->at + i * sizeof id, sizeof id);
        out->ids[i] = id;
    }
    r->at += (size_t)count * sizeof(uint16_t);
    out->count = (size_t)count;
    return BY_OK;
}

by_status by__data_piece_read(by__data_piece_reader *r, uint64_t piece, uint64_t unit,
                              by__data_unit_tokens *out, by_error *error)
{
    piece_head head;
    if (!r->is_open || r->piece != piece) {
        BY_TRY(open_piece(r, piece, error));
    }
    if (r->size - r->at < sizeof head) {
        return refuse(r, error);
    }
    memcpy(&head, r->map.data + r->at, sizeof head);
    r->at += sizeof head;
    if (head.unit != unit) {
        return refuse(r, error);
    }
    BY_TRY(take_ids(r, &out->ids, head.ids, error));
    BY_TRY(take(r, (void **)&out->documents, &out->document_capacity, head.documents,
                sizeof *out->documents, error));
    BY_TRY(take(r, (void **)&out->skipped, &out->skipped_capacity, head.skipped,
                sizeof *out->skipped, error));
    out->document_count = (size_t)head.documents;
    out->skipped_count = (size_t)head.skipped;
    out->text_bytes = head.text_bytes;
    out->texts = head.texts;
    out->lines = head.lines;
    size_t begin = 0;
    for (size_t i = 0; i < out->document_count; i++) {
        size_t end = out->documents[i].end;
        if (end < begin || end > out->ids.count) {
            return refuse(r, error);
        }
        begin = end;
    }
    return BY_OK;
}

void by__data_piece_reader_free(by__data_piece_reader *r)
{
    by__map_close(&r->map);
    *r = (by__data_piece_reader){.directory = r->directory, .width = r->width};
}
