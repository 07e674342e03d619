/* Replays of a trace of spot instances. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/plan.h"
#include "base/base.h"

enum { coarse = 96, fine = 24 };

/* What the job does. */
typedef enum spot_phase { PHASE_DOWN, PHASE_COMPUTING, PHASE_SAVING, PHASE_RESTARTING } spot_phase;

typedef struct spot_job {
    const by_spot_options *options;
    by_spot_replay sums;
    spot_phase phase;
    double instances; /* that it runs on */
    double left;      /* seconds of a phase that ends */
    double since;     /* seconds of computing since the last checkpoint */
    double unsaved;   /* useful, unless a failure undoes it */
    double pending;   /* the same, of a checkpoint that is being written ... */
    double writing;   /* ... for so many more seconds */
    bool grows;       /* it restarts after the save */
} spot_job;

/* The longest trace, in seconds. */
static const double longest = 1e12;

static double usable(const by_spot_options *o, double held)
{
    double most = o->most > 0.0 ? fmin(held, o->most) : held;
    return most < fmax(o->least, 1.0) ? 0.0 : most;
}

static double paid(const by_spot_options *o, double held)
{
    return o->most > 0.0 ? fmin(held, o->most) : held;
}

static double spacing_of(const by_spot_options *o)
{
    return fmax(o->every, o->job.written);
}

static void begin(spot_job *job, spot_phase phase)
{
    job->phase = phase;
    job->since = 0.0;
    job->left = phase == PHASE_SAVING ? job->options->job.save : job->options->job.restart;
}

/* A checkpoint is on disk. */
static void count_checkpoint(spot_job *job)
{
    job->sums.useful += job->pending;
    job->pending = 0.0;
    job->writing = 0.0;
}

/* A save begins, behind the one that is still written. */
static void begin_save(spot_job *job)
{
    double before = job->writing;
    begin(job, PHASE_SAVING);
    job->left += before;
}

/* The job has other instances from now on. */
static void change(spot_job *job, double instances)
{
    double before = job->instances;
    job->instances = instances;
    if (instances < before) {
        job->sums.losses++;
        job->sums.undone += job->unsaved;
        job->sums.undone += job->pending;
        job->unsaved = job->pending = job->writing = 0.0;
        job->grows = false;
        begin(job, instances > 0.0 ? PHASE_RESTARTING : PHASE_DOWN);
    } else if (instances > before) {
        job->sums.gains++;
        if (job->phase == PHASE_COMPUTING) {
            begin_save(job);
            job->left += job->options->job.written; /* what it restarts from is on disk */
            job->grows = true;
        } else if (job->phase == PHASE_SAVING) {
            job->left += job->grows ? 0.0 : job->options->job.written;
            job->grows = true;
        } else {
            begin(job, PHASE_RESTARTING);
        }
    }
}

/* A phase has ended. */
static void advance(spot_job *job)
{
    switch (job->phase) {
    case PHASE_COMPUTING:
        begin_save(job);
        break;
    case PHASE_SAVING:
        job->sums.saves++;
        count_checkpoint(job);
        job->pending = job->unsaved;
        job->writing = job->options->job.written;
        job->unsaved = 0.0;
        if (job->grows || job->writing == 0.0) {
            count_checkpoint(job);
        }
        begin(job, job->grows ? PHASE_RESTARTING : PHASE_COMPUTING);
        job->grows = false;
        break;
    default:
        begin(job, PHASE_COMPUTING);
        break;
    }
}

/* Takes the whole rounds of computing and saving in some seconds at once: their number has no
 * bound. */
static void pass_rounds(spot_job *job, double *seconds, double held)
{
    const by_spot_options *o = job->options;
    double every = spacing_of(o);
    double rounds = fmin(floor(*seconds / (every + o->job.save)) - 1.0, 1e15);
    if (job->since == 0.0 && job->unsaved == 0.0 && job->writing == 0.0 && rounds >= 1.0) {
        job->sums.useful += rounds * every * job->instances;
        job->sums.idle += rounds * every * (held - job->instances);
        job->sums.saving += rounds * o->job.save * held;
        job->sums.saves += (size_t)rounds;
        *seconds -= rounds * (every + o->job.save);
        if (o->job.written > 0.0) { /* of the last one */
            job->pending = every * job->instances;
            job->writing = o->job.written;
            job->sums.useful -= job->pending;
        }
    }
}

/* Lets time pass without a change of instances. */
static void pass(spot_job *job, double seconds, double held)
{
    while (job->phase != PHASE_DOWN) {
        bool computing = job->phase == PHASE_COMPUTING;
        if (computing) {
            pass_rounds(job, &seconds, held);
        }
        bool writing = computing && job->writing > 0.0;
        double left = computing ? spacing_of(job->options) - job->since : job->left;
        double step = fmin(seconds, writing ? fmin(left, job->writing) : left);
        if (computing) {
            job->since += step;
            job->unsaved += step * job->instances;
            job->sums.idle += step * (held - job->instances);
        } else {
            job->left -= step;
            *(job->phase == PHASE_SAVING ? &job->sums.saving : &job->sums.restarting) +=
                step * held;
        }
        seconds -= step;
        if (writing && step >= job->writing) {
            count_checkpoint(job);
            continue;
        }
        job->writing -= writing ? step : 0.0;
        if (left > step || (computing && !isfinite(left))) {
            return;
        }
        advance(job);
    }
    job->sums.idle += seconds * held;
}

by_spot_replay by_spot_run(const by_spot_point *points, size_t count,
                           const by_spot_options *options)
{
    spot_job job = {.options = options};
    for (size_t i = 0; i + 1 < count; i++) {
        double seconds = points[i + 1].seconds - points[i].seconds;
        double held = paid(options, points[i].instances);
        change(&job, usable(options, points[i].instances));
        job.sums.held += seconds * held;
        pass(&job, seconds, held);
    }
    job.sums.useful += job.unsaved + job.pending; /* the job goes on after the trace */
    job.sums.goodput = job.sums.held > 0.0 ? job.sums.useful / job.sums.held : 0.0;
    return job.sums;
}

static double goodput_at(const by_spot_point *points, size_t count, by_spot_options options,
                         double every)
{
    options.every = every;
    return by_spot_run(points, count, &options).goodput;
}

double by_spot_mean(const by_spot_point *points, size_t count, const by_spot_options *options)
{
    double before = 0.0;
    double seconds = 0.0;
    size_t losses = 0;
    for (size_t i = 0; i + 1 < count; i++) {
        double now = usable(options, points[i].instances);
        losses += now < before ? 1 : 0;
        seconds += now > 0.0 ? points[i + 1].seconds - points[i].seconds : 0.0;
        before = now;
    }
    return losses == 0 ? INFINITY : seconds / (double)losses;
}

double by_spot_best_interval(const by_spot_point *points, size_t count,
                             const by_spot_options *options)
{
    double whole = count < 2 ? 0.0 : points[count - 1].seconds - points[0].seconds;
    double mean = by_spot_mean(points, count, options);
    /* A shorter interval than a fifth of a save spends most of the time saving. */
    double low = fmax(0.2 * options->job.save, 1e-3 * fmin(mean, whole));
    double best = whole;
    double most = goodput_at(points, count, *options, INFINITY);
    double ratio = low > 0.0 && low < whole ? pow(whole / low, 1.0 / coarse) : 1.0;
    for (int round = 0; round < 2 && ratio > 1.0; round++) {
        double begin_at = round == 0 ? low : fmax(best / ratio, low);
        double step = round == 0 ? ratio : pow(ratio, 2.0 / fine);
        for (int i = 0; i <= (round == 0 ? coarse : fine); i++) {
            double every = begin_at * pow(step, i);
            double goodput = goodput_at(points, count, *options, every);
            if (goodput > most) {
                most = goodput;
                best = every;
            }
        }
    }
    return best;
}

by_status by_spot_read(by_spot_point **points, size_t *count, const by_table *table,
                       by_error *error)
{
    static const char *const names[2] = {"seconds", "instances"};
    const by_column *columns[2];
    size_t rows = (size_t)by_table_rows(table);
    void *memory;
    *points = NULL;
    *count = 0;
    for (size_t k = 0; k < 2; k++) {
        columns[k] = by_table_find(table, names[k]);
        if (columns[k] == NULL || columns[k]->kind != BY_COLUMN_NUMBER) {
            return by_error_set(error, BY_EARG,
                                "%s: no column '%s' of numbers; a trace has seconds and instances",
                                by_table_name(table), names[k]);
        }
    }
    if (rows < 2) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: a trace of %zu rows; it has at least two, the last of which ends "
                            "it",
                            by_table_name(table), rows);
    }
    for (size_t i = 0; i < rows; i++) {
        double seconds = columns[0]->numbers[i];
        double instances = columns[1]->numbers[i];
        bool ascends = fabs(seconds) <= longest && (i == 0 || seconds > columns[0]->numbers[i - 1]);
        if (!ascends || !(instances >= 0.0 && instances <= 1e9) || floor(instances) != instances) {
            return by_error_set(error, BY_EFORMAT,
                                "%s, row %zu: %g instances from %g s on; seconds ascend, and "
                                "instances are a whole number from 0 on",
                                by_table_name(table), i + 1, instances, seconds);
        }
    }
    BY_TRY(by__alloc(&memory, rows, sizeof **points, "a trace", error));
    *points = memory;
    *count = rows;
    for (size_t i = 0; i < rows; i++) {
        (*points)[i] = (by_spot_point){columns[0]->numbers[i], columns[1]->numbers[i]};
    }
    return BY_OK;
}
