#include "serve/protocol/served_version.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "banyan/path_hint.h"
#include "base/paths.h"

/* Bytes per sample of a file, and number of evenly spaced samples. Training changes nearly every
 * weight, so a few of them distinguish two checkpoints. */
#define SAMPLE       4096
#define SAMPLES      64
#define MAX_MANIFEST ((size_t)64 << 20)
/* Most files in a directory. */
#define FILES 512
/* How often a checkpoint may be removed between finding and leasing it. */
#define ATTEMPTS 20

static by_status sample_file(by__hasher *hasher, const char *path, by_error *error)
{
    char bytes[SAMPLE];
    int fd;
    size_t size;
    BY_TRY(by__open_regular(&fd, &size, path, error));
    off_t length = (off_t)size;
    by__hasher_add(hasher, &length, sizeof length);
    off_t distance = length > SAMPLE * SAMPLES ? length / SAMPLES : SAMPLE;
    for (off_t at = 0; at < length; at += distance) {
        /* The last sample ends with the file. */
        off_t from = at + distance >= length && length > SAMPLE ? length - SAMPLE : at;
        ssize_t n = pread(fd, bytes, sizeof bytes, from);
        if (n < 0) {
            by_status status = by__io_error(error, "read", path);
            (void)close(fd);
            return status;
        }
        by__hasher_add(hasher, bytes, (size_t)n);
    }
    (void)close(fd);
    return BY_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool decides(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot != NULL && (strcmp(dot, ".json") == 0 || strcmp(dot, ".safetensors") == 0);
}

/* Hashes samples of the files of a directory in the order of their names. */
static by_status sample_directory(by__hasher *hasher, const char *path, by_error *error)
{
    char *names[FILES];
    size_t count = 0;
    by_status status = BY_OK;
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return by__io_error(error, "open", path);
    }
    for (const struct dirent *e = readdir(directory); e != NULL && count < FILES;
         e = readdir(directory)) {
        if (decides(e->d_name)) {
            names[count] = by__strdup(e->d_name);
            count += names[count] != NULL;
        }
    }
    (void)closedir(directory);
    qsort(names, count, sizeof *names, by_name);
    for (size_t i = 0; i < count; i++) {
        char *file = by__path_join(path, names[i]);
        if (status == BY_OK) {
            by__hasher_add(hasher, names[i], strlen(names[i]) + 1);
            status = file == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a path")
                                  : sample_file(hasher, file, error);
        }
        free(file);
        free(names[i]);
    }
    return status;
}

static by_status hash_manifest(by__hasher *hasher, const char *directory, by_error *error)
{
    char *manifest = by__path_join(directory, "manifest.json");
    char *text = NULL;
    size_t length = 0;
    by_status status = manifest == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: a path")
                           : by__file_read(&text, &length, manifest, MAX_MANIFEST, error);
    if (status == BY_OK) {
        by__hasher_add(hasher, text, length);
    }
    free(text);
    free(manifest);
    return status;
}

/* A manifest is believed only where it was verified, in a run: in a directory that was copied and
 * changed it is that of other weights. */
static by_status hash_version(char out[33], const by__protocol_served_version *v,
                              const char *settings, by_error *error)
{
    by__hasher *hasher = NULL;
    BY_TRY(by__hasher_open(&hasher, error));
    by_status status = v->is_run ? hash_manifest(hasher, v->directory, error)
                       : by__path_is_dir(v->directory)
                           ? sample_directory(hasher, v->directory, error)
                           : sample_file(hasher, v->directory, error);
    if (status == BY_OK) {
        by__hasher_add(hasher, settings == NULL ? "" : settings,
                       settings == NULL ? 0 : strlen(settings));
    }
    if (status == BY_OK && v->adapter != NULL) {
        by__hasher_add(hasher, "+", 1);
        status = sample_directory(hasher, v->adapter, error);
    }
    if (status == BY_OK) {
        by__hasher_hex(hasher, out);
    }
    by__hasher_close(&hasher);
    return status;
}

/* Makes "step-00001000-1a2b3c4d": the last part of the directory, converted to an id, and eight
 * digits. */
static void name_version(by__protocol_served_version *v, const char *hash)
{
    size_t end = strlen(v->directory);
    while (end > 1 && v->directory[end - 1] == '/') {
        end--;
    }
    size_t begin = end;
    while (begin > 0 && v->directory[begin - 1] != '/') {
        begin--;
    }
    size_t n = end - begin > 40 ? 40 : end - begin;
    for (size_t i = 0; i < n; i++) {
        char c[2] = {v->directory[begin + i], '\0'};
        v->name[i] = '_';
        if (by__serve_id_valid(c)) {
            v->name[i] = c[0];
        }
    }
    (void)snprintf(v->name + n, sizeof v->name - n, "-%.8s", hash);
}

/* Finds the newest valid checkpoint of a root and leases it. Training may remove a checkpoint
 * between the two. */
static by_status find_checkpoint(by__protocol_served_version *v, const char *root, by_error *error)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    by_status status = BY_ESTATE;
    for (int i = 0; i < ATTEMPTS && status == BY_ESTATE; i++) {
        if (i > 0) {
            (void)nanosleep(&pause, NULL);
        }
        free(v->directory);
        free(v->skipped);
        v->directory = v->skipped = NULL;
        BY_TRY(by_checkpoint_latest(root, &v->directory, &v->skipped, error));
        status = by__checkpoint_lease_open(&v->lease, v->directory, error);
    }
    if (v->skipped != NULL && v->skipped[0] == '\0') {
        free(v->skipped);
        v->skipped = NULL;
    }
    return status;
}

static by_status find_directory(by__protocol_served_version *v, by_error *error)
{
    v->directory = by__strdup(v->path);
    return v->directory == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a path")
           : by__path_is_dir(v->directory)
               ? by__checkpoint_lease_open(&v->lease, v->directory, error)
               : BY_OK;
}

static by_status find_adapter(by__protocol_served_version *v, const char *adapter, by_error *error)
{
    if (!by__path_is_dir(adapter)) {
        return by_error_set(error, BY_ECONFIG, "%s: there is no such directory of an adapter",
                            adapter);
    }
    v->adapter = by__strdup(adapter);
    return v->adapter == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a path")
                              : by__checkpoint_lease_open(&v->adapter_lease, adapter, error);
}

by_status by__protocol_served_version_find(by__protocol_served_version *out, const char *path,
                                           const char *adapter, const char *settings,
                                           by_error *error)
{
    char near[BY_PATH_HINT];
    by__protocol_served_version v = {.path = by__strdup(path)};
    char *root = by__path_join(path, "checkpoints");
    char hash[33];
    by_status status = v.path == NULL || root == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: a path")
                           : BY_OK;
    if (status == BY_OK && !by__path_exists(path)) {
        /* A restart would not help. */
        status = by_error_set(error, BY_ECONFIG, "%s: there is no such run or directory%s", path,
                              by_path_hint(near, path));
    }
    v.is_run = status == BY_OK && by__path_is_dir(root);
    if (status == BY_OK) {
        status = v.is_run ? find_checkpoint(&v, root, error) : find_directory(&v, error);
    }
    if (status == BY_OK && adapter != NULL) {
        status = find_adapter(&v, adapter, error);
    }
    if (status == BY_OK) {
        status = hash_version(hash, &v, settings, error);
    }
    free(root);
    if (status != BY_OK) {
        by__protocol_served_version_free(&v);
        return status;
    }
    name_version(&v, hash);
    *out = v;
    return BY_OK;
}

by_status by__protocol_served_version_copy(by__protocol_served_version *out,
                                           const by__protocol_served_version *from, by_error *error)
{
    by__protocol_served_version v = *from;
    v.path = by__strdup(from->path);
    v.directory = by__strdup(from->directory);
    v.adapter = from->adapter == NULL ? NULL : by__strdup(from->adapter);
    v.skipped = NULL;
    v.lease = v.adapter_lease = NULL;
    bool lacks =
        v.path == NULL || v.directory == NULL || (v.adapter == NULL) != (from->adapter == NULL);
    by_status status = lacks ? by_error_set(error, BY_EMEMORY, "out of memory: a version")
                             : by__checkpoint_lease_share(&v.lease, from->lease, error);
    if (status == BY_OK) {
        status = by__checkpoint_lease_share(&v.adapter_lease, from->adapter_lease, error);
    }
    if (status != BY_OK) {
        by__protocol_served_version_free(&v);
        return status;
    }
    *out = v;
    return BY_OK;
}

void by__serve_version_release(by__protocol_served_version *version)
{
    by__checkpoint_lease_close(&version->lease);
    by__checkpoint_lease_close(&version->adapter_lease);
}

by_status by__serve_version_lease(by__protocol_served_version *version, by_error *error)
{
    if (!by__path_exists(version->directory)) {
        return by_error_set(error, BY_EIO, "%s has been removed", version->directory);
    }
    if (version->lease == NULL && by__path_is_dir(version->directory)) {
        BY_TRY(by__checkpoint_lease_open(&version->lease, version->directory, error));
    }
    if (version->adapter != NULL && version->adapter_lease == NULL) {
        BY_TRY(by__checkpoint_lease_open(&version->adapter_lease, version->adapter, error));
    }
    return BY_OK;
}

void by__protocol_served_version_free(by__protocol_served_version *version)
{
    free(version->path);
    free(version->directory);
    free(version->adapter);
    free(version->skipped);
    by__checkpoint_lease_close(&version->lease);
    by__checkpoint_lease_close(&version->adapter_lease);
    *version = (by__protocol_served_version){0};
}
