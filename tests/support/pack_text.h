/* Texts that are packed and read back, for the tests of packing. */
#ifndef BY_TESTS_PACK_TEXT_H
#define BY_TESTS_PACK_TEXT_H

#include "banyan/pack.h"
#include "data/corpus/token_manifest.h"

/* A tokenizer, and a text of many scripts. */
#define SMALL  BY_SOURCE_DIR "/tests/parity/golden/tokenizer_small.json"
#define CORPUS BY_SOURCE_DIR "/tests/parity/golden/tokenizer_corpus.txt"

/* A packed directory in memory. */
typedef struct packed_text {
    by__data_token_manifest manifest;
    uint32_t *ids;
    uint64_t *offsets;
} packed_text;

/* Writes a file; its path, which the caller frees. */
char *pack_put(const char *directory, const char *name, const char *text);
/* "A/B", which the caller frees. */
char *pack_join(const char *a, const char *b);
/* Packs; the test fails where that does. result may be NULL. */
void pack_run(const by_pack_options *options, by_pack_result *result);
/* Reads a packed directory, all hashes checked; pack_free takes it. */
packed_text pack_read(const char *directory);
void pack_free(packed_text *p);
/* About 5 MB over four files, 203 documents, so that there are many units. The first is one long
 * word, which takes longer than the units behind it: they are done before it and have to wait. */
void pack_make_large(const char *directory);
/* A note function that keeps the note in the 1000 characters of its user. */
void pack_keep_note(void *user, const char *text);

#endif
