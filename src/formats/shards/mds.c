/* MDS shards, as StreamingDataset writes them: the number of samples, their offsets, a JSON
 * description of the columns, and the samples: the sizes of the variable columns, then all columns.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "formats/shards/shard_file.h"

#define MAX_COLUMNS 256

typedef enum mds_kind { MDS_OTHER, MDS_PICTURE, MDS_TEXT, MDS_NUMBER } mds_kind;

/* A column as it is stored. */
typedef struct mds_column {
    const char *name;
    size_t size; /* 0: each sample has its own */
    mds_kind kind;
    size_t image_rank;
    size_t label_rank;
    bool is_signed;
} mds_column;

static const char *const images[] = {"image", "img", "jpg", "jpeg", "png", "webp", "x", NULL};
static const char *const labels[] = {"label", "class", "cls", "y", NULL};

static uint32_t u32_at(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static bool is_mds(const char *path, const uint8_t *data, size_t size)
{
    size_t length = strlen(path);
    BY_UNUSED(data);
    return size >= 8 && length > 4 && strcasecmp(path + length - 4, ".mds") == 0;
}

static by_status refuse(const by__format_shard *shard, const char *what, by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s: the MDS shard is damaged: %s", shard->path, what);
}

static mds_kind kind_of(const char *encoding, bool *is_signed)
{
    static const char *const pictures[] = {"jpeg", "png", "bytes"};
    *is_signed = strncmp(encoding, "int", 3) == 0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(pictures); i++) {
        if (strcmp(encoding, pictures[i]) == 0) {
            return MDS_PICTURE;
        }
    }
    return *is_signed || strncmp(encoding, "uint", 4) == 0 ? MDS_NUMBER
           : strcmp(encoding, "str") == 0                  ? MDS_TEXT
                                                           : MDS_OTHER;
}

static by_status read_columns(mds_column *out, size_t *count, const by__format_shard *shard,
                              const json_t *root, by_error *error)
{
    const json_t *names = json_object_get(root, "column_names");
    const json_t *encodings = json_object_get(root, "column_encodings");
    const json_t *sizes = json_object_get(root, "column_sizes");
    *count = json_array_size(names);
    if (*count == 0 || *count > MAX_COLUMNS || json_array_size(encodings) != *count ||
        json_array_size(sizes) != *count) {
        return refuse(shard, "its columns are not described", error);
    }
    for (size_t i = 0; i < *count; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        const char *encoding = json_string_value(json_array_get(encodings, i));
        const json_t *size = json_array_get(sizes, i);
        json_int_t bytes = json_integer_value(size);
        if (name == NULL || encoding == NULL || bytes < 0 || bytes > UINT32_MAX ||
            (!json_is_null(size) && bytes == 0)) {
            return refuse(shard, "its columns are not described", error);
        }
        mds_column *c = &out[i];
        *c = (mds_column){.name = name, .size = (size_t)bytes};
        c->kind = kind_of(encoding, &c->is_signed);
        c->image_rank = by__format_shard_rank(shard->image_field, images, name, strlen(name));
        c->label_rank = by__format_shard_rank(shard->label_field, labels, name, strlen(name));
    }
    return BY_OK;
}

static int64_t number_at(const uint8_t *at, size_t size, bool is_signed)
{
    uint64_t out = 0;
    for (size_t i = size; i-- > 0;) {
        out = out << 8 | at[i];
    }
    if (is_signed && size > 0 && size < 8 && at[size - 1] >> 7 != 0) {
        out |= UINT64_MAX << (8 * size);
    }
    if (out > INT64_MAX && !is_signed) {
        return INT64_MAX; /* too large for any class, as it is */
    }
    int64_t number;
    memcpy(&number, &out, sizeof number);
    return number;
}

/* Takes the sample in [begin, end). */
static by_status take_sample(const by__format_shard *shard, const mds_column *columns, size_t count,
                             size_t begin, size_t end, by__format_shard_sample *s, by_error *error)
{
    size_t variable = 0;
    for (size_t i = 0; i < count; i++) {
        variable += columns[i].size == 0;
    }
    if (end - begin < 4 * variable) {
        s->problem = "the sample is too short for its columns";
    }
    const uint8_t *sizes = shard->data + begin;
    size_t at = begin + 4 * variable;
    for (size_t i = 0; i < count && s->problem == NULL; i++) {
        const mds_column *c = &columns[i];
        size_t size = c->size;
        if (size == 0) {
            size = u32_at(sizes);
            sizes += 4;
        }
        if (size > end - at) {
            s->problem = "the sample is too short for its columns";
            break;
        }
        size_t length = strlen(c->name);
        if (c->kind == MDS_PICTURE && c->image_rank != SIZE_MAX) {
            by__format_shard_set_image(s, c->name, length, at, size);
        } else if (c->kind == MDS_TEXT && c->label_rank != SIZE_MAX) {
            by__format_shard_set_label(s, c->name, length, c->label_rank,
                                       (const char *)shard->data + at, size);
        } else if (c->kind == MDS_NUMBER && c->label_rank != SIZE_MAX && size <= 8) {
            by__format_shard_set_number(s, c->name, length, c->label_rank,
                                        number_at(shard->data + at, size, c->is_signed));
        }
        at += size;
    }
    if (s->problem == NULL) {
        s->problem = at != end ? "the sample is longer than its columns"
                               : by__format_shard_lacks_image(
                                     s, "the sample has no picture: that is a column image, img, "
                                        "jpg, jpeg, png, webp or x");
    }
    return shard->take(shard->user, s, error);
}

static by_status take_all(const by__format_shard *shard, const mds_column *columns, size_t count,
                          by_error *error)
{
    size_t samples = u32_at(shard->data);
    for (size_t i = 0; i < samples; i++) {
        char key[24];
        size_t begin = u32_at(shard->data + 4 + 4 * i);
        size_t end = u32_at(shard->data + 8 + 4 * i);
        (void)snprintf(key, sizeof key, "%zu", i);
        by__format_shard_sample s = {.key = key, .key_size = strlen(key), .begin = begin};
        if (begin > end || end > shard->size) {
            return refuse(shard, "it ends within a sample, or its offsets do not ascend", error);
        }
        BY_TRY(take_sample(shard, columns, count, begin, end, &s, error));
    }
    return BY_OK;
}

static by_status read_mds(const by__format_shard *shard, by_error *error)
{
    mds_column columns[MAX_COLUMNS];
    size_t count;
    size_t samples = u32_at(shard->data);
    if (shard->size / 4 < 2 || samples > shard->size / 4 - 2) {
        return refuse(shard, "it ends within its offsets", error);
    }
    size_t config = 8 + 4 * samples;
    size_t first = u32_at(shard->data + 4);
    if (first < config || first > shard->size) {
        return refuse(shard, "its offsets", error);
    }
    json_t *root = by_json_load((const char *)shard->data + config, first - config, 0, NULL);
    by_status status = read_columns(columns, &count, shard, root, error);
    if (status == BY_OK) {
        status = take_all(shard, columns, count, error);
    }
    json_decref(root);
    return status;
}

const by__format_shard_row by__format_shard_mds = {
    .name = "an MDS shard",
    .labels = "a column label, class, cls or y of integers or texts",
    .is = is_mds,
    .read = read_mds};
