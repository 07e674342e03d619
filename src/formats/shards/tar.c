/* WebDataset: tar archives whose members with one key, the path up to the first dot of its last
 * part, are a sample; what follows the dot is the field (jpg, png, webp, cls, json). Read are the
 * formats ustar, pax (POSIX.1-2001) and GNU's. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "formats/shards/shard_file.h"

enum { BLOCK = 512, NAME = 100, PREFIX = 155, NAME_LIMIT = 4096 };

/* Places in a header. */
enum {
    AT_SIZE = 124,
    AT_SUM = 148,
    AT_TYPE = 156,
    AT_MAGIC = 257,
    AT_PREFIX = 345,
    AT_GNU_MORE = 482, /* of a sparse member: blocks that describe it follow the header */
    AT_BLOCK_MORE = 504,
};

#define JSON_LIMIT ((size_t)1 << 20)
/* A member with the names of the classes. */
#define CLASSES "__classes.json"

typedef struct tar_reader {
    const by__format_shard *shard;
    size_t at;
    char name[NAME_LIMIT]; /* of the next member, as said by headers before its own; "": not said */
    uint64_t size;         /* likewise */
    bool has_size;
    bool is_sparse;       /* likewise */
    char key[NAME_LIMIT]; /* of the sample that is put together */
    by__format_shard_sample sample;
    json_t *json; /* in which its label is */
    bool has_sample;
    bool begun; /* a sample has been found, or names of classes */
} tar_reader;

static const char *const images[] = {"jpg", "jpeg", "png", "webp", NULL};
static const char *const labels[] = {"cls", "json", NULL};

static by_status refuse(const tar_reader *t, size_t at, const char *what, by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s: the tar archive is damaged at byte %zu: %s",
                        t->shard->path, at, what);
}

/* ---- headers ---- */

/* Octal digits, or with the upper bit set a binary number, as GNU's tar writes large ones. */
static bool parse_number(uint64_t *out, const uint8_t *text, size_t length)
{
    uint64_t value = 0;
    size_t i = 0;
    if (text[0] == 0x80) {
        for (i = 1; i < length; i++) {
            if (value >> 55 != 0) {
                return false;
            }
            value = value << 8 | text[i];
        }
        *out = value;
        return true;
    }
    while (i < length && text[i] == ' ') {
        i++;
    }
    for (; i < length && text[i] >= '0' && text[i] <= '7'; i++) {
        value = value << 3 | (uint64_t)(text[i] - '0');
    }
    *out = value;
    return i == length || text[i] == '\0' || text[i] == ' ';
}

/* The sum of a header's bytes, its own counted as blanks. */
static bool has_right_sum(const uint8_t *header)
{
    uint64_t sum = 0;
    uint64_t expected;
    for (size_t i = 0; i < BLOCK; i++) {
        sum += i >= AT_SUM && i < AT_SUM + 8 ? ' ' : header[i];
    }
    return parse_number(&expected, header + AT_SUM, 8) && sum == expected;
}

static bool is_zero(const uint8_t *header)
{
    for (size_t i = 0; i < BLOCK; i++) {
        if (header[i] != 0) {
            return false;
        }
    }
    return true;
}

static bool is_tar(const char *path, const uint8_t *data, size_t size)
{
    size_t length = strlen(path);
    bool named = length > 4 && strcasecmp(path + length - 4, ".tar") == 0;
    return size >= BLOCK && (has_right_sum(data) || (named && is_zero(data)));
}

/* The name in a header. */
static void read_name(char out[NAME_LIMIT], const uint8_t *header)
{
    size_t name = strnlen((const char *)header, NAME);
    size_t prefix = memcmp(header + AT_MAGIC, "ustar", 6) == 0
                        ? strnlen((const char *)header + AT_PREFIX, PREFIX)
                        : 0;
    memcpy(out, header + AT_PREFIX, prefix);
    if (prefix > 0) {
        out[prefix++] = '/';
    }
    memcpy(out + prefix, header, name);
    out[prefix + name] = '\0';
}

/* The records "LENGTH KEY=VALUE\n" of a pax header. */
static by_status read_pax(tar_reader *t, const uint8_t *data, size_t size, by_error *error)
{
    size_t at = 0;
    while (at < size && data[at] != '\0') {
        size_t length = 0;
        size_t digits = at;
        for (; digits < size && data[digits] >= '0' && data[digits] <= '9' && length < size;
             digits++) {
            length = length * 10 + (size_t)(data[digits] - '0');
        }
        if (length > size - at || digits == size || data[digits] != ' ' ||
            length <= digits - at + 1 || data[at + length - 1] != '\n') {
            return refuse(t, t->at, "a pax header", error);
        }
        const char *key = (const char *)data + digits + 1;
        size_t rest = length - (digits - at) - 2; /* without blank and end of line */
        const char *equals = memchr(key, '=', rest);
        if (equals == NULL) {
            return refuse(t, t->at, "a pax header", error);
        }
        size_t value = rest - (size_t)(equals - key) - 1;
        size_t length_of_key = (size_t)(equals - key);
        t->is_sparse = t->is_sparse || (length_of_key > 11 && memcmp(key, "GNU.sparse.", 11) == 0);
        if ((length_of_key == 4 && memcmp(key, "path", 4) == 0) ||
            (length_of_key == 15 && memcmp(key, "GNU.sparse.name", 15) == 0)) {
            if (value >= NAME_LIMIT || memchr(equals + 1, '\0', value) != NULL) {
                return refuse(t, t->at, "a name of over 4,095 bytes", error);
            }
            memcpy(t->name, equals + 1, value);
            t->name[value] = '\0';
        } else if (length_of_key == 4 && memcmp(key, "size", 4) == 0) {
            uint64_t bytes = 0;
            for (size_t i = 0; i < value && bytes < UINT64_MAX / 100; i++) {
                bytes = bytes * 10 + (uint64_t)(equals[1 + i] - '0');
            }
            t->size = bytes;
            t->has_size = true;
        }
        at += length;
    }
    return BY_OK;
}

/* ---- samples ---- */

static by_status finish(tar_reader *t, by_error *error)
{
    by__format_shard_sample *s = &t->sample;
    if (!t->has_sample) {
        return BY_OK;
    }
    t->has_sample = false;
    s->key = t->key;
    s->key_size = strlen(t->key);
    if (s->problem == NULL) {
        s->problem = by__format_shard_lacks_image(
            s,
            "the sample has no picture (.jpg, .jpeg, .png, .webp); its files follow each other in "
            "the archive");
    }
    by_status status = t->shard->take(t->shard->user, s, error);
    json_decref(t->json);
    t->json = NULL;
    return status;
}

/* A label in a JSON object, {"label": 3}: that member, or "cls", or both if they agree. */
static void take_json(tar_reader *t, const char *field, size_t rank, const uint8_t *data,
                      size_t size)
{
    static const char *const members[] = {"label", "cls"};
    if (t->json != NULL) { /* in which the label is */
        t->sample.problem = t->sample.problem == NULL ? "it has two json" : t->sample.problem;
        return;
    }
    json_t *root = size > JSON_LIMIT ? NULL : by_json_load((const char *)data, size, 0, NULL);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(members); i++) {
        char name[BY__SHARD_FIELD];
        const json_t *label = json_object_get(root, members[i]);
        (void)snprintf(name, sizeof name, "%.20s (%s)", field, members[i]);
        if (json_is_integer(label)) {
            by__format_shard_set_number(&t->sample, name, strlen(name), rank,
                                        json_integer_value(label));
        } else if (json_is_string(label)) {
            by__format_shard_set_label(&t->sample, name, strlen(name), rank,
                                       json_string_value(label), json_string_length(label));
        }
    }
    if (root == NULL && t->sample.problem == NULL) {
        t->sample.problem = "its json is damaged";
    }
    t->json = root;
}

/* What a member that is no plain file is; NULL: it is one. */
static const char *other_than_file(const tar_reader *t, char type)
{
    return type == '1' || type == '2'
               ? "is a link: store the files themselves (tar --dereference --hard-dereference)"
           : t->is_sparse || type == 'S' ? "is stored sparsely: write the archive without --sparse"
                                         : NULL;
}

static void take_field(tar_reader *t, const char *field, char type, size_t begin, size_t size)
{
    const by__format_shard *shard = t->shard;
    by__format_shard_sample *s = &t->sample;
    const uint8_t *data = shard->data + begin;
    size_t length = strlen(field);
    size_t image = by__format_shard_rank(shard->image_field, images, field, length);
    size_t label = by__format_shard_rank(shard->label_field, labels, field, length);
    const char *other = other_than_file(t, type);
    if (image == SIZE_MAX && label == SIZE_MAX) {
        return;
    }
    if (other != NULL) {
        if (s->problem == NULL) {
            (void)snprintf(s->text, sizeof s->text, "its %.20s %s", field, other);
            s->problem = s->text;
        }
    } else if (image != SIZE_MAX) {
        by__format_shard_set_image(s, field, length, begin, size);
    } else if (strcmp(field, "json") == 0) {
        take_json(t, field, label, data, size);
    } else {
        by__format_shard_set_label(s, field, length, label, (const char *)data, size);
    }
}

/* Takes the names of classes, {"names": ["ant", "bee"]}, which are in front of all samples. */
static by_status take_classes(const tar_reader *t, const uint8_t *data, size_t size,
                              by_error *error)
{
    by_string names = {0};
    json_t *root = size > JSON_LIMIT ? NULL : by_json_load((const char *)data, size, 0, NULL);
    const json_t *list = json_object_get(root, "names");
    bool good = json_array_size(list) > 0;
    for (size_t i = 0; i < json_array_size(list) && good; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        good = name != NULL && name[0] != '\0';
        if (good) {
            by_string_add(&names, name, strlen(name) + 1);
        }
    }
    /* Of another form, it is somebody else's. */
    by_status status = !good ? BY_OK
                       : names.failed
                           ? by_error_set(error, BY_EMEMORY, "out of memory: classes")
                           : t->shard->classes(t->shard->user, names.data, names.length, error);
    json_decref(root);
    by_string_free(&names);
    return status;
}

/* Takes a member: a field of the sample of its key. */
static by_status take_member(tar_reader *t, char *name, char type, size_t begin, size_t size,
                             by_error *error)
{
    char *base = strrchr(name, '/');
    base = base == NULL ? name : base + 1;
    char *dot = strchr(base, '.');
    if (strcmp(name, CLASSES) == 0 && t->shard->classes != NULL && !t->begun) {
        t->begun = true;
        return take_classes(t, t->shard->data + begin, size, error);
    }
    if (dot == NULL || dot == base || strncmp(base, "__", 2) == 0) {
        return BY_OK; /* no sample, or what WebDataset says of the shard */
    }
    *dot = '\0';
    if (t->has_sample && strcmp(name, t->key) != 0) {
        BY_TRY(finish(t, error));
    }
    if (!t->has_sample) {
        memcpy(t->key, name, strlen(name) + 1);
        t->sample = (by__format_shard_sample){.begin = t->at};
        t->has_sample = true;
        t->begun = true;
    }
    for (char *c = dot + 1; *c != '\0'; c++) {
        *c = *c >= 'A' && *c <= 'Z' ? (char)(*c - 'A' + 'a') : *c;
    }
    take_field(t, dot + 1, type, begin, size);
    return BY_OK;
}

/* The end of a member's header: GNU's sparse ones go on in blocks of their own. */
static size_t header_end(const tar_reader *t, char type)
{
    const by__format_shard *shard = t->shard;
    size_t at = t->at + BLOCK;
    bool more = type == 'S' && shard->data[t->at + AT_GNU_MORE] != 0;
    while (more && shard->size - at >= BLOCK) {
        more = shard->data[at + AT_BLOCK_MORE] != 0;
        at += BLOCK;
    }
    return at;
}

/* Takes what a header at t->at describes, and moves behind it. */
static by_status read_entry(tar_reader *t, by_error *error)
{
    const by__format_shard *shard = t->shard;
    const uint8_t *header = shard->data + t->at;
    uint64_t size;
    char name[NAME_LIMIT];
    if (!has_right_sum(header) || !parse_number(&size, header + AT_SIZE, 12)) {
        return refuse(t, t->at, "the checksum of a header is wrong", error);
    }
    char type = (char)header[AT_TYPE];
    bool describes = type == 'x' || type == 'g' || type == 'L' || type == 'K';
    bool is_link = type == '1' || type == '2'; /* nothing of it follows, whatever its size says */
    size = is_link ? 0 : t->has_size && !describes ? t->size : size;
    size_t begin = header_end(t, type);
    if (size > shard->size - begin) {
        return refuse(t, t->at, "it ends within a member", error);
    }
    by_status status = BY_OK;
    if (type == 'x') {
        status = read_pax(t, shard->data + begin, (size_t)size, error);
    } else if (type == 'L') {
        if (size == 0 || size >= NAME_LIMIT) {
            return refuse(t, t->at, "a name of over 4,095 bytes", error);
        }
        memcpy(t->name, shard->data + begin, (size_t)size);
        t->name[size] = '\0';
    } else if (!describes) {
        if (t->name[0] != '\0') {
            memcpy(name, t->name, strlen(t->name) + 1);
        } else {
            read_name(name, header);
        }
        t->name[0] = '\0';
        t->has_size = false;
        if (type == '0' || type == '\0' || type == '7' || type == 'S' || is_link) {
            status = take_member(t, name, type, begin, (size_t)size, error);
        }
        t->is_sparse = false;
    }
    size_t padded = by__round_up((size_t)size, BLOCK);
    t->at = padded > shard->size - begin ? shard->size : begin + padded;
    return status;
}

/* A block of zeros is the end only if nothing follows it: a hole that a disk left is none, and what
 * stands behind it would be lost. */
static by_status check_end(const tar_reader *t, by_error *error)
{
    for (size_t i = t->at; i < t->shard->size; i++) {
        if (t->shard->data[i] != 0) {
            return refuse(t, t->at,
                          "it has an end mark, but goes on behind it: a part is lost, or several "
                          "archives are one file",
                          error);
        }
    }
    return BY_OK;
}

static by_status read_tar(const by__format_shard *shard, by_error *error)
{
    tar_reader *t;
    by_status status = BY_OK;
    bool ended = false;
    BY_TRY(by__alloc((void **)&t, 1, sizeof *t, "a tar archive", error));
    t->shard = shard;
    while (status == BY_OK && !ended && shard->size - t->at >= BLOCK) {
        ended = is_zero(shard->data + t->at);
        status = ended ? BY_OK : read_entry(t, error);
    }
    if (status == BY_OK && !ended) {
        status = refuse(t, t->at, "it has no end mark: it was not written to its end", error);
    }
    if (status == BY_OK) {
        status = check_end(t, error);
    }
    if (status == BY_OK) {
        status = finish(t, error);
    }
    json_decref(t->json);
    free(t);
    return status;
}

const by__format_shard_row by__format_shard_tar = {
    .name = "a WebDataset archive (tar)",
    .labels = "a file cls or json, as banyan pack --images FOLDER writes them, and the files of a "
              "sample follow each other (tar --sort=name)",
    .is = is_tar,
    .read = read_tar};
