#include "formats/gzip.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <zlib.h>

#include "formats/parquet_codec.h"

#define FIRST_BYTES ((size_t)1 << 16)
#define WINDOW_GZIP (16 + MAX_WBITS)  /* gzip's header and checksum */
#define PIECE_LIMIT ((size_t)1 << 30) /* zlib counts in unsigned int */

typedef struct inflation {
    z_stream stream;
    const uint8_t *next;
    size_t left; /* input after `next` */
    uint8_t *out;
    size_t used;
    size_t capacity;
    size_t max;
} inflation;

/* Calls zlib once. *ended: the member's end was reached. */
static by_status step(inflation *n, const char *name, bool *ended, by_error *error)
{
    if (n->used == n->capacity) {
        if (n->used == n->max) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: inflates to more than the limit of %zu bytes", name, n->max);
        }
        size_t need = n->used < FIRST_BYTES / 2 ? FIRST_BYTES : 2 * n->used;
        need = need > n->max ? n->max : need;
        uint8_t *grown = realloc(n->out, need);
        if (grown == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: %zu bytes of %s", need, name);
        }
        n->out = grown;
        n->capacity = need;
    }
    size_t in = n->left < PIECE_LIMIT ? n->left : PIECE_LIMIT;
    size_t room = n->capacity - n->used < PIECE_LIMIT ? n->capacity - n->used : PIECE_LIMIT;
    n->stream.next_in = (Bytef *)(uintptr_t)n->next;
    n->stream.avail_in = (uInt)in;
    n->stream.next_out = n->out + n->used;
    n->stream.avail_out = (uInt)room;
    int result = inflate(&n->stream, Z_NO_FLUSH);
    size_t taken = in - n->stream.avail_in;
    size_t made = room - n->stream.avail_out;
    n->next += taken;
    n->left -= taken;
    n->used += made;
    *ended = result == Z_STREAM_END;
    if (result == Z_MEM_ERROR) {
        return by_error_set(error, BY_EMEMORY, "out of memory: inflating %s", name);
    }
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
        return by_error_set(error, BY_EFORMAT, "%s: damaged gzip data: %s", name,
                            n->stream.msg == NULL ? "unexpected" : n->stream.msg);
    }
    if (!*ended && n->left == 0 && made == 0) {
        return by_error_set(error, BY_EFORMAT, "%s: the gzip data is cut short", name);
    }
    return BY_OK;
}

by_status by__format_gzip_inflate(uint8_t **out, size_t *out_size, const char *name,
                                  const uint8_t *data, size_t size, size_t max, by_error *error)
{
    inflation n = {.next = data, .left = size, .max = max};
    if (inflateInit2(&n.stream, WINDOW_GZIP) != Z_OK) {
        return by_error_set(error, BY_EMEMORY, "out of memory: inflating %s", name);
    }
    by_status status = BY_OK;
    do {
        bool ended = false;
        while (!ended && status == BY_OK) {
            status = step(&n, name, &ended, error);
        }
        if (status == BY_OK && n.left > 0 && inflateReset(&n.stream) != Z_OK) {
            status = by_error_set(error, BY_EFORMAT, "%s: damaged gzip data", name);
        }
    } while (status == BY_OK && n.left > 0);
    (void)inflateEnd(&n.stream);
    if (status != BY_OK) {
        free(n.out);
        return status;
    }
    *out = n.out;
    *out_size = n.used;
    return BY_OK;
}

static by_status write_piece(int file, const char *path, const uint8_t *data, size_t size,
                             by_error *error)
{
    for (size_t at = 0; at < size;) {
        ssize_t n = write(file, data + at, size - at);
        if (n < 0 && errno != EINTR) {
            return by__io_error(error, "write", path);
        }
        at += n > 0 ? (size_t)n : 0;
    }
    return BY_OK;
}

by_status by__format_gzip_to_file(int file, const char *path, const char *name, const uint8_t *data,
                                  size_t size, by_error *error)
{
    enum { PIECE = 1 << 20 };
    inflation n = {.next = data, .left = size, .max = PIECE, .capacity = PIECE};
    BY_TRY(by__alloc((void **)&n.out, PIECE, 1, "a piece", error));
    by_status status = inflateInit2(&n.stream, WINDOW_GZIP) == Z_OK
                           ? BY_OK
                           : by_error_set(error, BY_EMEMORY, "out of memory: inflating %s", name);
    bool begun = status == BY_OK;
    while (status == BY_OK && n.left > 0) {
        bool ended = false;
        while (!ended && status == BY_OK) {
            n.used = 0;
            status = step(&n, name, &ended, error);
            if (status == BY_OK) {
                status = write_piece(file, path, n.out, n.used, error);
            }
        }
        if (status == BY_OK && n.left > 0 && inflateReset(&n.stream) != Z_OK) {
            status = by_error_set(error, BY_EFORMAT, "%s: damaged gzip data", name);
        }
    }
    if (begun) {
        (void)inflateEnd(&n.stream);
    }
    free(n.out);
    return status;
}

by_status by__format_gzip_decompress(bool *done, uint8_t *out, size_t out_size, const uint8_t *data,
                                     size_t size, const char *name, by_error *error)
{
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)data,
                       .avail_in = (uInt)size,
                       .next_out = out,
                       .avail_out = (uInt)out_size};
    BY_UNUSED(name);
    BY_UNUSED(error);
    *done = false;
    if (size <= UINT_MAX && out_size <= UINT_MAX && inflateInit2(&stream, 32 + MAX_WBITS) == Z_OK) {
        *done = inflate(&stream, Z_FINISH) == Z_STREAM_END && stream.avail_out == 0;
        (void)inflateEnd(&stream);
    }
    return BY_OK;
}

by_status by__format_gzip_inflate_raw(uint8_t *out, size_t size, const char *name,
                                      const uint8_t *data, size_t data_size, by_error *error)
{
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)data, .next_out = out};
    size_t in = data_size;
    size_t room = size;
    int result = Z_OK;
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) {
        return by_error_set(error, BY_EMEMORY, "out of memory: inflating %s", name);
    }
    while (result == Z_OK) {
        uInt more = (uInt)(in < PIECE_LIMIT ? in : PIECE_LIMIT);
        uInt space = (uInt)(room < PIECE_LIMIT ? room : PIECE_LIMIT);
        stream.avail_in = more;
        stream.avail_out = space;
        result = inflate(&stream, Z_NO_FLUSH);
        in -= more - stream.avail_in;
        room -= space - stream.avail_out;
    }
    (void)inflateEnd(&stream);
    return result == Z_STREAM_END && room == 0
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s: damaged data of deflate", name);
}
