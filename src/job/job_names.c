#include "job/job_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/name_table.h"

int by__job_ranks(const by__job *job)
{
    return job->comm == NULL ? 1 : by_comm_size(job->comm);
}

/* Gathers what all ranks send into out; names->counts has the bytes of each. */
static by_status gather(const by__job_names *names, const by__job *job, const void *mine, void *out,
                        const char *what, by_error *error)
{
    if (job->comm == NULL) {
        memcpy(out, mine, names->counts[0]);
        return BY_OK;
    }
    return by_comm_all_gather(job->comm, mine, out, names->counts, BY_U8, what, error);
}

by_status by__job_gather(by__job_names *names, const by__job *job, const void *mine, void *out,
                         size_t bytes, const char *what, by_error *error)
{
    for (int r = 0; r < by__job_ranks(job); r++) {
        names->counts[r] = bytes;
    }
    return gather(names, job, mine, out, what, error);
}

by_status by__job_names_gather(by__job_names *names, const by__job *job, const double *mine,
                               double *out, size_t width, const char *what, by_error *error)
{
    for (int r = 0; r < by__job_ranks(job); r++) {
        names->counts[r] = names->told[r] * width * sizeof *mine;
    }
    return gather(names, job, mine, out, what, error);
}

/* Exchanges the bytes and the number of names of each rank. */
static by_status gather_sizes(by__job_names *n, const by__job *job, size_t bytes, size_t own,
                              const char *what, by_error *error)
{
    uint64_t mine[2] = {bytes, own};
    uint64_t *all;
    size_t ranks = (size_t)by__job_ranks(job);
    BY_TRY(by__alloc((void **)&n->counts, ranks, sizeof *n->counts, what, error));
    BY_TRY(by__alloc((void **)&n->told, ranks, sizeof *n->told, what, error));
    BY_TRY(by__alloc((void **)&all, ranks, sizeof mine, what, error));
    by_status status = by__job_gather(n, job, mine, all, sizeof mine, what, error);
    for (size_t r = 0; r < ranks && status == BY_OK; r++) {
        n->counts[r] = (size_t)all[2 * r];
        n->told[r] = (size_t)all[2 * r + 1];
        n->all += n->told[r];
    }
    free(all);
    return status;
}

/* Finds equal names. */
static by_status merge(by__job_names *n, const char *what, by_error *error)
{
    by__name_table table = {0};
    by_status status = BY_OK;
    const char *name = n->text;
    BY_TRY(by__alloc((void **)&n->row, n->all + 1, sizeof *n->row, what, error));
    BY_TRY(by__alloc((void **)&n->names, n->all + 1, sizeof *n->names, what, error));
    for (size_t i = 0; i < n->all && status == BY_OK; i++, name += strlen(name) + 1) {
        int32_t row = by__name_table_find(&table, name);
        if (row < 0) {
            row = (int32_t)n->count++;
            n->names[row] = name;
            status = by__name_table_add(&table, name, row, error);
        }
        n->row[i] = row;
    }
    by__name_table_free(&table);
    return status;
}

by_status by__job_names_open(by__job_names *out, const by__job *job, const by_string *own,
                             size_t count, const char *what, by_error *error)
{
    size_t bytes = 0;
    *out = (by__job_names){.names = NULL};
    if (own->failed) {
        return by_error_set(error, BY_EMEMORY, "out of memory: %s", what);
    }
    BY_TRY(gather_sizes(out, job, own->length, count, what, error));
    for (int r = 0; r < by__job_ranks(job); r++) {
        bytes += out->counts[r];
    }
    BY_TRY(by__alloc((void **)&out->text, bytes + 1, 1, what, error));
    BY_TRY(gather(out, job, own->data == NULL ? "" : own->data, out->text, what, error));
    return merge(out, what, error);
}

void by__job_names_close(by__job_names *names)
{
    free(names->names);
    free(names->row);
    free(names->told);
    free(names->counts);
    free(names->text);
    *names = (by__job_names){.names = NULL};
}
