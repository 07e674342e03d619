/* Checksums of a packed directory: read once, then known by the identity of its files.
 *
 * DIR/.verified is written when all is right. It holds the manifest's checksums with device, inode,
 * size and time of change of each file, as this program would write it now: where it differs in a
 * single byte, everything is read again. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "banyan/tokenizer.h"
#include "data/dataset.h"
#include "data/formats/token_manifest.h"

#define STAMP_FILE ".verified"
#define MAX_STAMP  ((size_t)1 << 26)

static by_status add_file(by__text *text, const char *directory, const char *file, const char *hash,
                          by_error *error)
{
    struct stat info;
    char *path = by__path_join(directory, file);
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    by_status status = BY_OK;
    if (stat(path, &info) != 0) {
        status = by__io_error(error, "open", path);
    } else {
        by__text_format(text, "%s %s %llu %llu %llu %lld.%09ld %lld.%09ld\n", hash, file,
                        (unsigned long long)info.st_dev, (unsigned long long)info.st_ino,
                        (unsigned long long)info.st_size, (long long)info.st_mtim.tv_sec,
                        info.st_mtim.tv_nsec, (long long)info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
    }
    free(path);
    return status;
}

/* What the stamp of the directory has to be. */
static by_status make_stamp(char **out, const by__token_manifest *m, const char *directory,
                            by_error *error)
{
    by__text text = {0};
    by__text_add(&text, "banyan-verified 1\n");
    by_status status = add_file(&text, directory, m->tokenizer_file, m->tokenizer_hash, error);
    if (status == BY_OK) {
        status = add_file(&text, directory, m->offsets_file, m->offsets_hash, error);
    }
    for (size_t i = 0; i < m->shard_count && status == BY_OK; i++) {
        status = add_file(&text, directory, m->shards[i].file, m->shards[i].hash, error);
    }
    if (status != BY_OK) {
        by__text_free(&text);
        return status;
    }
    return by__text_take(&text, out, error);
}

static bool is_stamped(const char *path, const char *stamp)
{
    char *found = NULL;
    size_t length = 0;
    bool same = by__file_read(&found, &length, path, MAX_STAMP, NULL) == BY_OK &&
                length == strlen(stamp) && memcmp(found, stamp, length) == 0;
    free(found);
    return same;
}

static by_status check_tokenizer(const by__token_manifest *m, const char *directory,
                                 by_error *error)
{
    by_tokenizer *tokenizer;
    char *path = by__path_join(directory, m->tokenizer_file);
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
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

static by_status check_all(const by__token_manifest *m, const char *directory,
                           const by_data_verify_options *o, by_error *error)
{
    by_dataset *dataset;
    const by_dataset_options options = {.verify = true, .progress = o->progress, .user = o->user};
    BY_TRY(check_tokenizer(m, directory, error));
    BY_TRY(by_dataset_open(&dataset, directory, &options, error));
    by_dataset_close(&dataset);
    return BY_OK;
}

by_status by_data_verify(const char *directory, const by_data_verify_options *options,
                         by_error *error)
{
    const by_data_verify_options none = {0};
    const by_data_verify_options *o = options == NULL ? &none : options;
    by__token_manifest manifest;
    char *before = NULL;
    char *after = NULL;
    BY_TRY(by__token_manifest_read(&manifest, directory, error));
    char *path = by__path_join(directory, STAMP_FILE);
    by_status status = path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                    : make_stamp(&before, &manifest, directory, error);
    if (status == BY_OK && (o->always || !is_stamped(path, before))) {
        status = check_all(&manifest, directory, o, error);
        /* Only what did not change meanwhile. Where nothing can be written, all is read again. */
        if (status == BY_OK && make_stamp(&after, &manifest, directory, NULL) == BY_OK &&
            strcmp(before, after) == 0) {
            (void)by__file_write(path, after, strlen(after), NULL);
        }
    }
    free(after);
    free(before);
    free(path);
    by__token_manifest_free(&manifest);
    return status;
}
