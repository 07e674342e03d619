#include "data/pack/pack_join.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/paths.h"
#include "data/pack/pack_pieces.h"

#define WHOLE        "whole"
#define POLL_SECONDS 0.005

/* ---- living ranks ---- */

static by_status rank_path(char **out, const by__data_pack *pack, size_t rank, by_error *error)
{
    char name[40];
    (void)snprintf(name, sizeof name, "rank-%zu", rank);
    return by__path_make(out, pack->pieces, name, error);
}

static bool lock_file(int fd, int operation)
{
    int locked;
    do {
        locked = flock(fd, operation);
    } while (locked != 0 && errno == EINTR);
    return locked == 0;
}

by_status by__data_join_announce(const by__data_pack *pack, int *fd, by_error *error)
{
    char *path;
    BY_TRY(rank_path(&path, pack, pack->options.rank, error));
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    by_status status = BY_OK;
    if (*fd < 0 || !lock_file(*fd, LOCK_EX)) {
        status = by__io_error(error, "lock", path);
    }
    if (status != BY_OK && *fd >= 0) {
        (void)close(*fd);
    }
    free(path);
    return status;
}

static bool is_alive(const by__data_pack *pack, size_t rank)
{
    char *path;
    if (rank_path(&path, pack, rank, NULL) != BY_OK) {
        return false;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool alive = fd >= 0 && !lock_file(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
    if (fd >= 0) {
        (void)close(fd);
    }
    free(path);
    return alive;
}

/* ---- joining ---- */

/* Removes what the output no longer needs. Another rank that does so too, or still writes there as
 * it has not seen the output, may keep this from it: the output is whole all the same. */
static void remove_rest(const by__data_join *j)
{
    (void)by__remove_tree(j->partial, NULL);
}

static by_status join(const by__data_join *j, const by__data_pack *pack, by_pack_result *result,
                      by_error *error)
{
    char *whole;
    int fd;
    BY_TRY(by__path_make(&whole, j->partial, WHOLE, error));
    by_status status = by__data_pack_lock(pack, whole, j->output, &fd, error);
    if (status != BY_OK && by__path_exists(j->output)) {
        status = BY_OK; /* another rank has joined, and removed the directory of the lock */
        fd = -1;
    }
    result->complete = status == BY_OK;
    if (status == BY_OK && fd >= 0) {
        status =
            by__data_pack_write_locked(pack, j->tokenizer, fd, whole, j->output, result, error);
        (void)close(fd);
    }
    if (status == BY_OK) {
        remove_rest(j);
    }
    free(whole);
    return status;
}

by_status by__data_join_all(const by__data_join *j, by_pack_result *result, by_error *error)
{
    bool all;
    BY_TRY(by__data_pack_has_pieces(j->pack, j->tokenizer, &all, error));
    /* The directory of the pieces is removed after the output has appeared. */
    if (!all) {
        result->complete = by__path_exists(j->output);
        if (result->complete) {
            remove_rest(j); /* what this rank has encoded again */
        }
        return BY_OK;
    }
    return join(j, j->pack, result, error);
}

/* ---- on a thread ---- */

/* A damaged piece of an earlier try is encoded again. */
static bool has_piece(const by__data_pack *pack, uint64_t piece)
{
    bool is_whole;
    return by__data_piece_is_whole(&is_whole, pack->pieces, piece, NULL) == BY_OK && is_whole;
}

/* Returns false if nobody encodes the piece. */
static bool await_piece(void *context, uint64_t piece)
{
    by__data_joiner *joiner = context;
    const by__data_pack *pack = &joiner->pack;
    const by_pack_options *o = &pack->options;
    size_t owner = by__data_piece_owner(piece, o->ranks);
    bool exists = has_piece(pack, piece);
    bool may_come = true;
    by__base_worker_lock(&joiner->worker);
    while (!exists && may_come) {
        /* While this rank encodes, others may begin. A rank ends after it has written its pieces:
         * they are looked for once more after it was found to have ended. */
        may_come = !joiner->worker.stop &&
                   (!joiner->has_encoded || (owner != o->rank && is_alive(pack, owner)));
        exists = has_piece(pack, piece);
        if (!exists && may_come) {
            (void)by__base_worker_wait_seconds(&joiner->worker, POLL_SECONDS);
        }
    }
    by__base_worker_unlock(&joiner->worker);
    return exists;
}

static void *run_joiner(void *user)
{
    by__data_joiner *joiner = user;
    by_pack_result result = {0};
    by_error error = {0};
    by_status status = join(&joiner->join, &joiner->pack, &result, &error);
    by__base_worker_lock(&joiner->worker);
    joiner->result = result;
    joiner->error = error;
    joiner->status = status;
    joiner->has_ended = true;
    by__base_worker_notify(&joiner->worker);
    by__base_worker_unlock(&joiner->worker);
    return NULL;
}

by_status by__data_joiner_start(by__data_joiner *joiner, const by__data_join *j, by_error *error)
{
    joiner->join = *j;
    joiner->pack = *j->pack;
    joiner->pack.options.progress = NULL;
    joiner->pack.await_piece = await_piece;
    joiner->pack.await_context = joiner;
    return by__base_worker_start(&joiner->worker, run_joiner, joiner,
                                 "the thread that joins pieces", error);
}

by_status by__data_joiner_await(by__data_joiner *joiner, by_pack_result *result, by_error *error)
{
    const by_pack_options *o = &joiner->join.pack->options;
    const by_pack_progress progress = {"joining", joiner->pack.source.bytes,
                                       joiner->pack.source.bytes, 0};
    bool goes_on = true;
    by__base_worker_lock(&joiner->worker);
    joiner->has_encoded = true;
    while (!joiner->has_ended && goes_on) {
        (void)by__base_worker_wait_seconds(&joiner->worker, 0.05);
        by__base_worker_unlock(&joiner->worker);
        goes_on = o->progress == NULL || o->progress(o->user, &progress);
        by__base_worker_lock(&joiner->worker);
    }
    by__base_worker_unlock(&joiner->worker);
    by__base_worker_stop(&joiner->worker);
    if (!goes_on) {
        return by_error_set(error, BY_ESTOPPED, "stopped while joining what ranks have encoded");
    }
    if (joiner->status == BY_ESTOPPED) {
        return BY_OK; /* it gave up: others encode what is missing */
    }
    double learn_seconds = result->learn_seconds;
    *result = joiner->result;
    result->learn_seconds = learn_seconds;
    if (joiner->status != BY_OK && error != NULL) {
        *error = joiner->error;
    }
    return joiner->status;
}

void by__data_joiner_close(by__data_joiner *joiner)
{
    by__base_worker_close(&joiner->worker);
}
