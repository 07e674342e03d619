/* A link between ranks that are threads of one process, and the single rank of an ordinary
 * process. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"

/* ---- the link ---- */

/* Memory that is freed when the last of the threads that share it has released it. */
typedef struct thread_region {
    _Alignas(BY_CACHE_LINE) _Atomic int users;
    _Alignas(BY_CACHE_LINE) unsigned char data[];
} thread_region;

static by_status create(by__comm_job *job, size_t bytes, void **out, by__comm_region_handle *handle,
                        by_error *error)
{
    thread_region *made;
    BY_UNUSED(job);
    BY_TRY(
        by__alloc_aligned((void **)&made, sizeof *made + bytes, "shared memory of ranks", error));
    memset(made, 0, sizeof *made + bytes);
    atomic_store(&made->users, 1);
    handle->words[0] = (uint64_t)(uintptr_t)made;
    *out = made->data;
    return BY_OK;
}

static by_status attach(by__comm_job *job, const by__comm_region_handle *handle, size_t bytes,
                        void **out, by_error *error)
{
    thread_region *its = (thread_region *)(uintptr_t)handle->words[0];
    BY_UNUSED(job);
    BY_UNUSED(bytes);
    BY_UNUSED(error);
    (void)atomic_fetch_add(&its->users, 1);
    *out = its->data;
    return BY_OK;
}

static void release(void *data, size_t bytes)
{
    thread_region *its =
        (thread_region *)(void *)((unsigned char *)data - offsetof(thread_region, data));
    BY_UNUSED(bytes);
    if (atomic_fetch_sub(&its->users, 1) == 1) {
        free(its);
    }
}

static const by__comm_link threads_link = {
    .name = "threads",
    .direct = true,
    .region_create = create,
    .region_attach = attach,
    .region_release = release,
};

static const by__comm_link self_link = {
    .name = "self",
    .direct = true,
    .region_create = create,
    .region_attach = attach,
    .region_release = release,
};

/* ---- opening ---- */

/* The world of `ranks` threads as seen by rank `rank`. The blocks exist already. */
static by_status open_rank(by_comm **out, const by__comm_link *link, int rank, int ranks,
                           double timeout, const by__comm_region_handle *job_block,
                           const by__comm_region_handle *block, by_error *error)
{
    by__comm_job *job;
    int *worlds = NULL;
    by_comm *comm = NULL;
    BY_TRY(by__alloc((void **)&job, 1, sizeof *job, "ranks", error));
    job->link = link;
    atomic_store(&job->users, 1);
    (void)pthread_mutex_init(&job->watching, NULL);
    job->rank = rank;
    job->size = ranks;
    job->timeout = timeout;
    job->ids = INT32_MAX;
    job->next_id = 1;
    by_status status =
        by__alloc((void **)&job->ranks, (size_t)ranks, sizeof *job->ranks, "ranks", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&worlds, (size_t)ranks, sizeof *worlds, "ranks", error);
    }
    for (int r = 0; status == BY_OK && r < ranks; r++) {
        worlds[r] = r;
        job->ranks[r].near = r;
        if (gethostname(job->ranks[r].host, BY__COMM_HOST - 1) != 0) {
            (void)snprintf(job->ranks[r].host, BY__COMM_HOST, "localhost");
        }
    }
    if (status == BY_OK) {
        status = by__comm_make(&comm, job, worlds, ranks, 0, error);
    }
    if (status == BY_OK) {
        job->block_bytes = by__comm_job_block_bytes(ranks);
        (void)attach(job, job_block, job->block_bytes, (void **)&job->block, error);
        (void)attach(job, block, comm->block_bytes, (void **)&comm->block, error);
        *out = comm;
    }
    free(worlds);
    by__comm_job_release(job);
    return status;
}

static double timeout_of(const by_comm_options *options)
{
    return options != NULL && options->timeout > 0.0 ? options->timeout : 600.0;
}

/* Opens the communicators of all ranks. */
static by_status open_ranks(by_comm **comms, const by__comm_link *link, int ranks, double timeout,
                            by_error *error)
{
    by__comm_region_handle job_ticket;
    by__comm_region_handle handle;
    void *job_block;
    void *block;
    BY_TRY(create(NULL, by__comm_job_block_bytes(ranks), &job_block, &job_ticket, error));
    by_status status = create(NULL, by__comm_block_bytes(ranks, ranks), &block, &handle, error);
    if (status == BY_OK) {
        for (int r = 0; status == BY_OK && r < ranks; r++) {
            status = open_rank(&comms[r], link, r, ranks, timeout, &job_ticket, &handle, error);
        }
        release(block, 0);
    }
    release(job_block, 0);
    for (int r = 0; status != BY_OK && r < ranks; r++) {
        if (comms[r] != NULL) {
            by__comm_free(&comms[r]);
        }
    }
    return status;
}

/* ---- ranks as threads ---- */

typedef struct rank_thread {
    by_status (*rank_main)(by_comm *comm, void *user, by_error *error);
    void *user;
    by_comm *comm;
    by_status status;
    by_error error;
    pthread_t thread;
} rank_thread;

static void *run_rank(void *argument)
{
    rank_thread *rank = argument;
    rank->status = rank->rank_main(rank->comm, rank->user, &rank->error);
    (void)by_comm_fail(rank->comm, rank->status, &rank->error);
    by_comm_close(&rank->comm);
    return NULL;
}

/* Runs the threads; `first` is set to the rank that failed first, if any. */
static void run_all(rank_thread *threads, int ranks, int *first)
{
    /* Kept to find out who failed after the ranks have closed theirs. */
    by__comm_job *job = threads[0].comm->job;
    int started = 0;
    (void)atomic_fetch_add(&job->users, 1);
    for (; started < ranks; started++) {
        if (pthread_create(&threads[started].thread, NULL, run_rank, &threads[started]) != 0) {
            break;
        }
    }
    for (int r = started; r < ranks; r++) {
        rank_thread *t = &threads[r];
        t->status = by_error_set(&t->error, BY_EIO, "cannot start a thread for rank %d", r);
        (void)by_comm_fail(t->comm, t->status, &t->error);
        by_comm_close(&t->comm);
    }
    for (int r = 0; r < started; r++) {
        (void)pthread_join(threads[r].thread, NULL);
    }
    *first = by__comm_job_failed(job) ? job->block->rank : 0;
    by__comm_job_release(job);
}

by_status by_comm_run_threads(int ranks, const by_comm_options *options,
                              by_status (*rank_main)(by_comm *comm, void *user, by_error *error),
                              void *user, by_error *error)
{
    rank_thread *threads = NULL;
    by_comm **comms = NULL;
    if (ranks < 1) {
        return by_error_set(error, BY_EARG, "%d ranks: at least 1", ranks);
    }
    by_status status = by__alloc((void **)&threads, (size_t)ranks, sizeof *threads, "ranks", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&comms, (size_t)ranks, sizeof *comms, "ranks", error);
    }
    if (status == BY_OK) {
        status = open_ranks(comms, &threads_link, ranks, timeout_of(options), error);
    }
    if (status == BY_OK) {
        int first;
        for (int r = 0; r < ranks; r++) {
            threads[r].rank_main = rank_main;
            threads[r].user = user;
            threads[r].comm = comms[r];
        }
        run_all(threads, ranks, &first);
        for (int i = 0; i < ranks && status == BY_OK; i++) {
            const rank_thread *t = &threads[(first + i) % ranks];
            status = t->status;
            if (status != BY_OK && error != NULL) {
                *error = t->error;
            }
        }
    }
    free(threads);
    free(comms);
    return status;
}

/* ---- the world of a process ---- */

/* srun without a process manager starts tasks that cannot find each other: each would be a separate
 * job. */
static by_status check_srun(by_error *error)
{
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    if (tasks != NULL && atoi(tasks) > 1) {
        return by_error_set(error, BY_EARG,
                            "srun started %.10s tasks, but nothing that connects them: use srun "
                            "--mpi=pmix, or mpirun inside of sbatch",
                            tasks);
    }
    return BY_OK;
}

by_status by_comm_open(by_comm **out, const by_comm_options *options, by_error *error)
{
    const char *backend = options == NULL ? NULL : options->backend;
    if (backend == NULL) {
        backend = by__comm_launched() ? "mpi" : "self";
        if (!by__comm_launched()) {
            BY_TRY(check_srun(error));
        }
    }
    if (strcmp(backend, "mpi") == 0) {
        return by__comm_open_mpi(out, timeout_of(options), error);
    }
    if (strcmp(backend, "self") != 0) {
        return by_error_set(error, BY_EARG,
                            "there is no backend \"%s\" of communicators: self or mpi", backend);
    }
    by_comm *comm = NULL;
    BY_TRY(open_ranks(&comm, &self_link, 1, timeout_of(options), error));
    *out = comm;
    return BY_OK;
}
