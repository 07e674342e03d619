#include "banyan/exit.h"

#include "base/base.h"

static const by_exit_row rows[] = {
    {BY_EXIT_DONE, "done", "done", false},
    {BY_EXIT_FAILED, "failed", "an error at run time", true},
    {BY_EXIT_CONFIG, "config", "wrong flag or configuration: never worth a retry", false},
    {BY_EXIT_SAVED, "saved", "interrupted or preempted, everything was saved: resume it", false},
    {BY_EXIT_HANG, "hang", "a rank or a worker made no progress and was stopped", true},
    {BY_EXIT_CORRUPT, "corrupt", "values that must be equal differ: faulty hardware suspected",
     true},
    {BY_EXIT_PEER, "peer", "another rank failed; its code says why", true},
    {BY_EXIT_DIVERGED, "diverged", "the training diverged, and would again without changes", false},
    {BY_EXIT_INTERRUPTED, "interrupted", "interrupted, nothing could be saved", false},
};

const by_exit_row *by_exit_rows(size_t *count)
{
    *count = BY_ARRAY_LENGTH(rows);
    return rows;
}

static const by_exit_row *find(int code)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        if (rows[i].code == code) {
            return &rows[i];
        }
    }
    return NULL;
}

const char *by_exit_name(int code)
{
    const by_exit_row *row = find(code);
    return row == NULL ? "crash" : row->name;
}

bool by_exit_retry(int code)
{
    const by_exit_row *row = find(code);
    return row == NULL || row->retry;
}

by_exit by_exit_of(by_status status)
{
    switch (status) {
    case BY_OK:
        return BY_EXIT_DONE;
    case BY_ECONFIG:
    case BY_EARG:
        return BY_EXIT_CONFIG;
    case BY_ESTOPPED:
        return BY_EXIT_INTERRUPTED;
    case BY_EPEER:
        return BY_EXIT_PEER;
    case BY_ECORRUPT:
        return BY_EXIT_CORRUPT;
    case BY_EDIVERGED:
        return BY_EXIT_DIVERGED;
    default:
        return BY_EXIT_FAILED;
    }
}
