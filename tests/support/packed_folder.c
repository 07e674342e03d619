#include "packed_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "data/corpus/token_manifest.h"
#include "formats/npy.h"

int packed_folder_make(void **state)
{
    static char path[64];
    (void)snprintf(path, sizeof path, "/tmp/banyan-loader-XXXXXX");
    *state = path;
    return mkdtemp(path) == NULL ? -1 : 0;
}

int packed_folder_drop(void **state)
{
    return by__remove_tree(*state, NULL) == BY_OK ? 0 : -1;
}

void packed_folder_npy(const char *folder, const char *file, unsigned width, const uint64_t *values,
                       size_t count, char hash[33])
{
    by__format_npy_writer *writer;
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, file);
    assert_int_equal(by__format_npy_writer_open(&writer, path, width, NULL), BY_OK);
    for (size_t i = 0; i < count; i++) {
        uint32_t value = (uint32_t)values[i];
        assert_int_equal(width == 8 ? by__format_npy_writer_add_u64(writer, &values[i], 1, NULL)
                                    : by__format_npy_writer_add_u32(writer, &value, 1, NULL),
                         BY_OK);
    }
    assert_int_equal(by__format_npy_writer_finish(writer, hash, NULL), BY_OK);
    by__format_npy_writer_close(&writer);
}

void packed_folder_write(const char *folder, uint64_t tokens, const char *dtype)
{
    unsigned width = strcmp(dtype, "u16") == 0 ? 2 : 4;
    by__data_token_shard shards[32] = {0};
    char names[32][32];
    uint64_t values[128];
    by__data_token_manifest m = {.width = width,
                                 .vocab = (uint32_t)tokens,
                                 .eos = -1,
                                 .tokens = tokens,
                                 .text_bytes = 4 * tokens,
                                 .tokenizer_file = (char *)(uintptr_t) "tokenizer.json",
                                 .tokenizer_hash = "0123456789abcdef0123456789abcdef",
                                 .offsets_file = (char *)(uintptr_t) "documents.npy",
                                 .shards = shards};
    for (uint64_t at = 0; at < tokens || m.shard_count < 2;) {
        size_t n = 0;
        for (; m.shard_count != 1 && n < SHARD_TOKENS && at < tokens; n++) {
            values[n] = at++;
        }
        by__data_token_shard *shard = &shards[m.shard_count];
        shard->file = names[m.shard_count];
        shard->tokens = n;
        (void)snprintf(shard->file, sizeof names[0], "tokens-%05zu.npy", m.shard_count++);
        packed_folder_npy(folder, shard->file, width, values, n, shard->hash);
    }
    size_t offsets = 0;
    for (uint64_t at = 0; at < tokens; at += DOCUMENT_TOKENS) {
        values[offsets++] = at;
        if (offsets == 3) {
            values[offsets++] = at;
        }
    }
    values[offsets++] = tokens;
    m.documents = offsets - 1;
    packed_folder_npy(folder, m.offsets_file, 8, values, offsets, m.offsets_hash);
    assert_int_equal(by__data_token_manifest_write(&m, folder, NULL), BY_OK);
}

by_dataset *packed_folder_open(void **state, uint64_t tokens, const char *dtype)
{
    by_dataset *data;
    by_error error = {0};
    packed_folder_write(*state, tokens, dtype);
    if (by_dataset_open(&data, *state, &(by_dataset_options){.verify = true}, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return data;
}

by_loader *packed_loader(by_source *source, by_loader_options options)
{
    by_loader *loader;
    by_error error = {0};
    if (by_loader_open(&loader, source, &options, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return loader;
}
