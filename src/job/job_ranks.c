/* Agreement and sharing between the ranks of a job. Rank 0 leads: it alone prints, writes events,
 * run directory and registry, and holds the lock. Each function is collective, and does nothing in
 * a job of one rank. */
#include <stdlib.h>
#include <string.h>

#include "job/job.h"

bool by__job_leads(const by__job *job)
{
    return job->comm == NULL || by_comm_rank(job->comm) == 0;
}

/* Number of whole 32-bit words for bytes to send. */
static size_t words_of(size_t bytes)
{
    return (bytes + sizeof(int32_t) - 1) / sizeof(int32_t);
}

by_status by__job_share_text(const by__job *job, char **text, const char *what, by_error *error)
{
    return by__job_share_text_of(job, 0, text, what, error);
}

by_status by__job_share_text_of(const by__job *job, int root, char **text, const char *what,
                                by_error *error)
{
    int32_t *words;
    int32_t length = 0;
    if (job->comm == NULL) {
        return BY_OK;
    }
    bool sends = by_comm_rank(job->comm) == root;
    if (sends) {
        length = (int32_t)strlen(*text);
    }
    BY_TRY(by_comm_broadcast(job->comm, &length, 1, BY_I32, root, what, error));
    size_t count = words_of((size_t)length + 1);
    BY_TRY(by__alloc((void **)&words, count, sizeof *words, what, error));
    if (sends) {
        memcpy(words, *text, (size_t)length);
    }
    by_status status = by_comm_broadcast(job->comm, words, count, BY_I32, root, what, error);
    if (sends || status != BY_OK) {
        free(words);
    } else {
        *text = (char *)words; /* the last word is padded with zeros */
    }
    return status;
}

by_status by__job_same(const by__job *job, const char *text, const char *what, by_error *error)
{
    char all[2][64] = {{0}}; /* rank 0's, then this rank's */
    if (job->comm == NULL) {
        return BY_OK;
    }
    (void)snprintf(all[1], sizeof all[1], "%s", text);
    memcpy(all[0], all[1], sizeof all[0]);
    BY_TRY(by_comm_broadcast(job->comm, all[0], sizeof all[0] / sizeof(int32_t), BY_I32, 0, what,
                             error));
    if (memcmp(all[0], all[1], sizeof all[0]) == 0) {
        return BY_OK;
    }
    int rank = by_comm_rank(job->comm);
    return by_error_set(error, BY_ECONFIG,
                        "%s is %s here, on rank %d (%s), and %s on rank 0 (%s): all ranks need "
                        "the same config and the same files",
                        what, all[1], rank, by_comm_host(job->comm, rank), all[0],
                        by_comm_host(job->comm, 0));
}

/* ---- opening the data ---- */

/* Interval in seconds at which rank 0, while it packs text, tells the others that it is alive. */
#define SIGN_OF_LIFE 5.0

typedef struct preparing {
    by__job *job;
    const by_train_options *options; /* of the job */
    double told;
    by_status lost; /* why the others cannot be reached any more */
    by_error error;
} preparing;

static by_status broadcast(preparing *p, int32_t going_on)
{
    p->told = by__now();
    p->lost = by_comm_broadcast(p->job->comm, &going_on, 1, BY_I32, 0, "the data", &p->error);
    return p->lost;
}

static void on_progress(void *user, const by_train_event *event)
{
    preparing *p = user;
    if (p->options->event != NULL) {
        p->options->event(p->options->user, event);
    }
    if (p->lost == BY_OK && by__now() - p->told > SIGN_OF_LIFE) {
        (void)broadcast(p, 1);
    }
}

static bool is_stopped(void *user)
{
    const preparing *p = user;
    return p->lost != BY_OK || (p->options->stop != NULL && p->options->stop(p->options->user));
}

/* The newest checkpoint of a run that is resumed, whether it is valid or not; NULL: there is none,
 * or the run is new. */
static by_status find_resumed(char **out, const by__job *job, by_error *error)
{
    uint64_t *steps;
    size_t count;
    *out = NULL;
    if (job->options->resume == NULL || job->dir.checkpoints == NULL ||
        !by__path_exists(job->dir.checkpoints)) {
        return BY_OK;
    }
    BY_TRY(by__checkpoint_root_steps(&steps, &count, job->dir.checkpoints, error));
    by_status status =
        count == 0 ? BY_OK : by__checkpoint_step_path(out, job->dir.checkpoints, steps[0], error);
    free(steps);
    return status;
}

static by_status open_data(by__job *job, const by_train_options *progress, by_error *error)
{
    char *resumed;
    const by_trainer_options *own = job->options->trainer;
    BY_TRY(find_resumed(&resumed, job, error));
    by_task_request request = {.purpose = BY_TASK_TRAIN,
                               .config = job->config,
                               .resumed = resumed,
                               .comm = job->comm,
                               .progress = progress};
    /* One of several ranks cannot leave a step that the others have begun: it waits for its
     * batch. */
    if (job->comm == NULL) {
        request.stop = job->options->stop;
        request.user = job->options->user;
    }
    by_status status = by_task_open(&job->data, own == NULL ? NULL : own->task, &request, error);
    free(resumed);
    return status;
}

/* Rank 0 opens the data first: it may pack text into files that the others read. */
by_status by__job_open_data(by__job *job, by_error *error)
{
    preparing p = {.job = job, .options = job->options, .told = by__now()};
    by_train_options progress = *job->options;
    if (job->comm == NULL) {
        return open_data(job, job->options, error);
    }
    progress.user = &p;
    progress.stop = is_stopped;
    progress.event = by__job_leads(job) ? on_progress : NULL;
    if (by__job_leads(job)) {
        by_status status = open_data(job, &progress, error);
        if (status == BY_OK || p.lost != BY_OK) {
            status = p.lost == BY_OK ? broadcast(&p, 0) : p.lost;
            if (error != NULL && status != BY_OK) {
                *error = p.error;
            }
        }
        return status;
    }
    int32_t going_on = 1;
    while (going_on != 0) {
        BY_TRY(by_comm_broadcast(job->comm, &going_on, 1, BY_I32, 0, "the data", error));
    }
    return open_data(job, &progress, error);
}

by_status by__job_fetch_batch(by_task_data *data, const by_batch *batch, by_error *error)
{
    return data->task->fetch == NULL ? BY_OK : data->task->fetch(data, batch, error);
}
