/* The files of a by__remote, and what fetches their blocks (remote_file.c, remote_fetch.c). */
#ifndef BY_REMOTE_REMOTE_FILES_H
#define BY_REMOTE_REMOTE_FILES_H

#include <pthread.h>

#include "base/name_table.h"
#include "base/worker_thread.h"
#include "remote/remote_cache.h"
#include "remote/remote_get.h"

struct by__remote_file {
    by__remote *remote;
    char *url;
    char id[33];
    by__remote_target target;
    pthread_mutex_t lock; /* of what follows, and of opening the entry */
    bool is_known;
    by__remote_version version;
    by__remote_entry entry;   /* open while `users` is not 0, and some time more */
    _Atomic uint8_t *checked; /* for each block: its hash was found right */
    bool is_pinned;           /* the entry stays: a local path was given out */
    /* Under the lock of the remote. */
    size_t users;
    double used;
};

struct by__remote {
    by__remote_client client;
    by__remote_cache cache;
    by_remote_options options; /* only what is told and asked, and the users of that */
    pthread_mutex_t lock;      /* of what follows */
    by__remote_file **files;
    size_t count;
    size_t capacity;
    by__name_table names;
    by__remote_file **open; /* files whose entries are open */
    size_t open_count;
    size_t open_capacity;
    pthread_mutex_t telling; /* progress */
    uint64_t fetched;        /* bytes of the files that are fetched whole, */
    uint64_t wanted;         /* and how many there will be */
    double told;             /* when that was last said */
    bool stopped;            /* as `progress` or `stop` asked for */
    by__base_worker ahead;   /* fetches what was asked for ahead: */
    by__remote_file **queue;
    size_t queue_count;
};

/* Number of blocks of a file. */
static inline size_t by__remote_blocks(const by__remote_file *f)
{
    return (size_t)((f->version.size + BY__REMOTE_BLOCK - 1) / BY__REMOTE_BLOCK);
}

/* Opens the entry of a file and keeps it open until it is released. */
by_status by__remote_acquire(by__remote_file *f, by_error *error);
void by__remote_release(by__remote_file *f);
/* Tells of progress while nothing comes, at most twice a second; returns whether it asked to stop.
 * `user`: the by__remote. */
bool by__remote_poll(void *user);
/* Sets what is known of a file, as a list says it. */
void by__remote_know(by__remote_file *f, uint64_t size, const char *tag);
/* The file of a URL, of which the server is not asked. */
by_status by__remote_name(by__remote_file **out, by__remote *remote, const char *url,
                          by_error *error);

/* ---- remote_fetch.c: of an acquired file ---- */

/* Whether a block is there and right. */
bool by__remote_has(by__remote_file *f, size_t block, uint8_t *scratch);
/* Fetches those of the blocks [first, first + count) that are missing, unless another process or
 * thread does. */
by_status by__remote_fetch_blocks(by__remote_file *f, size_t first, size_t count, by_error *error);
/* Writes a block that has come with something else. */
by_status by__remote_put_block(by__remote_file *f, size_t block, const uint8_t *data, size_t size,
                               by_error *error);

#endif
