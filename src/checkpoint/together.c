/* Saving of a checkpoint by all ranks of a communicator. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"

/* A rank's result. */
typedef struct verdict {
    int32_t status;
    char message[508];
} verdict;

static verdict verdict_of(by_status status, const by_error *error)
{
    verdict v = {.status = status};
    if (status != BY_OK && error != NULL) {
        (void)snprintf(v.message, sizeof v.message, "%s", error->message);
    }
    return v;
}

/* Returns the status of the first rank that failed; the error on other ranks names it. */
static by_status join_verdicts(by_comm *comm, const verdict *all, by_status mine, by_error *error)
{
    for (int rank = 0; rank < by_comm_size(comm) && mine == BY_OK; rank++) {
        if (all[rank].status != BY_OK) {
            return by_error_set(error, (by_status)all[rank].status, "rank %d (%s): %s", rank,
                                by_comm_host(comm, rank), all[rank].message);
        }
    }
    return mine;
}

/* Collective: BY_OK if it is that on all ranks. */
static by_status agree(by_comm *comm, by_status mine, by_error *error)
{
    by_error local = {0};
    verdict *all;
    size_t *counts;
    size_t ranks = (size_t)by_comm_size(comm);
    error = error == NULL ? &local : error;
    verdict own = verdict_of(mine, error);
    BY_TRY(by__alloc((void **)&all, ranks, sizeof *all, "a checkpoint", error));
    by_status status = by__alloc((void **)&counts, ranks, sizeof *counts, "a checkpoint", error);
    if (status == BY_OK) {
        for (size_t i = 0; i < ranks; i++) {
            counts[i] = sizeof own;
        }
        status = by_comm_all_gather(comm, &own, all, counts, BY_U8, "a checkpoint", error);
    }
    if (status == BY_OK) {
        status = join_verdicts(comm, all, mine, error);
    }
    free(counts);
    free(all);
    return status;
}

/* Collective: all ranks return the status of rank 0, given as `mine`; *token is set to its
 * number. */
static by_status follow(by_comm *comm, by_status mine, uint64_t *token, by_error *error)
{
    struct {
        verdict verdict;
        uint64_t token;
    } first = {verdict_of(mine, error), *token};
    BY_TRY(by_comm_broadcast(comm, &first, sizeof first, BY_U8, 0, "a checkpoint", error));
    *token = first.token;
    if (by_comm_rank(comm) == 0 || first.verdict.status == BY_OK) {
        return mine;
    }
    return by_error_set(error, (by_status)first.verdict.status, "rank 0 (%s): %s",
                        by_comm_host(comm, 0), first.verdict.message);
}

static bool is_single(const by_comm *comm)
{
    return comm == NULL || by_comm_size(comm) == 1;
}

by_status by__checkpoint_follow(by_comm *comm, by_status mine, by_error *error)
{
    uint64_t token = 0;
    by_error local = {0};
    return is_single(comm) ? mine : follow(comm, mine, &token, error == NULL ? &local : error);
}

by_status by__checkpoint_begin_together(by_checkpoint_writer **out, by_comm *comm, int writer,
                                        const char *root, uint64_t step,
                                        const by_checkpoint_layout *layout, by_error *error)
{
    by_checkpoint_writer *w = NULL;
    by_status status = BY_OK;
    uint64_t token = 0;
    by_error local = {0};
    error = error == NULL ? &local : error;
    *out = NULL;
    if (is_single(comm)) {
        return by_checkpoint_begin(out, root, step, layout, error);
    }
    if (by_comm_rank(comm) == 0) {
        status = by_checkpoint_begin(&w, root, step, layout, error);
        token = status == BY_OK ? by_checkpoint_token(w) : 0;
    }
    status = follow(comm, status, &token, error);
    if (status == BY_OK) {
        if (writer > 0) {
            status = by_checkpoint_join(&w, root, step, layout, writer, token, error);
        }
        status = agree(comm, status, error);
    }
    if (status != BY_OK) {
        by_checkpoint_abandon(&w);
    }
    *out = w;
    return status;
}

by_status by__checkpoint_commit_together(by_checkpoint_writer **writer, by_comm *comm,
                                         by_status mine, const by_checkpoint_value *values,
                                         size_t value_count, const by_checkpoint_file *files,
                                         size_t file_count, by_error *error)
{
    by_error local = {0};
    error = error == NULL ? &local : error;
    bool leads = is_single(comm) || by_comm_rank(comm) == 0;
    if (!leads && *writer != NULL && mine == BY_OK) {
        mine = by_checkpoint_finish(writer, error);
    }
    if (!is_single(comm)) {
        mine = agree(comm, mine, error);
    }
    if (leads && mine == BY_OK) {
        mine = by_checkpoint_commit(writer, values, value_count, files, file_count, error);
    } else if (mine != BY_OK) {
        by_checkpoint_abandon(writer);
        return mine;
    }
    return by__checkpoint_follow(comm, mine, error);
}
