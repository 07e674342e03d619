#include "serve/rollout/autoscale.h"

#include <math.h>

static double otherwise(double value, double fallback)
{
    return value > 0.0 ? value : fallback;
}

void by__rollout_autoscale_begin(by__rollout_autoscale *a,
                                 const by__rollout_autoscale_options *options, size_t workers,
                                 double now)
{
    *a = (by__rollout_autoscale){.options = *options,
                                 .needed = workers,
                                 .wanted = workers,
                                 .changed = now,
                                 .used = now,
                                 .active = now,
                                 .ready_since = now};
    a->options.pause = otherwise(options->pause, 2.0);
    a->options.drain = otherwise(options->drain, 5.0);
    a->options.calm = otherwise(options->calm, 15.0);
    a->options.idle = otherwise(options->idle, 60.0);
}

/* Number of late or soon-to-be-late requests: those in flight beyond what the target allows. */
static double excess_of(const by__rollout_autoscale *a, const by__rollout_autoscale_input *in)
{
    double under_way = (double)(in->waiting + in->running);
    double allowed = a->capacity * (double)in->ready * a->options.target;
    return under_way > allowed ? under_way - allowed : 0.0;
}

/* With few requests a percentile is noise: two may have come together. */
static bool is_slow(const by__rollout_autoscale *a, const by__rollout_autoscale_input *in)
{
    bool refused = (double)in->refused > BY__AUTOSCALE_REFUSED * (double)in->arrived;
    return (in->p95 > a->options.target && in->ended >= BY__AUTOSCALE_SAMPLE) ||
           in->oldest > a->options.target || (refused && in->arrived >= BY__AUTOSCALE_SAMPLE);
}

/* Measures capacity while requests are late and no worker is idle, when the rate of completions is
 * what workers can do; the mean decays slowly. A window in which the number of workers changed is
 * ignored. */
static void measure(by__rollout_autoscale *a, const by__rollout_autoscale_input *in)
{
    if (in->ready != a->ready) {
        a->ready = in->ready;
        a->ready_since = in->now;
    }
    bool steady = in->now - a->ready_since >= in->window;
    bool full = in->waiting + in->running > in->ready;
    if (!is_slow(a, in) || !full || in->ready == 0 || in->ended == 0 || !steady) {
        return;
    }
    double rate = (double)in->ended / in->window / (double)in->ready;
    a->capacity = a->capacity == 0.0 ? rate : 0.8 * a->capacity + 0.2 * rate;
    /* A rate that was reached once is possible. */
    a->capacity = rate > a->capacity ? rate : a->capacity;
}

/* Number of workers needed for `rate` requests a second. */
static size_t workers_for(const by__rollout_autoscale *a, double rate, size_t current)
{
    if (a->capacity <= 0.0) {
        return rate > 0.0 ? current : 0;
    }
    double n = ceil(rate / (a->capacity * BY__AUTOSCALE_FULL) - 1e-9);
    return n > (double)a->options.most ? a->options.most : (size_t)n;
}

/* The number of workers for an overloaded model. */
static size_t scale_out(const by__rollout_autoscale *a, const by__rollout_autoscale_input *in,
                        double rate)
{
    const by__rollout_autoscale_options *o = &a->options;
    bool settled = in->ready >= a->wanted && in->now - a->changed >= o->pause + in->window;
    size_t need = workers_for(a, rate + excess_of(a, in) / o->drain, a->wanted);
    /* Goes beyond the computed number only if the workers already started have had no effect. */
    need = need <= a->wanted && settled ? a->wanted + 1 : need;
    need = need > o->most ? o->most : need;
    return need > a->wanted && in->now - a->changed >= o->pause ? need : a->wanted;
}

/* The number of workers for a model without overload. */
static size_t scale_in(by__rollout_autoscale *a, const by__rollout_autoscale_input *in)
{
    const by__rollout_autoscale_options *o = &a->options;
    size_t least = o->least;
    if (least == 0) {
        least = in->now - a->active >= o->idle && in->running == 0 && in->waiting == 0 ? 0 : 1;
    }
    size_t need = workers_for(a, a->busiest, a->wanted);
    need = need < least ? least : need;
    if (need >= a->wanted) {
        a->used = in->now;
        a->busiest = 0.0;
    } else if (in->now - a->used >= o->calm && in->now - a->changed >= o->calm) {
        a->used = in->now;
        a->busiest = 0.0;
        /* Removes half of what could go: the load may come back. */
        return least == 0 ? 0 : a->wanted - (a->wanted - need + 1) / 2;
    }
    return a->wanted;
}

void by__rollout_autoscale_decide(by__rollout_autoscale *a, const by__rollout_autoscale_input *in)
{
    double rate = in->window > 0.0 ? (double)in->arrived / in->window : 0.0;
    measure(a, in);
    a->busiest = rate > a->busiest ? rate : a->busiest;
    if (in->arrived > 0 || in->waiting > 0 || in->running > 0) {
        a->active = in->now;
    }
    if (a->wanted < a->options.least || (a->wanted == 0 && in->waiting > 0)) {
        a->needed = a->options.least > 0 ? a->options.least : 1;
    } else if (is_slow(a, in)) {
        a->used = in->now;
        a->busiest = rate;
        a->needed = scale_out(a, in, rate);
    } else {
        a->needed = scale_in(a, in);
    }
}

/* What a model gets if nobody gets more than `share`, except for its minimum. */
static size_t part_of(const by__rollout_autoscale *a, size_t share)
{
    size_t most = share > a->options.least ? share : a->options.least;
    return a->needed < most ? a->needed : most;
}

static size_t sum_of_parts(const by__rollout_autoscale *all, size_t count, size_t share)
{
    size_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += part_of(&all[i], share);
    }
    return sum;
}

void by__rollout_autoscale_divide(by__rollout_autoscale *all, size_t count, size_t total,
                                  double now)
{
    size_t needed = sum_of_parts(all, count, SIZE_MAX);
    size_t share = total == 0 || needed <= total ? SIZE_MAX : 0;
    while (share < total && sum_of_parts(all, count, share + 1) <= total) {
        share++;
    }
    /* What is left after equal shares: one more for each of the first models that need it. */
    size_t left = share == SIZE_MAX ? 0 : total - sum_of_parts(all, count, share);
    for (size_t i = 0; i < count; i++) {
        size_t part = part_of(&all[i], share);
        bool more = left > 0 && part_of(&all[i], share + 1) > part;
        left -= more;
        part += more;
        if (part != all[i].wanted) {
            all[i].wanted = part;
            all[i].changed = now;
        }
    }
}
