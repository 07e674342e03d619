#include "data/corpus/text_source.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"
#include "base/utf8.h"
#include "formats/json_lines.h"
#include "formats/parquet_text.h"
#include "text/tokenizer/split.h"

#define BLOCK      ((size_t)1 << 20)
#define FIRST_READ ((size_t)4096)
#define FIRST_READ ((size_t)4096)
#define MAX_DEPTH  64 /* of nested directories */

/* ---- listing ---- */

static bool is_parquet(const char *path)
{
    return by__ends_with(path, ".parquet");
}

static bool is_text(const char *path)
{
    return by__is_json_lines(path) || is_parquet(path) || by__ends_with(path, ".txt") ||
           by__ends_with(path, ".text") || by__ends_with(path, ".md");
}

/* Converts a Parquet file to JSON lines. */
static by_status open_lines(by__data_source_file *file, const char *field, by_error *error)
{
    struct stat info;
    char path[40];
    int fd;
    BY_TRY(by__format_parquet_text_lines(&fd, file->path, field, error));
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    char *content = by__strdup(path);
    if (content == NULL || fstat(fd, &info) != 0) {
        by_status status = content == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                           : by__io_error(error, "read", path);
        (void)close(fd);
        free(content);
        return status;
    }
    file->content = content;
    file->content_file = fd;
    file->json_lines = true;
    file->bytes = (uint64_t)info.st_size;
    return BY_OK;
}

static by_status add_file(by__data_source *s, const char *path, by_error *error)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        return by__io_error(error, "read", path);
    }
    if (!S_ISREG(info.st_mode)) {
        return by_error_set(error, BY_EIO, "cannot read %s: it is not a regular file", path);
    }
    BY_TRY(by__reserve((void **)&s->files, &s->capacity, s->count + 1, sizeof *s->files, error));
    char *copy = by__strdup(path);
    if (copy == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    by__data_source_file *file = &s->files[s->count++];
    *file = (by__data_source_file){
        .path = copy, .json_lines = by__is_json_lines(path), .bytes = (uint64_t)info.st_size};
    if (is_parquet(path)) {
        BY_TRY(open_lines(file, s->field, error));
    }
    s->bytes += file->bytes;
    return BY_OK;
}

/* The directories from an input down to the current one. */
typedef struct chain {
    const struct chain *above;
    dev_t device;
    ino_t inode;
    unsigned depth;
} chain;

/* Returns true if the directory is one of its own ancestors, as a symbolic link can make it. */
static bool is_above(const chain *above, const struct stat *info)
{
    for (; above != NULL; above = above->above) {
        if (above->device == info->st_dev && above->inode == info->st_ino) {
            return true;
        }
    }
    return false;
}

static by_status skip_loop(by__data_source *s, const char *path, by_error *error)
{
    s->loops++;
    if (s->loop == NULL && (s->loop = by__strdup(path)) == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    return BY_OK;
}

static by_status add_directory(by__data_source *s, const char *path, const chain *above,
                               by_error *error)
{
    char **names;
    size_t count;
    struct stat info;
    if (stat(path, &info) != 0) {
        return by__io_error(error, "read", path);
    }
    if (is_above(above, &info)) {
        return skip_loop(s, path, error);
    }
    const chain here = {above, info.st_dev, info.st_ino, above == NULL ? 0 : above->depth + 1};
    if (here.depth > MAX_DEPTH) {
        return by_error_set(error, BY_EIO, "%s: directories are nested deeper than %d", path,
                            MAX_DEPTH);
    }
    BY_TRY(by__list_dir(&names, &count, path, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        char *child = by__path_join(path, names[i]);
        if (child == NULL) {
            status = by_error_set(error, BY_EMEMORY, "out of memory: path");
        } else if (names[i][0] != '.' && by__path_is_dir(child)) {
            status = add_directory(s, child, &here, error);
        } else if (names[i][0] != '.' && is_text(child)) {
            status = add_file(s, child, error);
        }
        free(child);
    }
    by__names_free(names, count);
    return status;
}

/* Adds a remote file, which keeps its name in messages and is read from its local copy. */
static by_status add_remote(by__data_source *s, const char *url, const by_remote_options *remote,
                            by_error *error)
{
    const char *path;
    char shown[BY__REMOTE_SHOWN];
    BY_TRY(by__remote_path(&path, &s->remote, remote, url, error));
    BY_TRY(add_file(s, path, error));
    char *name = by__strdup(by__remote_shown(shown, url));
    if (name == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    by__data_source_file *file = &s->files[s->count - 1];
    if (file->content == NULL) {
        file->content = file->path;
        file->content_file = -1;
    } else {
        free(file->path);
    }
    file->path = name;
    return BY_OK;
}

/* Adds the texts below a folder of S3. */
static by_status add_remote_folder(by__data_source *s, const char *url,
                                   const by_remote_options *remote, by_error *error)
{
    by__remote_names names = {0};
    if (s->remote == NULL) {
        BY_TRY(by__remote_open(&s->remote, remote, error));
    }
    by_status status = by__remote_list(&names, s->remote, url, error);
    for (size_t i = 0; i < names.count && status == BY_OK; i++) {
        if (is_text(names.urls[i])) {
            status = add_remote(s, names.urls[i], remote, error);
        }
    }
    by__remote_names_free(&names);
    return status;
}

static by_status add_input(by__data_source *s, const char *input, const by_remote_options *remote,
                           by_error *error)
{
    return by__remote_is_folder(input) ? add_remote_folder(s, input, remote, error)
           : by_remote_is(input)       ? add_remote(s, input, remote, error)
           : by__path_is_dir(input)    ? add_directory(s, input, NULL, error)
                                       : add_file(s, input, error);
}

by_status by__data_source_open(by__data_source *out, const char *const *inputs, size_t count,
                               const char *field, const by_remote_options *remote, by_error *error)
{
    by__data_source s = {.field = field};
    by_status status =
        count > 0 ? BY_OK : by_error_set(error, BY_EARG, "no text to pack was given");
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        size_t before = s.count;
        status = add_input(&s, inputs[i], remote, error);
        if (status == BY_OK && s.count == before) {
            status = by_error_set(error, BY_EARG,
                                  "%s holds no file that ends in .txt, .text, .md, .jsonl, "
                                  ".ndjson or .parquet",
                                  inputs[i]);
        }
    }
    if (status != BY_OK) {
        by__data_source_close(&s);
        return status;
    }
    s.split_file = s.count;
    *out = s;
    return BY_OK;
}

void by__data_source_close(by__data_source *source)
{
    for (size_t i = 0; i < source->count; i++) {
        if (source->files[i].content != NULL && source->files[i].content_file >= 0) {
            (void)close(source->files[i].content_file);
        }
        free(source->files[i].content);
        free(source->files[i].path);
    }
    free(source->files);
    free(source->loop);
    by__remote_close(&source->remote);
    *source = (by__data_source){0};
}

/* ---- the held-out part ---- */

/* Where a character of a file is. */
typedef struct text_position {
    uint64_t offset;
    uint64_t line;      /* offset at which its line begins */
    uint64_t in_line;   /* characters of the line before it */
    uint64_t line_end;  /* offset behind the line */
    uint64_t line_size; /* characters of the line */
} text_position;

/* Finds character `wanted` of a file; the end of its line only in JSON lines. */
static by_status find_character(text_position *out, const by__data_source_file *file,
                                uint64_t wanted, by_error *error)
{
    char *block;
    int fd;
    text_position p = {.offset = file->bytes, .line = file->mark_bytes, .line_end = file->bytes};
    uint64_t seen = 0;
    uint64_t before = 0; /* characters before the line */
    bool found = false;
    bool ended = false;
    BY_TRY(by__data_source_open_file(&fd, file, error));
    by_status status = by__alloc((void **)&block, BLOCK, 1, "read buffer", error);
    for (uint64_t at = file->mark_bytes; at < file->bytes && !ended && status == BY_OK;) {
        size_t n = file->bytes - at < BLOCK ? (size_t)(file->bytes - at) : BLOCK;
        status = by__read_at(fd, file->path, at, block, n, error);
        for (size_t i = 0; i < n && status == BY_OK && !ended; i++) {
            bool begins = by__utf8_begins(block[i]);
            if (begins && !found && seen == wanted) {
                found = true;
                p.offset = at + i;
                p.in_line = seen - before;
                ended = !file->json_lines;
            }
            seen += begins ? 1 : 0;
            if (block[i] == '\n' && !found) {
                p.line = at + i + 1;
                before = seen;
            } else if (block[i] == '\n') {
                p.line_end = at + i + 1;
                ended = true;
            }
        }
        at += n;
    }
    if (status == BY_OK) {
        p.line_size = seen - before;
        *out = p;
        free(block);
    }
    (void)close(fd);
    return status;
}

by_status by__data_source_hold_out(by__data_source *s, double fraction, by_error *error)
{
    uint64_t total = 0;
    if (!(fraction >= 0.0 && fraction < 1.0)) {
        return by_error_set(error, BY_EARG, "a held-out fraction of %g is not in [0, 1)", fraction);
    }
    s->split_file = s->count;
    s->split_offset = 0;
    s->split_end = 0;
    if (fraction == 0.0) {
        return BY_OK;
    }
    for (size_t i = 0; i < s->count; i++) {
        total += s->files[i].characters;
    }
    const uint64_t all = (uint64_t)floor((double)total * (1.0 - fraction));
    uint64_t kept = all;
    size_t i = 0;
    while (i < s->count && kept >= s->files[i].characters) {
        kept -= s->files[i++].characters;
    }
    if (i == s->count) {
        return BY_OK;
    }
    text_position p;
    BY_TRY(find_character(&p, &s->files[i], kept, error));
    s->split_file = i;
    s->split_offset = s->files[i].json_lines ? p.line : p.offset;
    if (s->files[i].json_lines && all - p.in_line < p.in_line) {
        s->split_end = p.line_end;
        /* Not of whole characters of the line: its text has other ones. */
        s->split_share =
            ((double)total * (1.0 - fraction) - (double)(all - p.in_line)) / (double)p.line_size;
    }
    return BY_OK;
}

/* ---- units ---- */

/* Bytes to read at `at`: few first, as the next cut is near as a rule. */
static size_t next_read(size_t last, uint64_t left)
{
    size_t n = last == 0 ? FIRST_READ : last < BLOCK / 8 ? last * 8 : BLOCK;
    return left < n ? (size_t)left : n;
}

/* The offset after the first newline from `at` on; `end` if there is none. */
static by_status find_line_end(int fd, const char *path, uint64_t at, uint64_t end, char *block,
                               uint64_t *out, by_error *error)
{
    *out = end;
    for (size_t n = 0; at < end;) {
        n = next_read(n, end - at);
        BY_TRY(by__read_at(fd, path, at, block, n, error));
        const char *newline = memchr(block, '\n', n);
        if (newline != NULL) {
            *out = at + (uint64_t)(newline - block) + 1;
            return BY_OK;
        }
        at += n;
    }
    return BY_OK;
}

/* The first border of a text from `at` on; `end` if there is none. */
static by_status find_border(int fd, const char *path, uint64_t at, uint64_t end, char *block,
                             uint64_t *out, by_error *error)
{
    *out = end;
    for (size_t n = 0; at + 1 < end;) {
        /* Includes one byte before `at`, which a border depends on. */
        n = next_read(n, end - (at - 1));
        BY_TRY(by__read_at(fd, path, at - 1, block, n, error));
        size_t cut = by__tokenizer_split_chunk((const uint8_t *)block, n, 1);
        if (cut < n) {
            *out = at - 1 + cut;
            return BY_OK;
        }
        at += n - 1;
    }
    return BY_OK;
}

static by_status find_cut(const by__data_source_file *file, uint64_t at, uint64_t end,
                          uint64_t *out, by_error *error)
{
    int fd;
    char *block;
    BY_TRY(by__data_source_open_file(&fd, file, error));
    by_status status = by__alloc((void **)&block, BLOCK, 1, "read buffer", error);
    if (status == BY_OK) {
        status = file->json_lines ? find_line_end(fd, file->path, at, end, block, out, error)
                                  : find_border(fd, file->path, at, end, block, out, error);
        free(block);
    }
    (void)close(fd);
    return status;
}

by_status by__data_units_next(by__data_units *u, by__data_format_unit *unit, bool *found,
                              by_error *error)
{
    const by__data_source *s = u->source;
    while (u->file < s->count && (u->offset >= s->files[u->file].bytes ||
                                  s->files[u->file].mark_bytes == s->files[u->file].bytes)) {
        u->file++;
        u->offset = 0;
    }
    *found = u->file < s->count;
    if (!*found) {
        return BY_OK;
    }
    const by__data_source_file *file = &s->files[u->file];
    u->offset = u->offset == 0 ? file->mark_bytes : u->offset;
    bool splits = u->file == s->split_file;
    if (splits && u->offset == s->split_offset && s->split_end > s->split_offset) {
        bool rest = u->is_kept;
        *unit = (by__data_format_unit){.file = file,
                                       .number = u->next++,
                                       .field = s->field,
                                       .begin = u->offset,
                                       .end = s->split_end,
                                       .held_out = rest,
                                       .ends_document = true,
                                       .is_cut = !rest,
                                       .part = rest ? BY__UNIT_REST : BY__UNIT_KEPT,
                                       .share = s->split_share};
        u->offset = rest ? s->split_end : u->offset;
        u->is_kept = true;
        return BY_OK;
    }
    uint64_t part = splits && u->offset < s->split_offset ? s->split_offset : file->bytes;
    uint64_t end = part;
    if (part - u->offset > u->wanted && (file->json_lines || !u->whole)) {
        BY_TRY(find_cut(file, u->offset + u->wanted, part, &end, error));
    }
    *unit = (by__data_format_unit){.file = file,
                                   .number = u->next++,
                                   .field = s->field,
                                   .begin = u->offset,
                                   .end = end,
                                   .held_out = u->file > s->split_file ||
                                               (splits && u->offset >= s->split_offset),
                                   .ends_document = end == part,
                                   .is_cut = end < file->bytes};
    u->offset = end;
    return BY_OK;
}

by_status by__data_unit_read(const by__data_format_unit *unit, char **buffer, size_t *capacity,
                             by_error *error)
{
    int fd;
    uint64_t n = unit->end - unit->begin;
    if (n > SIZE_MAX) {
        return by_error_set(error, BY_EMEMORY, "%s: a run of %" PRIu64 " bytes", unit->file->path,
                            n);
    }
    BY_TRY(by__reserve((void **)buffer, capacity, (size_t)n, 1, error));
    BY_TRY(by__data_source_open_file(&fd, unit->file, error));
    by_status status = by__read_at(fd, unit->file->path, unit->begin, *buffer, (size_t)n, error);
    (void)close(fd);
    return status;
}

/* Prefixes an error in line `line` (from 1) of a unit of JSON lines with "FILE:LINE". */
static by_status line_error(const by__data_format_unit *unit, size_t line, by_status status,
                            by_error *error)
{
    int fd;
    char *block;
    uint64_t before = 0; /* lines before the unit: counted only for an error */
    if (by__data_source_open_file(&fd, unit->file, NULL) == BY_OK) {
        if (by__alloc((void **)&block, BLOCK, 1, "read buffer", NULL) == BY_OK) {
            for (uint64_t at = 0; at < unit->begin;) {
                size_t n = unit->begin - at < BLOCK ? (size_t)(unit->begin - at) : BLOCK;
                if (by__read_at(fd, unit->file->path, at, block, n, NULL) != BY_OK) {
                    break;
                }
                for (size_t i = 0; i < n; i++) {
                    before += block[i] == '\n' ? 1 : 0;
                }
                at += n;
            }
            free(block);
        }
        (void)close(fd);
    }
    return by_error_prefix(error, status, "%s:%" PRIu64, unit->file->path, before + line);
}

/* Leaves of a text the part that a unit has. */
static void cut_text(by_text *text, const by__data_format_unit *unit)
{
    uint64_t all = by__utf8_count(text->data, text->length);
    uint64_t kept = (uint64_t)floor((double)all * unit->share + 1e-9);
    size_t at = 0;
    for (uint64_t seen = 0; at < text->length; at++) {
        if ((signed char)text->data[at] >= -64 && seen++ == kept) {
            break;
        }
    }
    *text = unit->part == BY__UNIT_KEPT ? (by_text){text->data, at}
                                        : (by_text){text->data + at, text->length - at};
}

by_status by__data_unit_texts(const by__data_format_unit *unit, char *buffer,
                              const by__data_line_takers *to, by_error *error)
{
    by__format_json_lines reader = {
        .data = buffer, .length = (size_t)(unit->end - unit->begin), .field = unit->field};
    by_text text;
    bool found = true;
    by_status status = BY_OK;
    while (status == BY_OK && found) {
        by_error why = {0};
        status = by__format_json_lines_next(&reader, &text, &found, &why);
        if (status == BY_EFORMAT && to->skip != NULL) {
            found = true;
            status = to->skip(to->context, reader.lines, &why, error);
        } else if (status != BY_OK) {
            status = by_error_set(error, status, "%s", why.message);
        } else if (found) {
            if (unit->part != BY__UNIT_WHOLE) {
                cut_text(&text, unit);
            }
            status = to->take(to->context, &text, error);
        }
    }
    by__format_json_lines_close(&reader);
    return status == BY_OK ? BY_OK : line_error(unit, reader.lines, status, error);
}
