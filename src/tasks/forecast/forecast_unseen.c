/* Whether a test is one: its windows must not forecast rows that the weights were trained on. */
#include "banyan/train_events.h"
#include "tasks/forecast/forecast.h"

/* What the weights have seen of the rows that windows forecast. */
typedef struct unseen_rows {
    bool trained;  /* some were trained on */
    uint64_t kept; /* so many last rows of a series would have to be kept for a test; 0: they are */
} unseen_rows;

static void add_series(unseen_rows *u, const by__forecast_data *d, const by_task_request *r,
                       size_t s)
{
    uint64_t left_out = (uint64_t)by__forecast_keys_of(r->trained)->skip_last;
    uint64_t rows = d->set->series[s].count + (uint64_t)d->keys->skip_last;
    uint64_t first = d->valid[s].first + (uint64_t)r->config->model.context;
    uint64_t train;
    uint64_t valid;
    rows -= left_out < rows ? left_out : rows;
    by__forecast_split(r->trained, rows, &train, &valid);
    if (d->valid[s].count > 0 && first < valid) {
        u->kept = rows - first > u->kept ? rows - first : u->kept;
        u->trained = u->trained || first < train;
    }
}

by_status by__forecast_check_unseen(const by__forecast_data *d, const by_task_request *r,
                                    by_error *error)
{
    unseen_rows u = {0};
    char text[640];
    for (size_t s = 0; s < d->set->series_count; s++) {
        add_series(&u, d, r, s);
    }
    if (u.trained) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: the run was trained on rows that it would be tested on: keep "
                            "them for a test when it is trained (data.test_fraction=%llu)",
                            d->set->name, (unsigned long long)u.kept);
    }
    if (u.kept > 0 && r->progress != NULL && r->progress->event != NULL) {
        const by_train_event event = {.kind = BY_TRAIN_NOTE, .text = text};
        (void)snprintf(text, sizeof text,
                       "%.400s: the run was validated on rows that it is tested on, which flatters "
                       "a checkpoint that was chosen by them; data.test_fraction=%llu keeps them",
                       d->set->name, (unsigned long long)u.kept);
        r->progress->event(r->progress->user, &event);
    }
    return BY_OK;
}
