/* Remote files: which there are, and their entries of the cache. */
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "remote/remote_files.h"

/* Entries that are kept open while nobody uses them. */
#define OPEN 64

/* ---- opening ---- */

static void close_file(by__remote_file *f)
{
    by__remote_entry_close(&f->entry);
    free((void *)f->checked);
    f->checked = NULL;
}

static void free_file(by__remote_file *f)
{
    if (f != NULL) {
        close_file(f);
        by__remote_target_free(&f->target);
        (void)pthread_mutex_destroy(&f->lock);
        free(f->url);
        free(f);
    }
}

by_status by__remote_open(by__remote **out, const by_remote_options *options, by_error *error)
{
    static const by_remote_options none = {0};
    by__remote *r;
    options = options == NULL ? &none : options;
    BY_TRY(by__alloc((void **)&r, 1, sizeof *r, "remote files", error));
    r->options = *options;
    r->options.cache = NULL;
    by_status status = by__remote_client_open(&r->client, error);
    if (status != BY_OK) {
        free(r);
        return status;
    }
    r->client.stop.poll = by__remote_poll;
    r->client.stop.user = r;
    status = by__remote_cache_open(&r->cache, options, error);
    if (status == BY_OK &&
        (pthread_mutex_init(&r->lock, NULL) != 0 || pthread_mutex_init(&r->telling, NULL) != 0)) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: a lock");
    }
    if (status != BY_OK) {
        by__remote_client_close(&r->client);
        by__remote_cache_close(&r->cache);
        free(r);
        return status;
    }
    *out = r;
    return BY_OK;
}

size_t by__remote_at_once(const by__remote *remote, uint64_t size)
{
    uint64_t room = remote->cache.limit - remote->cache.limit / 5;
    return size == 0 || size > room ? 1 : (size_t)(room / size);
}

void by__remote_quiet(by__remote *remote)
{
    (void)pthread_mutex_lock(&remote->telling);
    remote->options.progress = NULL;
    (void)pthread_mutex_unlock(&remote->telling);
}

void by__remote_close(by__remote **remote)
{
    by__remote *r = *remote;
    if (r == NULL) {
        return;
    }
    atomic_store(&r->client.stop.set, true);
    by__base_worker_close(&r->ahead);
    for (size_t i = 0; i < r->count; i++) {
        free_file(r->files[i]);
    }
    by__name_table_free(&r->names);
    free(r->files);
    free(r->open);
    free(r->queue);
    by__remote_client_close(&r->client);
    by__remote_cache_close(&r->cache);
    (void)pthread_mutex_destroy(&r->lock);
    (void)pthread_mutex_destroy(&r->telling);
    free(r);
    *remote = NULL;
}

/* ---- files ---- */

static by_status make_file(by__remote_file **out, by__remote *r, const char *url, by_error *error)
{
    by__remote_file *f;
    BY_TRY(by__alloc((void **)&f, 1, sizeof *f, "a remote file", error));
    f->remote = r;
    f->entry = (by__remote_entry){.data = -1, .blocks = -1};
    f->url = by__strdup(url);
    by_status status = f->url == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: a URL")
                           : by__remote_target_make(&f->target, url, &r->client.access, error);
    if (status == BY_OK && pthread_mutex_init(&f->lock, NULL) != 0) {
        by__remote_target_free(&f->target);
        status = by_error_set(error, BY_EMEMORY, "out of memory: a lock");
    }
    if (status != BY_OK) {
        free(f->url);
        free(f);
        return status;
    }
    /* The same key of another endpoint is another file. */
    by__hash128_hex(f->id, f->target.url, strlen(f->target.url));
    *out = f;
    return BY_OK;
}

by_status by__remote_name(by__remote_file **out, by__remote *r, const char *url, by_error *error)
{
    by__remote_file *f = NULL;
    (void)pthread_mutex_lock(&r->lock);
    int32_t i = by__name_table_find(&r->names, url);
    by_status status = BY_OK;
    if (i < 0) {
        status =
            by__reserve((void **)&r->files, &r->capacity, r->count + 1, sizeof *r->files, error);
        if (status == BY_OK) {
            status = make_file(&f, r, url, error);
        }
        if (status == BY_OK) {
            status = by__name_table_add(&r->names, f->url, (int32_t)r->count, error);
        }
        if (status == BY_OK) {
            r->files[r->count++] = f;
        } else {
            free_file(f);
        }
    } else {
        f = r->files[i];
    }
    if (status == BY_OK) {
        *out = f;
    }
    (void)pthread_mutex_unlock(&r->lock);
    return status;
}

void by__remote_know(by__remote_file *f, uint64_t size, const char *tag)
{
    (void)pthread_mutex_lock(&f->lock);
    if (!f->is_known) {
        f->version.size = size;
        (void)snprintf(f->version.tag, sizeof f->version.tag, "%s", tag);
        f->is_known = true;
    }
    (void)pthread_mutex_unlock(&f->lock);
}

/* Opens the entry; the file is locked, and so is its id. */
static by_status open_entry(by__remote_file *f, by_error *error)
{
    by__remote *r = f->remote;
    char limit[32];
    char size[32];
    char least[32];
    char shown[BY__REMOTE_SHOWN];
    char name[200];
    if (f->version.size > r->cache.limit - r->cache.limit / 10) {
        return by_error_set(error, BY_ECONFIG,
                            "%s has %s, too much for a cache of %s, of which a file has nine "
                            "tenths at most: let it hold more than %s (data.remote_cache_size; "
                            "banyan pack: --remote-cache-size)",
                            by__remote_shown(shown, f->url), by_format_bytes(size, f->version.size),
                            by_format_bytes(limit, r->cache.limit),
                            by_format_bytes(least, f->version.size / 9 * 10));
    }
    BY_TRY(by__alloc((void **)&f->checked, by__remote_blocks(f) + 1, 1, "a remote file", error));
    by__remote_file_name(name, f->url);
    by_status status = by__remote_entry_open(&f->entry, &r->cache, f->id, name, &f->version, error);
    if (status != BY_OK) {
        close_file(f);
    }
    return status;
}

/* Asks for size and tag by the first block; *first has it, *size bytes. If the cache has this
 * version, nothing but that is sent. */
static by_status ask_version(by__remote_file *f, uint8_t *first, size_t *size, by_error *error)
{
    by__remote *r = f->remote;
    by__remote_got got;
    by__remote_version held;
    bool has = by__remote_entry_version(&held, &r->cache, f->id);
    const by__remote_ask ask = {.url = f->url,
                                .target = &f->target,
                                .size = BY__REMOTE_BLOCK,
                                .unless = has ? held.tag : NULL,
                                .out = first};
    BY_TRY(by__remote_get(&r->client, &ask, &got, NULL, error));
    *size = got.same ? 0 : got.size;
    f->version.size = got.same ? held.size : got.total;
    (void)snprintf(f->version.tag, sizeof f->version.tag, "%s", got.same ? held.tag : got.tag);
    return BY_OK;
}

/* Puts the first block into the entry. Where the server gives no tag, an entry is of this version
 * only if that block is the same. */
static by_status put_first(by__remote_file *f, const uint8_t *first, size_t size, by_error *error)
{
    by__remote *r = f->remote;
    uint8_t *scratch;
    BY_TRY(open_entry(f, error));
    BY_TRY(by__alloc_aligned((void **)&scratch, BY__REMOTE_BLOCK, "a remote file", error));
    bool has = by__remote_has(f, 0, scratch);
    bool differs = has && f->version.tag[0] == '\0' && memcmp(scratch, first, size) != 0;
    free(scratch);
    if (differs) {
        const by__remote_version none = {.size = 0, .tag = "-"};
        by__remote_entry other;
        close_file(f);
        BY_TRY(by__remote_entry_open(&other, &r->cache, f->id, "none", &none, error));
        by__remote_entry_close(&other);
        BY_TRY(open_entry(f, error));
    }
    return has && !differs ? BY_OK : by__remote_put_block(f, 0, first, size, error);
}

/* Learns what a file is. */
static by_status learn(by__remote_file *f, by_error *error)
{
    int lock = -1;
    uint8_t *first;
    size_t size = 0;
    BY_TRY(
        by__remote_cache_lock_id(&lock, &f->remote->cache, f->id, &f->remote->client.stop, error));
    by_status status =
        by__alloc_aligned((void **)&first, BY__REMOTE_BLOCK, "a part of a remote file", error);
    if (status == BY_OK) {
        status = ask_version(f, first, &size, error);
        if (status == BY_OK && size > 0) {
            status = put_first(f, first, size, error);
            close_file(f); /* it is opened again when it is used */
        }
        free(first);
    }
    (void)close(lock);
    f->is_known = status == BY_OK;
    return status;
}

by_status by__remote_find(by__remote_file **out, by__remote *r, const char *url, by_error *error)
{
    by__remote_file *f;
    BY_TRY(by__remote_name(&f, r, url, error));
    (void)pthread_mutex_lock(&f->lock);
    by_status status = f->is_known ? BY_OK : learn(f, error);
    (void)pthread_mutex_unlock(&f->lock);
    if (status == BY_OK) {
        *out = f;
    }
    return status;
}

uint64_t by__remote_size(const by__remote_file *f)
{
    return f->version.size;
}

const char *by__remote_id(const by__remote_file *f)
{
    return f->id;
}

const char *by__remote_tag(const by__remote_file *f)
{
    return f->version.tag;
}

/* ---- entries in use ---- */

/* Closes the entries that were not used for longest, if too many are open. The remote is locked. */
static void close_idle(by__remote *r)
{
    while (r->open_count >= OPEN) {
        size_t oldest = SIZE_MAX;
        for (size_t i = 0; i < r->open_count; i++) {
            if (r->open[i]->users == 0 &&
                (oldest == SIZE_MAX || r->open[i]->used < r->open[oldest]->used)) {
                oldest = i;
            }
        }
        if (oldest == SIZE_MAX) {
            return;
        }
        close_file(r->open[oldest]);
        r->open[oldest] = r->open[--r->open_count];
    }
}

/* The entry is opened, and its file is in the list of those that are. */
static by_status open_listed(by__remote_file *f, by_error *error)
{
    by__remote *r = f->remote;
    int lock = -1;
    (void)pthread_mutex_lock(&r->lock);
    close_idle(r);
    by_status status = by__reserve((void **)&r->open, &r->open_capacity, r->open_count + 1,
                                   sizeof *r->open, error);
    if (status == BY_OK) {
        r->open[r->open_count++] = f;
    }
    (void)pthread_mutex_unlock(&r->lock);
    BY_TRY(status);
    status = by__remote_cache_lock_id(&lock, &r->cache, f->id, &r->client.stop, error);
    if (status == BY_OK) {
        status = open_entry(f, error);
        (void)close(lock);
    }
    if (status == BY_OK) {
        return BY_OK;
    }
    (void)pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->open_count; i++) {
        if (r->open[i] == f) {
            r->open[i] = r->open[--r->open_count];
            break;
        }
    }
    (void)pthread_mutex_unlock(&r->lock);
    return status;
}

/* Takes an entry that was removed out of the list, if this is the only user: it is made anew. */
static void leave_gone(by__remote_file *f)
{
    by__remote *r = f->remote;
    if (f->entry.data < 0 || !by__remote_entry_is_gone(&f->entry)) {
        return;
    }
    (void)pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->open_count && f->users == 1; i++) {
        if (r->open[i] == f) {
            r->open[i] = r->open[--r->open_count];
            close_file(f);
        }
    }
    (void)pthread_mutex_unlock(&r->lock);
}

by_status by__remote_acquire(by__remote_file *f, by_error *error)
{
    by__remote *r = f->remote;
    by_status status = BY_OK;
    double now = by__now();
    (void)pthread_mutex_lock(&r->lock);
    f->users++;
    bool touch = now - f->used > 1;
    f->used = now;
    (void)pthread_mutex_unlock(&r->lock);
    (void)pthread_mutex_lock(&f->lock);
    leave_gone(f);
    if (f->entry.data < 0) {
        status = open_listed(f, error);
    }
    if (status == BY_OK && touch) {
        (void)futimens(f->entry.blocks, NULL);
    }
    (void)pthread_mutex_unlock(&f->lock);
    if (status != BY_OK) {
        by__remote_release(f);
    }
    return status;
}

void by__remote_release(by__remote_file *f)
{
    by__remote *r = f->remote;
    (void)pthread_mutex_lock(&r->lock);
    f->users--;
    f->used = by__now();
    (void)pthread_mutex_unlock(&r->lock);
}

/* ---- local paths ---- */

/* Keeps the entry of a file in the cache, as long as the remote is open. */
static by_status pin(by__remote_file *f, by_error *error)
{
    for (int i = 0; i < 100; i++) {
        BY_TRY(by__remote_acquire(f, error));
        if (flock(f->entry.blocks, LOCK_SH) != 0) {
            by_status status = by__io_error(error, "lock", f->entry.path);
            by__remote_release(f);
            return status;
        }
        if (!by__remote_entry_is_gone(&f->entry)) {
            return BY_OK; /* and it stays acquired */
        }
        by__remote_release(f); /* it was removed just before */
    }
    return by_error_set(error, BY_EIO, "the cache %s loses files at once",
                        f->remote->cache.directory);
}

by_status by__remote_local(const char **out, by__remote_file *f, by_error *error)
{
    (void)pthread_mutex_lock(&f->lock);
    bool is_pinned = f->is_pinned;
    f->is_pinned = true;
    (void)pthread_mutex_unlock(&f->lock);
    if (!is_pinned) {
        by_status status = pin(f, error);
        if (status != BY_OK) {
            f->is_pinned = false;
            return status;
        }
    }
    BY_TRY(by__remote_fetch(f, error));
    *out = f->entry.path;
    return BY_OK;
}

by_status by__remote_path(const char **out, by__remote **remote, const by_remote_options *options,
                          const char *path, by_error *error)
{
    by__remote_file *file;
    if (!by_remote_is(path)) {
        *out = path;
        return BY_OK;
    }
    if (by__remote_is_folder(path)) {
        char shown[BY__REMOTE_SHOWN];
        return by_error_set(error, BY_ECONFIG, "%s is a folder: name its files",
                            by__remote_shown(shown, path));
    }
    if (*remote == NULL) {
        BY_TRY(by__remote_open(remote, options, error));
    }
    BY_TRY(by__remote_find(&file, *remote, path, error));
    return by__remote_local(out, file, error);
}
