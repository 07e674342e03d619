/* TFRecord files of tf.train.Example: records with masked CRC-32C (Castagnoli) of their length and
 * content, whose content is a protocol buffer: a map of features to lists of bytes or numbers. */
#include <string.h>

#include "formats/shards/shard_file.h"

enum { HEAD = 12, TAIL = 4 };

static const char *const images[] = {"image/encoded", "image", "image_raw", "jpeg", NULL};
static const char *const labels[] = {"image/class/label", "label", "class", NULL};

/* ---- checksums ---- */

typedef struct crc_table {
    uint32_t of[256];
} crc_table;

static void make_table(crc_table *out)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
        }
        out->of[i] = crc;
    }
}

#if defined __x86_64__
__attribute__((target("sse4.2"))) static uint32_t crc_of_words(uint32_t crc, const uint8_t *data,
                                                               size_t words)
{
    uint64_t sum = crc;
    for (size_t i = 0; i < words; i++) {
        uint64_t word;
        memcpy(&word, data + 8 * i, sizeof word);
        sum = __builtin_ia32_crc32di(sum, word);
    }
    return (uint32_t)sum;
}
#endif

static uint32_t masked_crc(const crc_table *table, const uint8_t *data, size_t size)
{
    uint32_t crc = UINT32_MAX;
    size_t at = 0;
#if defined __x86_64__
    if (__builtin_cpu_supports("sse4.2")) {
        crc = crc_of_words(crc, data, size / 8);
        at = size / 8 * 8;
    }
#endif
    for (; at < size; at++) {
        crc = crc >> 8 ^ table->of[(crc ^ data[at]) & 0xff];
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static uint64_t number_at(const uint8_t *at, size_t bytes)
{
    uint64_t out = 0;
    for (size_t i = bytes; i-- > 0;) {
        out = out << 8 | at[i];
    }
    return out;
}

static bool is_tfrecord(const char *path, const uint8_t *data, size_t size)
{
    crc_table table;
    BY_UNUSED(path);
    if (size < HEAD) {
        return false;
    }
    make_table(&table);
    return masked_crc(&table, data, 8) == number_at(data + 8, 4);
}

/* ---- protocol buffers ---- */

typedef struct proto {
    const uint8_t *at;
    const uint8_t *end;
} proto;

typedef struct proto_field {
    uint32_t number;
    bool is_bytes;  /* else a number */
    uint64_t value; /* of it */
    proto bytes;
} proto_field;

static bool read_varint(proto *p, uint64_t *out)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 70 && p->at < p->end; shift += 7) {
        uint64_t byte = *p->at++;
        value |= shift < 64 ? (byte & 0x7f) << shift : 0;
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

/* Reads the next field. Returns false at the end; *damaged: what is there is none. */
static bool next_field(proto *p, proto_field *out, bool *damaged)
{
    uint64_t tag;
    if (*damaged || p->at == p->end) {
        return false;
    }
    *damaged = true;
    if (!read_varint(p, &tag) || tag >> 3 == 0 || tag > UINT32_MAX) {
        return false;
    }
    *out = (proto_field){.number = (uint32_t)(tag >> 3), .is_bytes = (tag & 7) == 2};
    size_t left;
    switch (tag & 7) {
    case 0:
        *damaged = !read_varint(p, &out->value);
        break;
    case 2:
        if (read_varint(p, &out->value) && out->value <= (uint64_t)(p->end - p->at)) {
            out->bytes = (proto){p->at, p->at + out->value};
            p->at += out->value;
            *damaged = false;
        }
        break;
    case 1:
    case 5:
        left = (tag & 7) == 1 ? 8 : 4;
        if ((size_t)(p->end - p->at) >= left) {
            out->value = number_at(p->at, left);
            p->at += left;
            *damaged = false;
        }
        break;
    default:
        break;
    }
    return !*damaged;
}

/* ---- examples ---- */

enum { BYTES_LIST = 1, INT64_LIST = 3 };

/* Finds the first value of a feature. Returns its kind, or 0. */
static uint32_t first_value(proto feature, proto_field *out, bool *damaged)
{
    proto_field list;
    proto_field value;
    while (next_field(&feature, &list, damaged)) {
        proto in = list.bytes;
        if (!list.is_bytes || (list.number != BYTES_LIST && list.number != INT64_LIST)) {
            continue;
        }
        if (!next_field(&in, &value, damaged) || value.number != 1) {
            return 0;
        }
        if (list.number == INT64_LIST && value.is_bytes) { /* packed */
            *damaged =
                value.bytes.at == value.bytes.end || !read_varint(&value.bytes, &value.value);
        } else if (list.number == BYTES_LIST && !value.is_bytes) {
            return 0;
        }
        *out = value;
        return *damaged ? 0 : list.number;
    }
    return 0;
}

/* What has been found of the fields of an example. */
typedef struct example {
    const by__format_shard *shard;
    by__format_shard_sample sample;
} example;

static void take_feature(example *e, proto entry, bool *damaged)
{
    proto_field field;
    proto_field value;
    proto name = {0};
    proto feature = {0};
    while (next_field(&entry, &field, damaged)) {
        if (field.is_bytes && field.number == 1) {
            name = field.bytes;
        } else if (field.is_bytes && field.number == 2) {
            feature = field.bytes;
        }
    }
    if (*damaged || name.at == NULL || feature.at == NULL) {
        return;
    }
    size_t length = (size_t)(name.end - name.at);
    const char *text = (const char *)name.at;
    size_t image = by__format_shard_rank(e->shard->image_field, images, text, length);
    size_t label = by__format_shard_rank(e->shard->label_field, labels, text, length);
    if (image == SIZE_MAX && label == SIZE_MAX) {
        return;
    }
    uint32_t kind = first_value(feature, &value, damaged);
    size_t bytes = kind == BYTES_LIST ? (size_t)(value.bytes.end - value.bytes.at) : 0;
    if (image != SIZE_MAX && kind == BYTES_LIST) {
        by__format_shard_set_image(&e->sample, text, length,
                                   (uint64_t)(value.bytes.at - e->shard->data), bytes);
    } else if (label != SIZE_MAX && kind == BYTES_LIST) {
        by__format_shard_set_label(&e->sample, text, length, label, (const char *)value.bytes.at,
                                   bytes);
    } else if (label != SIZE_MAX && kind == INT64_LIST) {
        int64_t number;
        memcpy(&number, &value.value, sizeof number);
        by__format_shard_set_number(&e->sample, text, length, label, number);
    }
}

static by_status take_example(const by__format_shard *shard, uint64_t record, const uint8_t *data,
                              size_t size, const char *problem, by_error *error)
{
    char key[32];
    bool damaged = false;
    proto_field features;
    proto_field entry;
    proto in = {data, data + size};
    example e = {.shard = shard};
    while (problem == NULL && next_field(&in, &features, &damaged)) {
        proto map = features.bytes;
        while (features.is_bytes && features.number == 1 && next_field(&map, &entry, &damaged)) {
            if (entry.is_bytes && entry.number == 1) {
                take_feature(&e, entry.bytes, &damaged);
            }
        }
    }
    (void)snprintf(key, sizeof key, "%llu", (unsigned long long)record);
    e.sample.key = key;
    e.sample.key_size = strlen(key);
    if (problem != NULL || damaged) {
        e.sample.problem = damaged ? "the record is no tf.train.Example" : problem;
    } else if (e.sample.problem == NULL) {
        e.sample.problem = by__format_shard_lacks_image(
            &e.sample, "the record has no picture: that is a feature image/encoded, image, "
                       "image_raw or jpeg of bytes");
    }
    e.sample.begin = e.sample.size == 0 ? (uint64_t)(data - shard->data) : e.sample.begin;
    return shard->take(shard->user, &e.sample, error);
}

static by_status read_tfrecord(const by__format_shard *shard, by_error *error)
{
    crc_table table;
    size_t at = 0;
    make_table(&table);
    for (uint64_t record = 0; at < shard->size; record++) {
        const uint8_t *head = shard->data + at;
        size_t left = shard->size - at;
        bool whole = left >= HEAD + TAIL;
        uint64_t size = whole ? number_at(head, 8) : 0;
        if (whole && masked_crc(&table, head, 8) != number_at(head + 8, 4)) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: the length of record %llu, at byte %zu, does not fit its "
                                "checksum: what follows cannot be read",
                                shard->path, (unsigned long long)record, at);
        }
        if (!whole || size > left - HEAD - TAIL) {
            return by_error_set(error, BY_EFORMAT,
                                "%s ends within record %llu, at byte %zu: it is truncated",
                                shard->path, (unsigned long long)record, at);
        }
        const uint8_t *data = head + HEAD;
        bool same = masked_crc(&table, data, (size_t)size) == number_at(data + size, 4);
        BY_TRY(take_example(shard, record, data, (size_t)size,
                            same ? NULL : "the record does not fit its checksum", error));
        at += HEAD + (size_t)size + TAIL;
    }
    return BY_OK;
}

const by__format_shard_row by__format_shard_tfrecord = {
    .name = "a TFRecord file",
    .labels = "a feature image/class/label, label or class of integers or texts",
    .is = is_tfrecord,
    .read = read_tfrecord};
