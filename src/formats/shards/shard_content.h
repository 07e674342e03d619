/* What is in a shard, so that it is read once (shard_content.c).
 *
 * "BYSHARD2", then as 8 bytes each, lowest first: the hash of the key, which says what file this is
 * of, the number of samples, and the bytes of the names of classes, which follow; for each sample
 * its begin, size and number, the size, begin, length and codec of its page, the lengths of key,
 * label and problem, a byte of flags, and these texts; then the hash of all that. */
#ifndef BY_FORMATS_SHARDS_SHARD_CONTENT_H
#define BY_FORMATS_SHARDS_SHARD_CONTENT_H

#include "formats/shards/shard_file.h"

/* An index that is made. {0} is empty; freed with by_string_free(&index.text). */
typedef struct by__format_shard_index {
    by_string text;
    uint64_t class_bytes;
    uint64_t count;
} by__format_shard_index;

/* The names of the classes, each ended by NUL; before the first sample. */
void by__format_shard_index_classes(by__format_shard_index *index, const char *names, size_t size);
void by__format_shard_index_add(by__format_shard_index *index,
                                const by__format_shard_sample *sample);
/* Sets head and hash. BY_EMEMORY. */
by_status by__format_shard_index_finish(by__format_shard_index *index, const char *key,
                                        by_error *error);
/* Whether this is the whole index of a file with the key, of `size` bytes. */
bool by__format_shard_index_is(const uint8_t *data, size_t length, const char *key, uint64_t size);
/* Gives its classes to shard->classes and its samples to shard->take; shard->data and its size are
 * those of such an index. */
by_status by__format_shard_index_read(const by__format_shard *shard, by_error *error);

#endif
