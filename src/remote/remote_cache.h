/* The directory of fetched files (remote_cache.c).
 *
 *   lock          8 bytes: how many bytes the entries hold. Ranges of it are locked: these 8, and
 *                 one far behind them for each URL that is being found
 *   ID/NAME       a file, with holes for what is missing; ID is a hash of its URL
 *   ID/.blocks    a head of BY__REMOTE_HEAD bytes, then 8 bytes for each block: its hash, or 0
 *   .new-*        an entry that is being made, and gets its name when it is complete
 *   .gone-*       one that is being removed
 *
 * The time of change of .blocks is that of the last use. Locks are those of open file descriptions
 * (fcntl, F_OFD_SETLKW), which other processes and other threads wait for alike, and which end with
 * whoever holds them. An entry that is locked by flock is in use, and stays. */
#ifndef BY_REMOTE_REMOTE_CACHE_H
#define BY_REMOTE_REMOTE_CACHE_H

#include "remote/remote.h"
#include "remote/remote_transfer.h"

#define BY__REMOTE_HEAD 512

typedef struct by__remote_cache {
    char *directory;
    char *lock;     /* path of the file of locks */
    uint64_t limit; /* bytes */
} by__remote_cache;

/* What the head of .blocks says. */
typedef struct by__remote_version {
    uint64_t size;
    char tag[BY__REMOTE_TAG];
} by__remote_version;

/* An open entry. */
typedef struct by__remote_entry {
    int data;
    int blocks;
    char *path; /* of the file */
} by__remote_entry;

by_status by__remote_cache_open(by__remote_cache *cache, const by_remote_options *options,
                                by_error *error);
void by__remote_cache_close(by__remote_cache *cache);
/* Locks bytes of a file; closing *out unlocks them. stop: asked while another holds them, which
 * may be as long as a request takes, so that whoever waits tells of it and can be stopped
 * (BY_ESTOPPED); NULL: they are held for a moment only. */
by_status by__remote_lock(int *out, const char *path, uint64_t begin, uint64_t count,
                          by__remote_stop *stop, by_error *error);
/* Locks what belongs to a URL while it is found, by its id. */
by_status by__remote_cache_lock_id(int *out, const by__remote_cache *cache, const char *id,
                                   by__remote_stop *stop, by_error *error);
/* Counts bytes that an entry is about to hold, and removes others that were not used for longest if
 * they do not fit. BY_EIO: all the others are in use. */
by_status by__remote_cache_reserve(const by__remote_cache *cache, const char *id, uint64_t bytes,
                                   by_error *error);

/* Reads the head of an entry; false: there is none, or it is damaged. */
bool by__remote_entry_version(by__remote_version *out, const by__remote_cache *cache,
                              const char *id);
/* Opens the entry of this version; if there is none, makes it without blocks, in the place of any
 * other version. The id is locked. */
by_status by__remote_entry_open(by__remote_entry *out, const by__remote_cache *cache,
                                const char *id, const char *name, const by__remote_version *version,
                                by_error *error);
/* Whether its directory has been removed. */
bool by__remote_entry_is_gone(const by__remote_entry *entry);
void by__remote_entry_close(by__remote_entry *entry);

/* Parses a head; false: it is none. */
bool by__remote_head_parse(by__remote_version *out, const uint8_t head[BY__REMOTE_HEAD]);
void by__remote_head_print(uint8_t head[BY__REMOTE_HEAD], const by__remote_version *version);

#endif
