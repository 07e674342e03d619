#include "data/corpus/pack_pieces.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/paths.h"

#define MOST_BYTES ((size_t)1 << 32)

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

static by_status piece_path(char **out, const char *directory, uint64_t piece, by_error *error)
{
    char name[40];
    (void)snprintf(name, sizeof name, "piece-%08" PRIu64, piece);
    return by__path_make(out, directory, name, error);
}

by_status by__data_piece_exists(bool *out, const char *directory, uint64_t piece, by_error *error)
{
    char *path;
    BY_TRY(piece_path(&path, directory, piece, error));
    *out = by__path_exists(path);
    free(path);
    return BY_OK;
}

/* ---- writing ---- */

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
    by_string_add(&w->text, t->ids.ids, t->ids.count * sizeof *t->ids.ids);
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
    by_status status = by__file_write(path, w->text.data, w->text.length, error);
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
    uint64_t sum;
    by__data_piece_reader_free(r);
    r->piece = piece;
    BY_TRY(piece_path(&path, r->directory, piece, error));
    by_status status = by__file_read(&r->text, &r->size, path, MOST_BYTES, error);
    free(path);
    BY_TRY(status);
    r->is_open = true;
    if (r->size < sizeof sum) {
        return refuse(r, error);
    }
    r->size -= sizeof sum;
    memcpy(&sum, r->text + r->size, sizeof sum);
    return sum == by__hash64(r->text, r->size) ? BY_OK : refuse(r, error);
}

/* Takes an array of `count` elements out of the piece. */
static by_status take(by__data_piece_reader *r, void **items, size_t *capacity, uint64_t count,
                      size_t element, by_error *error)
{
    if (count > (r->size - r->at) / element) {
        return refuse(r, error);
    }
    BY_TRY(by__reserve(items, capacity, (size_t)count + 1, element, error));
    memcpy(*items, r->text + r->at, (size_t)count * element);
    r->at += (size_t)count * element;
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
    memcpy(&head, r->text + r->at, sizeof head);
    r->at += sizeof head;
    if (head.unit != unit) {
        return refuse(r, error);
    }
    BY_TRY(
        take(r, (void **)&out->ids.ids, &out->ids.capacity, head.ids, sizeof *out->ids.ids, error));
    BY_TRY(take(r, (void **)&out->documents, &out->document_capacity, head.documents,
                sizeof *out->documents, error));
    BY_TRY(take(r, (void **)&out->skipped, &out->skipped_capacity, head.skipped,
                sizeof *out->skipped, error));
    out->ids.count = (size_t)head.ids;
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
    free(r->text);
    *r = (by__data_piece_reader){.directory = r->directory};
}
