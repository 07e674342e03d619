#include "formats/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"

#define NPY_MAGIC        "\x93NUMPY"
#define NPY_HEADER_BYTES 128u /* of files written here: enough for the longest shape */
#define NPY_MAX_HEADER   65536u
#define NPY_MAX_PREFIX   (NPY_MAX_HEADER + 12u) /* the header and the bytes before it */
#define NPY_BUFFER_BYTES ((size_t)1 << 20)

struct by__format_npy_writer {
    int fd;
    unsigned width;
    uint64_t count;
    size_t used; /* bytes in the buffer */
    by__hasher *hasher;
    char *path;
    uint8_t *buffer;
};

/* ---- reading ---- */

typedef struct npy_cursor {
    const char *at;
    const char *end;
} npy_cursor;

static void skip_spaces(npy_cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t')) {
        c->at++;
    }
}

/* Consumes the literal `s` if it comes next. */
static bool accept(npy_cursor *c, const char *s)
{
    skip_spaces(c);
    size_t n = strlen(s);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, s, n) != 0) {
        return false;
    }
    c->at += n;
    return true;
}

/* Reads a quoted string of at most `size` - 1 characters without escapes. */
static bool parse_string(npy_cursor *c, char *out, size_t size)
{
    skip_spaces(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) {
        return false;
    }
    char quote = *c->at++;
    size_t n = 0;
    while (c->at < c->end && *c->at != quote && *c->at != '\\' && n + 1 < size) {
        out[n++] = *c->at++;
    }
    out[n] = '\0';
    return c->at < c->end && *c->at++ == quote;
}

static bool parse_number(npy_cursor *c, uint64_t *out)
{
    skip_spaces(c);
    uint64_t n = 0;
    const char *start = c->at;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        uint64_t digit = (uint64_t)(*c->at - '0');
        if (__builtin_mul_overflow(n, (uint64_t)10, &n) || __builtin_add_overflow(n, digit, &n)) {
            return false;
        }
    }
    *out = n;
    return c->at > start;
}

/* The content of a header. */
typedef struct npy_header {
    char descr[24];
    by_shape shape;
    size_t offset; /* of the first element */
} npy_header;

/* Parses the shape: "(3, 4)", "(5,)", "()". */
static bool parse_shape(npy_cursor *c, by_shape *out)
{
    *out = (by_shape){0};
    if (!accept(c, "(")) {
        return false;
    }
    while (!accept(c, ")")) {
        uint64_t extent;
        if (out->rank == BY_MAX_RANK || !parse_number(c, &extent) || extent > INT64_MAX) {
            return false;
        }
        out->dim[out->rank++] = (int64_t)extent;
        if (!accept(c, ",")) {
            return out->rank > 1 && accept(c, ")");
        }
    }
    return true;
}

/* Parses the dictionary {'descr': '<u2', 'fortran_order': False, 'shape': (N,), }, with keys in any
 * order. Returns the problem, or NULL. */
static const char *parse_header(npy_cursor c, npy_header *out)
{
    char key[24];
    unsigned seen = 0;
    if (!accept(&c, "{")) {
        return "the header is not a dictionary";
    }
    while (!accept(&c, "}")) {
        if (!parse_string(&c, key, sizeof key) || !accept(&c, ":")) {
            return "the header is not a dictionary";
        }
        unsigned bit;
        if (strcmp(key, "descr") == 0) {
            bit = 1;
            if (!parse_string(&c, out->descr, sizeof out->descr)) {
                return "descr is not a short string";
            }
        } else if (strcmp(key, "fortran_order") == 0) {
            bit = 2;
            if (!accept(&c, "False")) {
                return "fortran_order is not False";
            }
        } else if (strcmp(key, "shape") == 0) {
            bit = 4;
            if (!parse_shape(&c, &out->shape)) {
                return "shape is not a tuple of up to 6 extents";
            }
        } else {
            return "the header has a key other than descr, fortran_order and shape";
        }
        if ((seen & bit) != 0) {
            return "the header has a key twice";
        }
        seen |= bit;
        if (!accept(&c, ",")) {
            if (!accept(&c, "}")) {
                return "the header is not a dictionary";
            }
            break;
        }
    }
    skip_spaces(&c);
    if (seen != 7) {
        return "the header lacks descr, fortran_order or shape";
    }
    return c.end - c.at == 1 && *c.at == '\n' ? NULL : "the header does not end with a newline";
}

static by_status bad_header(const char *name, const npy_header *header, const char *problem,
                            by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s: npy header before offset %zu: %s", name,
                        header->offset, problem);
}

/* Reads the header from the first `size` bytes of a file. */
static by_status read_header(npy_header *out, const char *name, const uint8_t *data, size_t size,
                             by_error *error)
{
    size_t prefix = 10;
    if (size < prefix || memcmp(data, NPY_MAGIC, 6) != 0) {
        return by_error_set(error, BY_EFORMAT, "%s: not an npy file (no \\x93NUMPY at offset 0)",
                            name);
    }
    if (data[6] < 1 || data[6] > 3 || data[7] != 0) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: npy version %u.%u at offset 6 is not 1.0 to 3.0", name, data[6],
                            data[7]);
    }
    size_t length = (size_t)data[8] | (size_t)data[9] << 8;
    if (data[6] > 1) {
        prefix = 12;
        if (size < prefix) {
            return by_error_set(error, BY_EFORMAT, "%s: %zu bytes end inside the npy header", name,
                                size);
        }
        length |= (size_t)data[10] << 16 | (size_t)data[11] << 24;
    }
    if (length > NPY_MAX_HEADER || length > size - prefix) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: header of %zu bytes at offset %zu, but the file has %zu", name,
                            length, prefix, size);
    }
    npy_header header = {.offset = prefix + length};
    const char *text = (const char *)data + prefix;
    const char *problem = parse_header((npy_cursor){text, text + length}, &header);
    if (problem != NULL) {
        return bad_header(name, &header, problem, error);
    }
    *out = header;
    return BY_OK;
}

static unsigned width_of(const char *descr)
{
    return strcmp(descr, "<u2") == 0   ? 2
           : strcmp(descr, "<u4") == 0 ? 4
           : strcmp(descr, "<u8") == 0 ? 8
                                       : 0;
}

/* Checks the first `size` bytes, which contain the header, of a file of `file_size` with one axis
 * of tokens. */
static by_status parse(by__format_npy_info *out, const char *name, const uint8_t *data, size_t size,
                       uint64_t file_size, by_error *error)
{
    npy_header header;
    BY_TRY(read_header(&header, name, data, size, error));
    by__format_npy_info info = {.width = width_of(header.descr),
                                .count = (uint64_t)header.shape.dim[0],
                                .offset = header.offset};
    if (info.width == 0) {
        return bad_header(name, &header, "descr is not '<u2', '<u4' or '<u8'", error);
    }
    if (header.shape.rank != 1) {
        return bad_header(name, &header, "shape is not one axis, (N,)", error);
    }
    if (info.offset % info.width != 0) {
        return bad_header(name, &header, "the elements are not aligned", error);
    }
    uint64_t held = file_size - info.offset;
    if (info.count != held / info.width || held % info.width != 0) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: the header promises %" PRIu64
                            " elements of %u bytes from offset %zu, but the file has %" PRIu64
                            " bytes",
                            name, info.count, info.width, info.offset, file_size);
    }
    *out = info;
    return BY_OK;
}

by_status by__format_npy_parse(by__format_npy_info *out, const char *name, const uint8_t *data,
                               size_t size, by_error *error)
{
    return parse(out, name, data, size, size, error);
}

by_status by__format_npy_parse_array(by__format_array_view *out, const char *name,
                                     const uint8_t *data, size_t size, by_error *error)
{
    static const struct {
        const char *descr; /* after the byte order */
        by__format_element element;
    } types[] = {{"u1", BY__ELEMENT_U8},  {"b1", BY__ELEMENT_U8},  {"i1", BY__ELEMENT_I8},
                 {"u2", BY__ELEMENT_U16}, {"i2", BY__ELEMENT_I16}, {"u4", BY__ELEMENT_U32},
                 {"i4", BY__ELEMENT_I32}, {"u8", BY__ELEMENT_U64}, {"i8", BY__ELEMENT_I64},
                 {"f4", BY__ELEMENT_F32}, {"f8", BY__ELEMENT_F64}};
    npy_header header;
    BY_TRY(read_header(&header, name, data, size, error));
    by__format_array_view view = {.shape = header.shape, .data = data + header.offset};
    char order = header.descr[0];
    size_t i = 0;
    while (i < BY_ARRAY_LENGTH(types) &&
           (order == '\0' || strcmp(header.descr + 1, types[i].descr) != 0)) {
        i++;
    }
    bool is_byte = i < BY_ARRAY_LENGTH(types) && by__format_element_size(types[i].element) == 1;
    if (i == BY_ARRAY_LENGTH(types) ||
        !(order == '<' || order == '>' || (is_byte && order == '|'))) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: npy elements '%s' are not integers or floating-point numbers of "
                            "up to 8 bytes ('|u1', '<i4', '<f4', ...)",
                            name, header.descr);
    }
    view.element = types[i].element;
    view.big_endian = order == '>';
    BY_TRY(by__format_array_view_check(&view, name, header.offset, size - header.offset, error));
    *out = view;
    return BY_OK;
}

by_status by__format_npy_open(int *fd, by__format_npy_info *out, const char *path, by_error *error)
{
    int file;
    size_t whole;
    uint8_t *header = NULL;
    BY_TRY(by__open_regular(&file, &whole, path, error));
    size_t size = whole < NPY_MAX_PREFIX ? whole : NPY_MAX_PREFIX;
    by_status status = by__alloc((void **)&header, size + 1, 1, "npy header", error);
    if (status == BY_OK) {
        status = by__read_at(file, path, 0, header, size, error);
    }
    if (status == BY_OK) {
        status = parse(out, path, header, size, (uint64_t)whole, error);
    }
    free(header);
    if (status != BY_OK) {
        (void)close(file);
        return status;
    }
    *fd = file;
    return BY_OK;
}

/* ---- writing ---- */

static by_status write_all(const by__format_npy_writer *writer, const uint8_t *data, size_t length,
                           by_error *error)
{
    while (length > 0) {
        ssize_t n = write(writer->fd, data, length);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return by__io_error(error, "write", writer->path);
        }
        data += n;
        length -= (size_t)n;
    }
    return BY_OK;
}

/* Hashes and writes the buffer. The disk begins on it at once: fsync then waits for the last of the
 * file instead of for all of it. */
static by_status flush(by__format_npy_writer *writer, by_error *error)
{
    by__hasher_add(writer->hasher, writer->buffer, writer->used);
    size_t used = writer->used;
    writer->used = 0;
    BY_TRY(write_all(writer, writer->buffer, used, error));
    (void)sync_file_range(writer->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    return BY_OK;
}

by_status by__format_npy_writer_open(by__format_npy_writer **out, const char *path, unsigned width,
                                     by_error *error)
{
    by__format_npy_writer *writer;
    BY_TRY(by__alloc((void **)&writer, 1, sizeof *writer, "npy writer", error));
    writer->fd = -1;
    writer->width = width;
    writer->path = by__strdup(path);
    by_status status = writer->path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                            : by__hasher_open(&writer->hasher, error);
    if (status == BY_OK) {
        status = by__alloc_aligned((void **)&writer->buffer, NPY_BUFFER_BYTES, "npy buffer", error);
    }
    if (status == BY_OK) {
        writer->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (writer->fd < 0) {
            status = by__io_error(error, "create", path);
        } else if (lseek(writer->fd, NPY_HEADER_BYTES, SEEK_SET) < 0) {
            status = by__io_error(error, "seek in", path);
        }
    }
    if (status != BY_OK) {
        by__format_npy_writer_close(&writer);
        return status;
    }
    *out = writer;
    return BY_OK;
}

/* Number of elements that fit in the buffer, at least one and at most `count`; flushes a full
 * buffer. */
static by_status make_room(by__format_npy_writer *writer, size_t count, size_t *room,
                           by_error *error)
{
    if (writer->used + writer->width > NPY_BUFFER_BYTES) {
        BY_TRY(flush(writer, error));
    }
    size_t free_elements = (NPY_BUFFER_BYTES - writer->used) / writer->width;
    *room = count < free_elements ? count : free_elements;
    return BY_OK;
}

/* Appends little-endian bytes of `value` to the buffer, which must have room. */
static void put(by__format_npy_writer *writer, uint64_t value)
{
    for (unsigned i = 0; i < writer->width; i++) {
        writer->buffer[writer->used++] = (uint8_t)(value >> (8 * i));
    }
}

/* The same for many 2-byte values: the tokens of nearly all vocabularies. */
static void put_u16(by__format_npy_writer *writer, const uint32_t *values, size_t count)
{
    uint8_t *out = writer->buffer + writer->used;
    for (size_t i = 0; i < count; i++) {
        out[2 * i] = (uint8_t)values[i];
        out[2 * i + 1] = (uint8_t)(values[i] >> 8);
    }
    writer->used += 2 * count;
}

by_status by__format_npy_writer_add_u32(by__format_npy_writer *writer, const uint32_t *values,
                                        size_t count, by_error *error)
{
    while (count > 0) {
        size_t room;
        BY_TRY(make_room(writer, count, &room, error));
        if (writer->width == 2) {
            put_u16(writer, values, room);
        } else {
            for (size_t i = 0; i < room; i++) {
                put(writer, values[i]);
            }
        }
        writer->count += room;
        values += room;
        count -= room;
    }
    return BY_OK;
}

by_status by__format_npy_writer_add_u64(by__format_npy_writer *writer, const uint64_t *values,
                                        size_t count, by_error *error)
{
    while (count > 0) {
        size_t room;
        BY_TRY(make_room(writer, count, &room, error));
        for (size_t i = 0; i < room; i++) {
            put(writer, values[i]);
        }
        writer->count += room;
        values += room;
        count -= room;
    }
    return BY_OK;
}

by_status by__format_npy_writer_finish(by__format_npy_writer *writer, char hash[33],
                                       by_error *error)
{
    char header[NPY_HEADER_BYTES + 1];
    BY_TRY(flush(writer, error));
    memset(header, ' ', NPY_HEADER_BYTES);
    memcpy(header, NPY_MAGIC "\x01\x00", 8);
    header[8] = (char)(NPY_HEADER_BYTES - 10);
    header[9] = 0;
    int n = snprintf(header + 10, NPY_HEADER_BYTES - 10,
                     "{'descr': '%cu%u', 'fortran_order': False, 'shape': (%" PRIu64 ",), }",
                     writer->width == 1 ? '|' : '<', writer->width, writer->count);
    header[10 + n] = ' ';
    header[NPY_HEADER_BYTES - 1] = '\n';
    if (lseek(writer->fd, 0, SEEK_SET) < 0) {
        return by__io_error(error, "seek in", writer->path);
    }
    BY_TRY(write_all(writer, (const uint8_t *)header, NPY_HEADER_BYTES, error));
    if (fsync(writer->fd) != 0) {
        return by__io_error(error, "sync", writer->path);
    }
    by__hasher_hex(writer->hasher, hash);
    return BY_OK;
}

void by__format_npy_writer_close(by__format_npy_writer **writer)
{
    by__format_npy_writer *w = *writer;
    if (w == NULL) {
        return;
    }
    if (w->fd >= 0) {
        (void)close(w->fd);
    }
    by__hasher_close(&w->hasher);
    free(w->path);
    free(w->buffer);
    free(w);
    *writer = NULL;
}
