/* A link between ranks that are processes started by MPI.
 *
 * Ranks of one host share memory through a memfd that the first of them creates, and reach each
 * other's buffers with process_vm_readv and writev (cross-memory attach). If the kernel refuses
 * either (containers without CAP_SYS_PTRACE, other user), the ranks of that host are far to each
 * other. A host is a kernel and a network namespace. Messages between hosts are MPI's: a lock lets
 * one thread at a time into MPI (MPI_THREAD_SERIALIZED), and waiting threads make progress on
 * them. */
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm/process_memory.h"

/* Data that ranks exchange when the job begins. */
typedef struct introduction {
    char host[BY__COMM_HOST];
    uint64_t kernel; /* equal on one host */
    uint64_t token;
    uint64_t token_address;
    int64_t pid;
} introduction;

/* The reason of a failure, for far ranks. */
typedef struct news {
    int32_t rank;
    int32_t status;
    char message[sizeof((by_error *)0)->message];
} news;

typedef struct mpi_state {
    MPI_Comm data;
    MPI_Comm control;
    introduction *ranks;
    news received; /* of another rank's failure */
    MPI_Request receiving;
    news sent; /* of a failure of this rank */
    uint64_t token;
} mpi_state;

/* MPI exists once per process, and so do its lock and its lifetime. */
static struct {
    pthread_mutex_t lock;
    int users;
    bool ours; /* initialized by this library */
} mpi = {.lock = PTHREAD_MUTEX_INITIALIZER};

static by_status mpi_error(by_error *error, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    (void)MPI_Error_string(code, text, &length);
    return by_error_set(error, BY_EPEER, "MPI cannot %s: %.300s", what, text);
}

/* ---- memory of near ranks ---- */

static by_status region_create(by__comm_job *job, size_t bytes, void **out,
                               by__comm_region_handle *handle, by_error *error)
{
    const mpi_state *state = job->state;
    return by__comm_shared_create(bytes, state->token, out, handle, error);
}

static by_status region_attach(by__comm_job *job, const by__comm_region_handle *handle,
                               size_t bytes, void **out, by_error *error)
{
    BY_UNUSED(job);
    return by__comm_shared_attach(handle, bytes, out, error);
}

static by_status copy_rank(by__comm_job *job, int world, void *here, uint64_t address, size_t bytes,
                           bool to, by_error *error)
{
    const mpi_state *state = job->state;
    if (by__comm_process_copy((pid_t)state->ranks[world].pid, here, address, bytes, to) != BY_OK) {
        return by_error_set(error, BY_EPEER, "cannot %s memory of rank %d (%s, process %lld): %s",
                            to ? "write" : "read", world, job->ranks[world].host,
                            (long long)state->ranks[world].pid, strerror(errno));
    }
    return BY_OK;
}

static by_status read_rank(by__comm_job *job, int world, void *out, uint64_t address, size_t bytes,
                           by_error *error)
{
    return copy_rank(job, world, out, address, bytes, false, error);
}

static by_status write_rank(by__comm_job *job, int world, const void *data, uint64_t address,
                            size_t bytes, by_error *error)
{
    return copy_rank(job, world, (void *)(uintptr_t)data, address, bytes, true, error);
}

/* ---- messages ---- */

static by_status post(by__comm_flight *flight, bool receive, int world, uint32_t tag, void *data,
                      size_t bytes, by_error *error)
{
    const mpi_state *state = flight->job->state;
    BY_TRY(by__reserve(&flight->requests, &flight->request_capacity, flight->count + 1,
                       sizeof(MPI_Request), error));
    MPI_Request *request = (MPI_Request *)flight->requests + flight->count;
    (void)pthread_mutex_lock(&mpi.lock);
    int code = receive
                   ? MPI_Irecv(data, (int)bytes, MPI_BYTE, world, (int)tag, state->data, request)
                   : MPI_Isend(data, (int)bytes, MPI_BYTE, world, (int)tag, state->data, request);
    (void)pthread_mutex_unlock(&mpi.lock);
    return code == MPI_SUCCESS ? BY_OK : mpi_error(error, code, receive ? "receive" : "send");
}

static by_status test(by__comm_flight *flight, by_error *error)
{
    enum { SOME = 64 };
    int done[SOME];
    MPI_Request *requests = flight->requests;
    int code = MPI_SUCCESS;
    (void)pthread_mutex_lock(&mpi.lock);
    for (size_t at = 0; at < flight->count && code == MPI_SUCCESS; at += SOME) {
        int n = flight->count - at < SOME ? (int)(flight->count - at) : SOME;
        int count = 0;
        code = MPI_Testsome(n, requests + at, &count, done, MPI_STATUSES_IGNORE);
        for (int i = 0; code == MPI_SUCCESS && count != MPI_UNDEFINED && i < count; i++) {
            flight->entries[at + (size_t)done[i]].done = true;
            flight->left--;
        }
    }
    (void)pthread_mutex_unlock(&mpi.lock);
    return code == MPI_SUCCESS ? BY_OK : mpi_error(error, code, "exchange messages");
}

/* The job has failed: it does not matter any more whether a message arrives. */
static void cancel(by__comm_flight *flight)
{
    MPI_Request *requests = flight->requests;
    (void)pthread_mutex_lock(&mpi.lock);
    for (size_t i = 0; i < flight->count; i++) {
        if (requests[i] != MPI_REQUEST_NULL) {
            if (flight->entries[i].receive) {
                (void)MPI_Cancel(&requests[i]);
            }
            (void)MPI_Request_free(&requests[i]);
        }
    }
    (void)pthread_mutex_unlock(&mpi.lock);
    flight->count = 0;
    flight->left = 0;
}

static void pump(by__comm_job *job)
{
    mpi_state *state = job->state;
    int arrived = 0;
    if (pthread_mutex_trylock(&mpi.lock) != 0) {
        return; /* another thread is doing it */
    }
    if (state->receiving != MPI_REQUEST_NULL) {
        (void)MPI_Test(&state->receiving, &arrived, MPI_STATUS_IGNORE);
    }
    (void)pthread_mutex_unlock(&mpi.lock);
    if (arrived && state->received.rank >= 0 && state->received.rank < job->size) {
        state->received.message[sizeof state->received.message - 1] = '\0';
        by__comm_job_fail(job, state->received.rank, (by_status)state->received.status,
                          state->received.message, false);
    }
}

static void sleep_ms(long ms)
{
    struct timespec time = {0, ms * 1000000};
    (void)nanosleep(&time, NULL);
}

static void send_failure(by__comm_job *job)
{
    enum { TRIES = 200 };
    mpi_state *state = job->state;
    state->sent = (news){.rank = job->block->rank, .status = job->block->status};
    memcpy(state->sent.message, job->block->message, sizeof state->sent.message);
    for (int r = 0; r < job->size; r++) {
        MPI_Request request;
        int sent = 0;
        if (job->ranks[r].near >= 0) {
            continue;
        }
        (void)pthread_mutex_lock(&mpi.lock);
        int code =
            MPI_Isend(&state->sent, sizeof state->sent, MPI_BYTE, r, 0, state->control, &request);
        (void)pthread_mutex_unlock(&mpi.lock);
        /* An unreachable rank must not delay the others. */
        for (int i = 0; code == MPI_SUCCESS && !sent && i < TRIES; i++) {
            (void)pthread_mutex_lock(&mpi.lock);
            code = MPI_Test(&request, &sent, MPI_STATUS_IGNORE);
            (void)pthread_mutex_unlock(&mpi.lock);
            if (!sent) {
                sleep_ms(1);
            }
        }
    }
}

/* ---- beginning and end ---- */

static by_status start_mpi(by_error *error)
{
    int initialised = 0;
    int finalised = 0;
    int provided = MPI_THREAD_SINGLE;
    (void)MPI_Initialized(&initialised);
    (void)MPI_Finalized(&finalised);
    if (finalised) {
        return by_error_set(error, BY_ESTATE,
                            "MPI was ended in this process and cannot begin again");
    }
    if (initialised) {
        (void)MPI_Query_thread(&provided);
    } else {
        int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
        if (code != MPI_SUCCESS) {
            return mpi_error(error, code, "start");
        }
        mpi.ours = true;
    }
    if (provided < MPI_THREAD_SERIALIZED) {
        return by_error_set(error, BY_ESTATE,
                            "MPI lets only one thread call it (level %d); MPI_THREAD_SERIALIZED is "
                            "needed",
                            provided);
    }
    return BY_OK;
}

static void end_mpi(bool failed)
{
    /* After a failure MPI_Finalize would wait for ranks that are gone: mpirun ends the job. */
    if (--mpi.users == 0 && mpi.ours && !failed) {
        (void)MPI_Finalize();
    }
}

/* Gives the other ranks of this host time to learn of the failure before this process ends, because
 * mpirun then ends all of them. */
static void linger(by__comm_job *job)
{
    enum { TRIES = 2000 };
    int near = 0;
    for (int r = 0; r < job->size; r++) {
        near += job->ranks[r].near >= 0;
    }
    (void)atomic_fetch_add(&job->block->gone, 1);
    for (int i = 0; i < TRIES && (int)atomic_load(&job->block->gone) < near; i++) {
        sleep_ms(1);
    }
    sleep_ms(near < job->size ? 500 : 20);
}

static void close_job(by__comm_job *job)
{
    mpi_state *state = job->state;
    bool failed = job->block == NULL || by__comm_job_failed(job);
    if (job->block != NULL && failed) {
        linger(job);
    }
    (void)pthread_mutex_lock(&mpi.lock);
    if (state->receiving != MPI_REQUEST_NULL) {
        (void)MPI_Cancel(&state->receiving);
        if (failed) {
            (void)MPI_Request_free(&state->receiving);
        } else {
            (void)MPI_Wait(&state->receiving, MPI_STATUS_IGNORE);
        }
    }
    if (!failed) {
        (void)MPI_Comm_free(&state->data);
        (void)MPI_Comm_free(&state->control);
    }
    end_mpi(failed);
    (void)pthread_mutex_unlock(&mpi.lock);
    free(state->ranks);
    free(state);
}

static by_status native(by__comm_job *job, float *data, size_t count, by_error *error)
{
    const mpi_state *state = job->state;
    (void)pthread_mutex_lock(&mpi.lock);
    int code = MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, state->data);
    (void)pthread_mutex_unlock(&mpi.lock);
    return code == MPI_SUCCESS ? BY_OK : mpi_error(error, code, "sum");
}

static const by__comm_link mpi_link = {
    .name = "mpi",
    .region_create = region_create,
    .region_attach = region_attach,
    .region_release = by__comm_shared_release,
    .read = read_rank,
    .write = write_rank,
    .post = post,
    .test = test,
    .cancel = cancel,
    .pump = pump,
    .notify_failure = send_failure,
    .native = native,
    .close = close_job,
};

/* MPI reports its version at any time. */
void by_comm_library_describe(by_comm_library *out)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    int initialised = 0;
    int provided = MPI_THREAD_SINGLE;
    *out = (by_comm_library){.thread_level = ""};
    (void)MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    (void)snprintf(out->version, sizeof out->version, "%.90s", text);
    (void)MPI_Initialized(&initialised);
    if (initialised) {
        (void)MPI_Query_thread(&provided);
        out->thread_level = provided == MPI_THREAD_MULTIPLE     ? "multiple"
                            : provided == MPI_THREAD_SERIALIZED ? "serialized"
                            : provided == MPI_THREAD_FUNNELED   ? "funneled"
                                                                : "single";
    }
}

/* ---- opening ---- */

/* Equal for processes of one kernel and network namespace. BANYAN_COMM_FAR=N divides the ranks into
 * hosts of N ranks each, to test communication between hosts. */
static uint64_t kernel_id(int rank)
{
    const char *far = getenv("BANYAN_COMM_FAR");
    int each = far != NULL ? atoi(far) : 0;
    char id[128] = "";
    ssize_t n = 0;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, id, 64);
        n = n < 0 ? 0 : n;
        (void)close(fd);
    }
    ssize_t m = readlink("/proc/self/ns/net", id + n, sizeof id - (size_t)n);
    uint64_t hash = by__hash64(id, (size_t)n + (m > 0 ? (size_t)m : 0));
    return each > 0 ? hash + (uint64_t)(rank / each) : hash;
}

static by_status introduce(by__comm_job *job, by_error *error)
{
    mpi_state *state = job->state;
    introduction mine = {.pid = getpid(), .kernel = kernel_id(job->rank)};
    state->token = (uint64_t)mine.pid << 32 ^ (uint64_t)(by__now() * 1e9);
    mine.token = state->token;
    mine.token_address = (uint64_t)(uintptr_t)&state->token;
    if (gethostname(mine.host, BY__COMM_HOST - 1) != 0) {
        (void)snprintf(mine.host, sizeof mine.host, "unknown");
    }
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    BY_TRY(
        by__alloc((void **)&state->ranks, (size_t)job->size, sizeof *state->ranks, "ranks", error));
    BY_TRY(by__alloc((void **)&job->ranks, (size_t)job->size, sizeof *job->ranks, "ranks", error));
    int code = MPI_Allgather(&mine, sizeof mine, MPI_BYTE, state->ranks, sizeof mine, MPI_BYTE,
                             state->data);
    if (code != MPI_SUCCESS) {
        return mpi_error(error, code, "gather the ranks' hosts");
    }
    for (int r = 0; r < job->size; r++) {
        memcpy(job->ranks[r].host, state->ranks[r].host, BY__COMM_HOST);
    }
    return BY_OK;
}

/* Returns true if this rank can read the memory of all ranks of its host. */
static bool can_read_host(const by__comm_job *job)
{
    const mpi_state *state = job->state;
    const introduction *mine = &state->ranks[job->rank];
    for (int r = 0; r < job->size; r++) {
        const introduction *its = &state->ranks[r];
        uint64_t token = 0;
        if (its->kernel == mine->kernel && r != job->rank &&
            (by__comm_process_copy((pid_t)its->pid, &token, its->token_address, sizeof token,
                                   false) != BY_OK ||
             token != its->token)) {
            return false;
        }
    }
    return true;
}

/* The first rank of a rank's host, or the rank itself if one of them cannot read the others. */
static int group_of(const by__comm_job *job, const int32_t *can, int rank)
{
    const mpi_state *state = job->state;
    int first = -1;
    for (int r = 0; r < job->size; r++) {
        if (state->ranks[r].kernel != state->ranks[rank].kernel) {
            continue;
        }
        if (!can[r]) {
            return rank;
        }
        first = first < 0 ? r : first;
    }
    return first;
}

/* Ranks of a host are near if all of them can read each other's memory. */
static by_status find_near(by__comm_job *job, by_error *error)
{
    const mpi_state *state = job->state;
    int32_t *can;
    int32_t mine = can_read_host(job);
    int near = 0;
    BY_TRY(by__alloc((void **)&can, (size_t)job->size, sizeof *can, "ranks", error));
    int code = MPI_Allgather(&mine, sizeof mine, MPI_BYTE, can, sizeof mine, MPI_BYTE, state->data);
    for (int r = 0; r < job->size; r++) {
        job->ranks[r].group = group_of(job, can, r);
    }
    for (int r = 0; r < job->size; r++) {
        bool here = job->ranks[r].group == job->ranks[job->rank].group;
        job->ranks[r].near = here ? near++ : -1;
    }
    free(can);
    return code == MPI_SUCCESS ? BY_OK : mpi_error(error, code, "gather the ranks' hosts");
}

/* Shares the two blocks of this host: the job's and the world's. */
static by_status share_blocks(by__comm_job *job, by_comm *comm, by_error *error)
{
    mpi_state *state = job->state;
    by__comm_region_handle mine[2] = {{{0}}};
    by__comm_region_handle *all;
    by_status status = BY_OK;
    job->block_bytes = by__comm_job_block_bytes(comm->near_count);
    if (comm->my_near == 0) {
        status = region_create(job, job->block_bytes, (void **)&job->block, &mine[0], error);
        if (status == BY_OK) {
            status = region_create(job, comm->block_bytes, (void **)&comm->block, &mine[1], error);
        }
    }
    BY_TRY(by__alloc((void **)&all, (size_t)job->size, sizeof mine, "ranks", error));
    int code = MPI_Allgather(mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, state->data);
    if (code != MPI_SUCCESS) {
        status = mpi_error(error, code, "gather shared memory");
    }
    if (status == BY_OK && comm->my_near != 0) {
        const by__comm_region_handle *its = &all[2 * comm->near[0]];
        status = region_attach(job, &its[0], job->block_bytes, (void **)&job->block, error);
        if (status == BY_OK) {
            status = region_attach(job, &its[1], comm->block_bytes, (void **)&comm->block, error);
        }
    }
    free(all);
    int32_t bad = status != BY_OK;
    int32_t any = 0;
    code = MPI_Allreduce(&bad, &any, 1, MPI_INT32_T, MPI_MAX, state->data);
    if (status == BY_OK && (code != MPI_SUCCESS || any)) {
        status = by_error_set(error, BY_EPEER, "a rank has no shared memory");
    }
    return status;
}

static by_status open_world(by__comm_job *job, by_comm **out, by_error *error)
{
    mpi_state *state = job->state;
    int *worlds;
    void *most_tags = NULL;
    int has_most = 0;
    int code = MPI_Comm_dup(MPI_COMM_WORLD, &state->data);
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_dup(MPI_COMM_WORLD, &state->control);
    }
    if (code != MPI_SUCCESS) {
        return mpi_error(error, code, "make communicators");
    }
    (void)MPI_Comm_set_errhandler(state->data, MPI_ERRORS_RETURN);
    (void)MPI_Comm_set_errhandler(state->control, MPI_ERRORS_RETURN);
    (void)MPI_Comm_rank(state->data, &job->rank);
    (void)MPI_Comm_size(state->data, &job->size);
    (void)MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most_tags, &has_most);
    job->ids = has_most ? (uint32_t) * (int *)most_tags / BY__COMM_TAGS : 3;
    BY_TRY(introduce(job, error));
    BY_TRY(find_near(job, error));
    BY_TRY(by__alloc((void **)&worlds, (size_t)job->size, sizeof *worlds, "ranks", error));
    for (int r = 0; r < job->size; r++) {
        worlds[r] = r;
    }
    by_status status = by__comm_make(out, job, worlds, job->size, 0, error);
    free(worlds);
    BY_TRY(status);
    BY_TRY(share_blocks(job, *out, error));
    code = MPI_Irecv(&state->received, sizeof state->received, MPI_BYTE, MPI_ANY_SOURCE,
                     MPI_ANY_TAG, state->control, &state->receiving);
    return code == MPI_SUCCESS ? BY_OK : mpi_error(error, code, "receive");
}

by_status by__comm_open_mpi(by_comm **out, double timeout, by_error *error)
{
    by__comm_job *job;
    mpi_state *state;
    by_comm *comm = NULL;
    if (!by__comm_launched()) {
        return by_error_set(error, BY_EARG,
                            "this process was not started by mpirun or srun --mpi=pmix, which "
                            "communicators over MPI need");
    }
    BY_TRY(by__alloc((void **)&state, 1, sizeof *state, "ranks", error));
    by_status status = by__alloc((void **)&job, 1, sizeof *job, "ranks", error);
    if (status != BY_OK) {
        free(state);
        return status;
    }
    state->receiving = MPI_REQUEST_NULL;
    atomic_store(&job->users, 1);
    (void)pthread_mutex_init(&job->watching, NULL);
    job->link = &mpi_link;
    job->state = state;
    job->timeout = timeout;
    job->next_id = 1;
    (void)pthread_mutex_lock(&mpi.lock);
    mpi.users++;
    status = start_mpi(error);
    if (status == BY_OK) {
        status = open_world(job, &comm, error);
    }
    (void)pthread_mutex_unlock(&mpi.lock);
    if (status == BY_OK) {
        *out = comm;
    } else if (comm != NULL) {
        by__comm_free(&comm);
    }
    by__comm_job_release(job);
    return status;
}
