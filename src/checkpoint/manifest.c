/* The manifest of a checkpoint: prints it, parses it, and checks it and the files that it lists. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/paths.h"
#include "checkpoint/storage.h"

#define FORMAT_NAME    "banyan-checkpoint"
#define FORMAT_VERSION 1
#define SEAL_START     "{\"manifest_xxh3_128\": \""
#define SEAL_END       "\",\n"

enum { seal_start = sizeof SEAL_START - 1, seal_end = sizeof SEAL_END - 1, hash_digits = 32 };
enum { seal_length = seal_start + hash_digits + seal_end };

by_status by__checkpoint_manifest_print(const by__checkpoint_manifest *manifest, char **out,
                                        size_t *length, by_error *error)
{
    by_string body = {0};
    by_string text = {0};
    char hash[33];
    by_string_format(&body,
                     " \"format\": \"" FORMAT_NAME "\",\n \"version\": %d,\n \"step\": %" PRIu64
                     ",\n \"files\": [",
                     FORMAT_VERSION, manifest->step);
    for (size_t i = 0; i < manifest->files.count; i++) {
        const by__checkpoint_file_record *file = &manifest->files.items[i];
        by__string_append(&body, i == 0 ? "\n  {\"name\": " : ",\n  {\"name\": ");
        by_string_json(&body, file->name, strlen(file->name));
        by_string_format(&body, ", \"size\": %" PRIu64 ", \"xxh3_128\": \"%s\"", file->size,
                         file->hash);
        if (file->in != NULL) {
            by_string_format(&body, ", \"in\": \"%s\"", file->in);
        }
        by__string_append(&body, "}");
    }
    by__string_append(&body, "\n ]}\n");
    by__hash128_hex(hash, body.failed ? "" : body.data, body.failed ? 0 : body.length);
    by_string_format(&text, SEAL_START "%s" SEAL_END, hash);
    if (!body.failed) {
        by_string_add(&text, body.data, body.length);
    }
    text.failed = text.failed || body.failed;
    by_string_free(&body);
    *length = text.length;
    return by__string_release(&text, out, error);
}

by_status by__checkpoint_manifest_check_seal(const char *path, const char *text, size_t length,
                                             by_error *error)
{
    char hash[33];
    if (length < seal_length || memcmp(text, SEAL_START, seal_start) != 0 ||
        memcmp(text + seal_start + hash_digits, SEAL_END, seal_end) != 0) {
        return by_error_set(error, BY_EFORMAT, "%s: the first line must hold manifest_xxh3_128",
                            path);
    }
    by__hash128_hex(hash, text + seal_length, length - seal_length);
    if (memcmp(text + seal_start, hash, hash_digits) != 0) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: its content has XXH3-128 %s, but its first line says %.32s: it is "
                            "corrupt or truncated",
                            path, hash, text + seal_start);
    }
    return BY_OK;
}

static by_status read_file(by__checkpoint_manifest *out, const char *path, size_t i,
                           const json_t *value, by_error *error)
{
    const char *name = json_string_value(json_object_get(value, "name"));
    const json_t *size = json_object_get(value, "size");
    const char *hash = json_string_value(json_object_get(value, "xxh3_128"));
    const json_t *in = json_object_get(value, "in");
    uint64_t step;
    bool good = name != NULL && by__checkpoint_plain_name(name) && json_is_integer(size) &&
                json_integer_value(size) >= 0 && hash != NULL && strlen(hash) == hash_digits;
    if (good && in != NULL) {
        good = json_is_string(in) && by__checkpoint_step_of_name(json_string_value(in), &step) &&
               step != out->step;
    }
    if (!good) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: files[%zu]: expected a plain name, a size, an xxh3_128 and, where "
                            "the file is another checkpoint's, that one's name as \"in\"",
                            path, i);
    }
    return by__checkpoint_file_list_add(&out->files, name, (uint64_t)json_integer_value(size), hash,
                                        json_string_value(in), error);
}

static by_status read_root(by__checkpoint_manifest *out, const char *path, const json_t *root,
                           by_error *error)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *version = json_object_get(root, "version");
    const json_t *step = json_object_get(root, "step");
    const json_t *files = json_object_get(root, "files");
    if (format == NULL || strcmp(format, FORMAT_NAME) != 0 || !json_is_integer(version)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: expected format \"" FORMAT_NAME "\" and a version", path);
    }
    if (json_integer_value(version) != FORMAT_VERSION) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: format version %" JSON_INTEGER_FORMAT
                            "; this banyan reads version %d",
                            path, json_integer_value(version), FORMAT_VERSION);
    }
    if (!json_is_integer(step) || json_integer_value(step) < 0 || !json_is_array(files)) {
        return by_error_set(error, BY_EFORMAT, "%s: expected a step and a list of files", path);
    }
    out->step = (uint64_t)json_integer_value(step);
    for (size_t i = 0; i < json_array_size(files); i++) {
        BY_TRY(read_file(out, path, i, json_array_get(files, i), error));
    }
    return BY_OK;
}

by_status by__checkpoint_manifest_parse(by__checkpoint_manifest *out, const char *path,
                                        const char *text, size_t length, by_error *error)
{
    json_t *root;
    BY_TRY(by__json_parse(&root, path, text, length, JSON_REJECT_DUPLICATES, error));
    by__checkpoint_manifest manifest = {0};
    by_status status = read_root(&manifest, path, root, error);
    json_decref(root);
    if (status != BY_OK) {
        by__checkpoint_manifest_free(&manifest);
        return status;
    }
    *out = manifest;
    return BY_OK;
}

by_status by__checkpoint_manifest_check_file(const by__checkpoint_file_record *record,
                                             const char *directory, bool verify, by_error *error)
{
    struct stat info;
    char hash[33];
    char *path;
    BY_TRY(by__path_make(&path, directory, record->name, error));
    by_status status = BY_OK;
    if (stat(path, &info) != 0) {
        status = errno == ENOENT && record->in != NULL
                     ? by_error_set(error, BY_EFORMAT,
                                    "%s is missing; the manifest says that it is shared with %s",
                                    path, record->in)
                 : errno == ENOENT ? by_error_set(error, BY_EFORMAT,
                                                  "%s is missing, but the manifest lists it", path)
                                   : by__io_error(error, "stat", path);
    } else if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size != record->size) {
        status =
            by_error_set(error, BY_EFORMAT, "%s has %lld bytes, but the manifest says %" PRIu64,
                         path, (long long)info.st_size, record->size);
    } else if (verify) {
        status = by__hash_file_hex(hash, path, error);
        if (status == BY_OK && memcmp(hash, record->hash, sizeof hash) != 0) {
            status = by_error_set(error, BY_EFORMAT,
                                  "%s is corrupt: its XXH3-128 is %s, but the manifest says %s",
                                  path, hash, record->hash);
        }
    }
    free(path);
    return status;
}

by_status by__checkpoint_manifest_read(by__checkpoint_manifest *out, const char *directory,
                                       const char *name, bool verify, by_error *error)
{
    by__checkpoint_manifest manifest = {0};
    char *text = NULL;
    size_t length;
    char *path;
    by_status status = BY_OK;
    BY_TRY(by__path_make(&path, directory, name, error));
    if (!by__path_exists(path)) {
        status = by_error_set(error, BY_EFORMAT,
                              "%s: there is no %s, so this is not a complete checkpoint", directory,
                              name);
        goto done;
    }
    status = by__file_read(&text, &length, path, BY_MAX_JSON_BYTES, error);
    if (status == BY_OK) {
        status = by__checkpoint_manifest_check_seal(path, text, length, error);
    }
    if (status == BY_OK) {
        status = by__checkpoint_manifest_parse(&manifest, path, text, length, error);
    }
    for (size_t i = 0; i < manifest.files.count && status == BY_OK; i++) {
        status =
            by__checkpoint_manifest_check_file(&manifest.files.items[i], directory, verify, error);
    }
    if (status == BY_OK) {
        *out = manifest;
    } else {
        by__checkpoint_manifest_free(&manifest);
    }
done:
    free(text);
    free(path);
    return status;
}

by_status by__checkpoint_manifest_check(by__checkpoint_manifest *out, const char *directory,
                                        bool verify, by_error *error)
{
    return by__checkpoint_manifest_read(out, directory, "manifest.json", verify, error);
}

void by__checkpoint_manifest_free(by__checkpoint_manifest *manifest)
{
    by__checkpoint_file_list_free(&manifest->files);
}
