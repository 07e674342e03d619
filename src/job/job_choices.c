/* What the libraries of the device have chosen for its kernels (device.h), and bits depend on, is
 * kept in the run: a run that is resumed on the same device and libraries computes as before,
 * though they would choose otherwise today. Ranks may have other products, as stages of a pipeline
 * do: the file has those of all. */
#include <stdlib.h>
#include <string.h>

#include "base/paths.h"
#include "job/job.h"
#include "trainer/state/trainer.h"

/* Bytes of the file; a product takes 200. */
#define MOST_BYTES ((size_t)16 << 20)

static const char file_name[] = "choices.txt";

static by_status read_path(by__job *job, const char *path, by_error *error)
{
    size_t length;
    by_string checked = {0};
    if (!by__path_exists(path)) {
        job->dir.choices = by__strdup("");
        return job->dir.choices == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: choices")
                                        : BY_OK;
    }
    BY_TRY(by__file_read(&job->dir.choices, &length, path, MOST_BYTES, error));
    by_status status = by__device_join_choices(&checked, job->dir.choices, error);
    by_string_free(&checked);
    return status == BY_OK
               ? BY_OK
               : by_error_prefix(error, status, "%s, without which libraries choose anew", path);
}

static by_status read_file(by__job *job, by_error *error)
{
    char *path;
    BY_TRY(by__path_make(&path, job->dir.path, file_name, error));
    by_status status = read_path(job, path, error);
    free(path);
    return status;
}

by_status by__job_choices_read(by__job *job, by_error *error)
{
    if (by__job_leads(job)) {
        BY_TRY(read_file(job, error));
    }
    return by__job_share_text(job, &job->dir.choices, "the choices of libraries", error);
}

/* Adds the choices of all ranks to rank 0's text, in their order. */
static by_status gather(by_string *text, const by__job *job, by_error *error)
{
    int ranks = job->comm == NULL ? 1 : by_comm_size(job->comm);
    bool leads = by__job_leads(job);
    for (int r = 1; r < ranks; r++) {
        by_string own = {0};
        char *theirs = NULL;
        bool sends = by_comm_rank(job->comm) == r;
        if (sends) {
            BY_TRY(by__device_add_choices(&own, job->trainer->device, error));
            theirs = own.length == 0 ? by__strdup("") : own.data;
            BY_TRY(theirs == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: choices")
                                  : BY_OK);
        }
        by_status status =
            by__job_share_text_of(job, r, &theirs, "the choices of libraries", error);
        status = status == BY_OK && leads ? by__device_join_choices(text, theirs, error) : status;
        free(theirs);
        BY_TRY(status);
    }
    return BY_OK;
}

static by_status write_file(const by__job *job, const by_string *text, by_error *error)
{
    const char *before = job->dir.choices == NULL ? "" : job->dir.choices;
    char *path;
    if (text->length == 0 || strcmp(text->data, before) == 0) {
        return BY_OK;
    }
    BY_TRY(by__path_make(&path, job->dir.path, file_name, error));
    by_status status = by__file_write(path, text->data, text->length, error);
    free(path);
    return status;
}

by_status by__job_choices_keep(by__job *job, by_error *error)
{
    by_string text = {0};
    size_t length = 0;
    const by_device *device = job->trainer->device;
    const char *now = by__device_chooser(device);
    if (now == NULL) {
        return BY_OK; /* on all ranks, whose devices are alike */
    }
    const char *then = by__device_foreign_choices(&length, device, job->dir.choices);
    if (then != NULL && by__job_leads(job)) {
        by__job_note(job,
                     "algorithms of products are chosen anew, as this is %s, and the run had "
                     "%.*s: its bits may differ from here on",
                     now, (int)length, then);
    }
    by_status status =
        by__device_join_choices(&text, job->dir.choices == NULL ? "" : job->dir.choices, error);
    status = status == BY_OK ? by__device_add_choices(&text, device, error) : status;
    status = status == BY_OK ? gather(&text, job, error) : status;
    if (status == BY_OK && by__job_leads(job)) {
        status = write_file(job, &text, error);
    }
    by_string_free(&text);
    return status;
}
