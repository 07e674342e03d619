/* Packed directories of tokens that are their own places, and loaders, for the tests of both. */
#ifndef BY_TESTS_PACKED_FOLDER_H
#define BY_TESTS_PACKED_FOLDER_H

#include "banyan/data.h"

enum { SHARD_TOKENS = 100, DOCUMENT_TOKENS = 30 };

/* A test's set-up and tear-down: its state is the path of an empty directory. */
int packed_folder_make(void **state);
int packed_folder_drop(void **state);
/* Writes values of 2, 4 or 8 bytes (width) into a file of the directory; hash is the file's. */
void packed_folder_npy(const char *folder, const char *file, unsigned width, const uint64_t *values,
                       size_t count, char hash[33]);
/* Packs tokens 0, 1, 2, ... into shards of 100 (the second is empty) and documents of 30 (the third
 * is empty). dtype: "u16" or "u32". */
void packed_folder_write(const char *folder, uint64_t tokens, const char *dtype);
/* Packs them into the directory of the test, and opens it. */
by_dataset *packed_folder_open(void **state, uint64_t tokens, const char *dtype);
/* A loader, which takes the source. */
by_loader *packed_loader(by_source *source, by_loader_options options);

#endif
