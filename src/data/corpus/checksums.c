/* Verifies the checksums of a packed directory once; later openings rely on the identity of its
 * files.
 *
 * DIR/.verified is written if everything is valid, or if damage is skipped. It contains the
 * manifest's checksums with device, inode, size and ctime of each file; if it differs by a single
 * byte from what this program would write now, everything is read again. A line for each damaged
 * part follows:
 *
 *     damaged SHARD PLACE BEGIN COUNT REASON */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "banyan/tokenizer.h"
#include "base/host/file_stamp.h"
#include "base/paths.h"
#include "data/corpus/dataset_files.h"

#define STAMP_FILE ".verified"
#define MAX_STAMP  ((size_t)1 << 26)

static by_status add_file(by_string *text, const char *directory, const char *file,
                          const char *hash, by_error *error)
{
    char stamp[BY__FILE_STAMP_SIZE];
    char *path;
    BY_TRY(by__path_make(&path, directory, file, error));
    by_status status = BY_OK;
    if (by__file_stamp(stamp, NULL, path)) {
        by_string_format(text, "%s %s %s\n", hash, file, stamp);
    } else {
        status = by__io_error(error, "open", path);
    }
    free(path);
    return status;
}

/* Makes the current stamp of the directory. */
static by_status make_stamp(char **out, const by__data_token_manifest *m, const char *directory,
                            by_error *error)
{
    by_string text = {0};
    by__string_append(&text, "banyan-verified 2\n");
    by_status status = add_file(&text, directory, m->tokenizer_file, m->tokenizer_hash, error);
    if (status == BY_OK) {
        status = add_file(&text, directory, m->offsets_file, m->offsets_hash, error);
    }
    for (size_t i = 0; i < m->shard_count && status == BY_OK; i++) {
        status = add_file(&text, directory, m->shards[i].file, m->shards[i].hash, error);
    }
    if (status != BY_OK) {
        by_string_free(&text);
        return status;
    }
    return by__string_release(&text, out, error);
}

/* The directory's stamp, NUL-terminated, if it matches `stamp`; the damage starts at *rest. NULL:
 * it does not match. Freed with free(). */
static char *read_stamp(const char *path, const char *stamp, const char **rest)
{
    char *found = NULL;
    size_t length = 0;
    size_t own = strlen(stamp);
    if (by__file_read(&found, &length, path, MAX_STAMP, NULL) != BY_OK) {
        return NULL;
    }
    if (length < own || memcmp(found, stamp, own) != 0 || strlen(found) != length) {
        free(found);
        return NULL;
    }
    *rest = found + own;
    return found;
}

static bool is_stamped(const char *path, const char *stamp, bool skip)
{
    const char *rest;
    char *found = read_stamp(path, stamp, &rest);
    bool is = found != NULL && (skip || rest[0] == '\0');
    free(found);
    return is;
}

/* ---- damage in the stamp ---- */

static void print_damage(by_string *text, const by_dataset *d)
{
    size_t count;
    size_t shard = 0;
    const by_damage *items = by_dataset_damage(d, &count);
    for (size_t i = 0; i < count; i++) {
        while (items[i].begin >= d->shards[shard].first + d->shards[shard].count) {
            shard++;
        }
        by_string_format(text, "damaged %zu %" PRIu64 " %" PRIu64 " %" PRIu64 " ", shard,
                         items[i].place, items[i].begin, items[i].count);
        for (const char *c = items[i].reason; *c != '\0'; c++) {
            by_string_add(text, *c == '\n' ? " " : c, 1);
        }
        by__string_append(text, "\n");
    }
}

/* Parses one line, which ends with NUL. Returns false if it is malformed. */
static bool parse_damage(const by_dataset *d, const char *line, by_damage *out)
{
    unsigned long long numbers[4];
    char *end;
    if (strncmp(line, "damaged ", 8) != 0) {
        return false;
    }
    line += 8;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(numbers); i++) {
        if (*line < '0' || *line > '9') {
            return false;
        }
        numbers[i] = strtoull(line, &end, 10);
        if (*end != ' ') {
            return false;
        }
        line = end + 1;
    }
    *out =
        (by_damage){.place = numbers[1], .begin = numbers[2], .count = numbers[3], .reason = line};
    if (numbers[0] >= d->manifest.shard_count) {
        return false;
    }
    const by__data_token_file *s = &d->shards[numbers[0]];
    out->path = s->path;
    return out->count > 0 && out->begin >= s->first && out->count <= s->count &&
           out->begin - s->first <= s->count - out->count;
}

static by_status parse_all(by_dataset *d, char *text, bool *known, by_error *error)
{
    uint64_t end = 0;
    *known = true;
    while (*known && *text != '\0') {
        by_damage item;
        char *line = text;
        text = strchr(line, '\n');
        *known = text != NULL;
        if (*known) {
            *text++ = '\0';
            *known = parse_damage(d, line, &item) && item.begin >= end;
        }
        if (*known) {
            BY_TRY(by__loader_damage_add(&d->damage, &item, error));
            end = item.begin + item.count;
        }
    }
    if (!*known) {
        by__loader_damage_free(&d->damage);
    }
    return BY_OK;
}

by_status by__data_stamp_read(by_dataset *d, bool *known, by_error *error)
{
    char *stamp = NULL;
    const char *rest = NULL;
    *known = false;
    char *path;
    BY_TRY(by__path_make(&path, d->directory, STAMP_FILE, error));
    by_status status = BY_OK;
    if (make_stamp(&stamp, &d->manifest, d->directory, NULL) == BY_OK) {
        char *found = read_stamp(path, stamp, &rest);
        if (found != NULL) {
            status = parse_all(d, found + (rest - found), known, error);
            free(found);
        }
        free(stamp);
    }
    free(path);
    return status;
}

void by__data_stamp_drop(const by_dataset *d)
{
    char *path = by__path_join(d->directory, STAMP_FILE);
    if (path != NULL) {
        (void)unlink(path);
    }
    free(path);
}

/* ---- verification ---- */

static by_status check_tokenizer(const by__data_token_manifest *m, const char *directory,
                                 by_error *error)
{
    by_tokenizer *tokenizer;
    char *path;
    BY_TRY(by__path_make(&path, directory, m->tokenizer_file, error));
    by_status status = by_tokenizer_open(&tokenizer, path, error);
    if (status == BY_OK) {
        if (strcmp(by_tokenizer_hash(tokenizer), m->tokenizer_hash) != 0) {
            status = by_error_set(error, BY_EFORMAT,
                                  "%s: damaged: it has hash %s, but the manifest says that %s made "
                                  "the tokens; pack the data again",
                                  path, by_tokenizer_hash(tokenizer), m->tokenizer_hash);
        }
        by_tokenizer_close(&tokenizer);
    }
    free(path);
    return status;
}

/* *damage: lines for the stamp. */
static by_status check_all(const by__data_token_manifest *m, const char *directory,
                           const by_data_verify_options *o, by_string *damage, by_error *error)
{
    by_dataset *dataset;
    const by_dataset_options options = {
        .verify = true, .skip = o->skip, .progress = o->progress, .user = o->user};
    BY_TRY(check_tokenizer(m, directory, error));
    BY_TRY(by_dataset_open(&dataset, directory, &options, error));
    print_damage(damage, dataset);
    by_dataset_close(&dataset);
    return BY_OK;
}

/* Writes the stamp if the files have not changed during verification. If it cannot be written,
 * everything is verified again next time. */
static void write_stamp(const char *path, const char *before, const by__data_token_manifest *m,
                        const char *directory, by_string *damage)
{
    char *after = NULL;
    char *lines = NULL;
    if (make_stamp(&after, m, directory, NULL) == BY_OK && strcmp(before, after) == 0) {
        by_string text = {0};
        by__string_append(&text, after);
        by_string_add(&text, damage->data, damage->length);
        if (by__string_release(&text, &lines, NULL) == BY_OK && !damage->failed) {
            (void)by__file_write(path, lines, strlen(lines), NULL);
        }
        free(lines);
    }
    free(after);
}

by_status by_data_verify(const char *directory, const by_data_verify_options *options,
                         by_error *error)
{
    const by_data_verify_options none = {0};
    const by_data_verify_options *o = options == NULL ? &none : options;
    by__data_token_manifest manifest;
    by_string damage = {0};
    char *stamp = NULL;
    BY_TRY(by__data_token_manifest_read(&manifest, directory, error));
    char *path = by__path_join(directory, STAMP_FILE);
    by_status status =
        path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path") : BY_OK;
    if (status == BY_OK) {
        status = make_stamp(&stamp, &manifest, directory, o->skip ? NULL : error);
        status = o->skip ? BY_OK : status; /* a shard may be missing */
    }
    if (status == BY_OK && (o->always || stamp == NULL || !is_stamped(path, stamp, o->skip))) {
        status = check_all(&manifest, directory, o, &damage, error);
        if (status == BY_OK && stamp != NULL) {
            write_stamp(path, stamp, &manifest, directory, &damage);
        }
    }
    by_string_free(&damage);
    free(stamp);
    free(path);
    by__data_token_manifest_free(&manifest);
    return status;
}
