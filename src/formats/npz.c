#include "formats/npz.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/paths.h"
#include "base/wire/crc32.h"
#include "formats/gzip.h"
#include "formats/npy.h"

/* Bytes of the fixed parts of records. */
enum { END_BYTES = 22, LOCATOR_BYTES = 20, END64_BYTES = 56, ENTRY_BYTES = 46, LOCAL_BYTES = 30 };
#define COMMENT_LIMIT 65535u

static uint64_t number(const uint8_t *at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = bytes; i > 0; i--) {
        value = value << 8 | at[i - 1];
    }
    return value;
}

static bool begins(const uint8_t *at, const char *signature)
{
    return memcmp(at, signature, 4) == 0;
}

static by_status damaged(const char *file, const char *what, by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s: not an archive as numpy.savez writes it: %s", file,
                        what);
}

/* Where the directory begins, and its number of entries. */
typedef struct directory {
    uint64_t offset;
    uint64_t entries;
} directory;

static by_status find_directory(directory *out, const char *file, const uint8_t *data, size_t size,
                                by_error *error)
{
    size_t most = size < END_BYTES ? 0 : size - END_BYTES;
    size_t least = most > COMMENT_LIMIT ? most - COMMENT_LIMIT : 0;
    size_t end = most;
    while (size >= END_BYTES && end > least && !begins(data + end, "PK\5\6")) {
        end--;
    }
    if (size < END_BYTES || !begins(data + end, "PK\5\6")) {
        return damaged(file, "its end is missing, as of a file that is cut short", error);
    }
    *out = (directory){.offset = number(data + end + 16, 4), .entries = number(data + end + 10, 2)};
    if (out->offset == UINT32_MAX || out->entries == UINT16_MAX) {
        const uint8_t *locator = data + end - LOCATOR_BYTES;
        uint64_t at =
            end < LOCATOR_BYTES || !begins(locator, "PK\6\7") ? UINT64_MAX : number(locator + 8, 8);
        if (size < END64_BYTES || at > size - END64_BYTES || !begins(data + at, "PK\6\6")) {
            return damaged(file, "the end of a large archive is missing", error);
        }
        *out =
            (directory){.offset = number(data + at + 48, 8), .entries = number(data + at + 32, 8)};
    }
    return BY_OK;
}

/* Replaces the sizes and the place of an entry by those of its ZIP64 field, where they are all
 * ones. */
static void read_large(const uint8_t *extra, size_t length, uint64_t *size, uint64_t *packed,
                       uint64_t *place)
{
    uint64_t *fields[] = {size, packed, place};
    while (length >= 4) {
        size_t bytes = (size_t)number(extra + 2, 2);
        if (bytes > length - 4) {
            return;
        }
        const uint8_t *at = extra + 4;
        size_t left = number(extra, 2) == 1 ? bytes : 0;
        for (size_t i = 0; i < 3; i++) {
            if (*fields[i] == UINT32_MAX && left >= 8) {
                *fields[i] = number(at, 8);
                at += 8;
                left -= 8;
            }
        }
        extra += 4 + bytes;
        length -= 4 + bytes;
    }
}

/* The member that the entry at `entry` describes. */
static by_status read_member(by__format_npz_member *out, const char *file, const uint8_t *data,
                             size_t size, const uint8_t *entry, by_error *error)
{
    uint64_t method = number(entry + 10, 2);
    uint64_t packed = number(entry + 20, 4);
    uint64_t whole = number(entry + 24, 4);
    uint64_t place = number(entry + 42, 4);
    size_t name = (size_t)number(entry + 28, 2);
    read_large(entry + ENTRY_BYTES + name, (size_t)number(entry + 30, 2), &whole, &packed, &place);
    if ((entry[8] & 1) != 0 || (method != 0 && method != 8)) {
        return damaged(file, "a member is encrypted, or not packed by deflate", error);
    }
    if (size < LOCAL_BYTES || place > size - LOCAL_BYTES || !begins(data + place, "PK\3\4")) {
        return damaged(file, "a member is not where the directory says", error);
    }
    uint64_t begin =
        place + LOCAL_BYTES + number(data + place + 26, 2) + number(data + place + 28, 2);
    if (begin > size || packed > size - begin || (method == 0 && whole != packed)) {
        return damaged(file, "a member is longer than the file", error);
    }
    *out = (by__format_npz_member){.data = data + begin,
                                   .packed = (size_t)packed,
                                   .size = (size_t)whole,
                                   .deflated = method == 8,
                                   .crc = (uint32_t)number(entry + 16, 4)};
    return BY_OK;
}

/* The next entry of the directory; *at moves behind it. */
static by_status next_entry(const uint8_t **entry, size_t *name, uint64_t *at, const char *file,
                            const uint8_t *data, size_t size, by_error *error)
{
    if (size < ENTRY_BYTES || *at > size - ENTRY_BYTES || !begins(data + *at, "PK\1\2")) {
        return damaged(file, "its directory is cut short", error);
    }
    *entry = data + *at;
    *name = (size_t)number(*entry + 28, 2);
    uint64_t bytes = ENTRY_BYTES + *name + number(*entry + 30, 2) + number(*entry + 32, 2);
    if (bytes > size - *at) {
        return damaged(file, "its directory is cut short", error);
    }
    *at += bytes;
    return BY_OK;
}

by_status by__format_npz_find(by__format_npz_member *out, bool *found, const char *file,
                              const uint8_t *data, size_t size, const char *name, by_error *error)
{
    directory d;
    size_t length = strlen(name);
    *found = false;
    BY_TRY(find_directory(&d, file, data, size, error));
    uint64_t at = d.offset;
    for (uint64_t i = 0; i < d.entries; i++) {
        const uint8_t *entry;
        size_t named;
        BY_TRY(next_entry(&entry, &named, &at, file, data, size, error));
        const char *is = (const char *)entry + ENTRY_BYTES;
        if (named == length + 4 && memcmp(is, name, length) == 0 &&
            memcmp(is + length, ".npy", 4) == 0) {
            *found = true;
            return read_member(out, file, data, size, entry, error);
        }
    }
    return BY_OK;
}

void by__format_npz_names(char *out, size_t room, const uint8_t *data, size_t size)
{
    directory d;
    size_t used = 0;
    out[0] = '\0';
    if (find_directory(&d, "", data, size, NULL) != BY_OK) {
        return;
    }
    uint64_t at = d.offset;
    for (uint64_t i = 0; i < d.entries; i++) {
        const uint8_t *entry;
        size_t named;
        if (next_entry(&entry, &named, &at, "", data, size, NULL) != BY_OK ||
            named + 3 > room - used) {
            return;
        }
        if (named > 4 && memcmp(entry + ENTRY_BYTES + named - 4, ".npy", 4) == 0) {
            used += (size_t)snprintf(out + used, room - used, "%s%.*s", used > 0 ? ", " : "",
                                     (int)named - 4, (const char *)entry + ENTRY_BYTES);
        }
    }
}

/* Memory for the member, which holds it if it is deflated. */
static by_status unpack(uint8_t **memory, const by__format_npz_member *member, const char *file,
                        by_error *error)
{
    if (!member->deflated) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)memory, member->size + 1, 1, "an array", error));
    return by__format_gzip_inflate_raw(*memory, member->size, file, member->data, member->packed,
                                       error);
}

/* The checksum of parts below 4 GiB. */
static uint32_t checksum(const uint8_t *data, size_t size)
{
    uint32_t crc = 0;
    for (size_t at = 0; at < size;) {
        size_t part = size - at < (size_t)1 << 30 ? size - at : (size_t)1 << 30;
        crc = by__crc32(crc, data + at, part);
        at += part;
    }
    return crc;
}

/* The npy file that a member is: in the archive, or in *memory. */
static by_status read_bytes(const uint8_t **bytes, size_t *length, uint8_t **memory,
                            const char *file, const uint8_t *data, size_t size, const char *name,
                            size_t max, by_error *error)
{
    by__format_npz_member member;
    bool found;
    char label[256];
    char names[256];
    uint8_t *own = NULL;
    (void)snprintf(label, sizeof label, "%s: %s", file, name);
    BY_TRY(by__format_npz_find(&member, &found, file, data, size, name, error));
    if (!found) {
        by__format_npz_names(names, sizeof names, data, size);
        return by_error_set(error, BY_EFORMAT, "%s: the archive has no array '%s'%s%s", file, name,
                            names[0] != '\0' ? "; it has " : "", names);
    }
    if (member.size > max) {
        return by_error_set(error, BY_EFORMAT, "%s has %zu bytes; at most %zu are read", label,
                            member.size, max);
    }
    by_status status = unpack(&own, &member, label, error);
    *bytes = own == NULL ? member.data : own;
    *length = member.size;
    if (status == BY_OK && by__crc32_library() != NULL &&
        checksum(*bytes, member.size) != member.crc) {
        status = by_error_set(error, BY_EFORMAT, "%s: the checksum is wrong", label);
    }
    if (status != BY_OK) {
        free(own);
        return status;
    }
    *memory = own;
    return BY_OK;
}

by_status by__format_npz_read(by__format_array_view *out, uint8_t **memory, const char *file,
                              const uint8_t *data, size_t size, const char *name, size_t max,
                              by_error *error)
{
    const uint8_t *bytes;
    size_t length;
    char label[256];
    (void)snprintf(label, sizeof label, "%s: %s", file, name);
    BY_TRY(read_bytes(&bytes, &length, memory, file, data, size, name, max, error));
    by_status status = by__format_npy_parse_array(out, label, bytes, length, error);
    if (status != BY_OK) {
        free(*memory);
        *memory = NULL;
    }
    return status;
}

/* ---- files ---- */

static bool is_directory(const char *path, size_t length)
{
    char name[4096];
    struct stat info;
    (void)snprintf(name, sizeof name, "%.*s", (int)length, path);
    return length < sizeof name && stat(name, &info) == 0 && S_ISDIR(info.st_mode);
}

size_t by__format_npz_split(const char *path)
{
    static const char suffix[] = ".npz/";
    const char *at = strstr(path, suffix);
    while (at != NULL && is_directory(path, (size_t)(at - path) + sizeof suffix - 2)) {
        at = strstr(at + 1, suffix);
    }
    return at == NULL || at[sizeof suffix - 1] == '\0' ? 0
                                                       : (size_t)(at - path) + sizeof suffix - 2;
}

by_status by__format_npz_file_read(uint8_t **out, size_t *size, const char *file, const char *name,
                                   size_t max, by_error *error)
{
    by__map map;
    const uint8_t *bytes = NULL;
    uint8_t *memory = NULL;
    size_t length = strlen(name);
    length -= by__ends_with(name, ".npy") ? 4 : 0;
    char *plain = by__strndup(name, length);
    if (plain == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a name");
    }
    by_status status = by__map_open(&map, file, error);
    if (status == BY_OK) {
        status = read_bytes(&bytes, size, &memory, file, (const uint8_t *)map.data, map.size, plain,
                            max, error);
        if (status == BY_OK && memory == NULL) {
            status = by__alloc((void **)&memory, *size + 1, 1, "an array", error);
            if (status == BY_OK) {
                memcpy(memory, bytes, *size);
            }
        }
        by__map_close(&map);
    }
    free(plain);
    *out = memory;
    return status;
}
