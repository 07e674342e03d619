#include "serve/deploy/autoscale.h"

#include <math.h>

static double otherwise(double value, double fallback)
{
    return value > 0.0 ? value : fallback;
}

void by__autoscale_begin(by__autoscale *a, const by__autoscale_options *options, size_t workers,
                         double now)
{
    *a = (by__autoscale){.options = *options,
                         .wanted = workers,
                         .changed = now,
                         .needed = now,
                         .active = now,
                         .ready_since = now};
    a->options.pause = otherwise(options->pause, 2.0);
    a->options.drain = otherwise(options->drain, 5.0);
    a->options.calm = otherwise(options->calm, 15.0);
    a->options.idle = otherwise(options->idle, 60.0);
}

/* Number of late or soon-to-be-late requests: those in flight beyond what the target allows. */
static double excess_of(const by__autoscale *a, const by__autoscale_input *in)
{
    double under_way = (double)(in->waiting + in->running);
    double allowed = a->capacity * (double)in->ready * a->options.target;
    return under_way > allowed ? under_way - allowed : 0.0;
}

/* With few requests a percentile is noise: two may have come together. */
static bool is_slow(const by__autoscale *a, const by__autoscale_input *in)
{
    bool refused = (double)in->refused > BY__AUTOSCALE_REFUSED * (double)in->arrived;
    return (in->p95 > a->options.target && in->ended >= BY__AUTOSCALE_SAMPLE) ||
           in->oldest > a->options.target || (refused && in->arrived >= BY__AUTOSCALE_SAMPLE);
}

/* Measures capacity while requests are late and no worker is idle, when the rate of completions is
 * what workers can do; the mean decays slowly. A window in which the number of workers changed is
 * ignored. */
static void measure(by__autoscale *a, const by__autoscale_input *in)
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
static size_t workers_for(const by__autoscale *a, double rate, size_t current)
{
    if (a->capacity <= 0.0) {
        return rate > 0.0 ? current : 0;
    }
    double n = ceil(rate / (a->capacity * BY__AUTOSCALE_FULL) - 1e-9);
    return n > (double)a->options.most ? a->options.most : (size_t)n;
}

static void set(by__autoscale *a, size_t wanted, double now)
{
    if (wanted != a->wanted) {
        a->wanted = wanted;
        a->changed = now;
    }
}

static void scale_out(by__autoscale *a, const by__autoscale_input *in, double rate)
{
    const by__autoscale_options *o = &a->options;
    bool settled = in->ready == in->started && in->now - a->changed >= o->pause + in->window;
    size_t need = workers_for(a, rate + excess_of(a, in) / o->drain, a->wanted);
    /* Goes beyond the computed number only if the workers already started have had no effect. */
    need = need <= a->wanted && settled ? a->wanted + 1 : need;
    need = need > o->most ? o->most : need;
    if (need > a->wanted && in->now - a->changed >= o->pause) {
        set(a, need, in->now);
    }
}

static void scale_in(by__autoscale *a, const by__autoscale_input *in)
{
    const by__autoscale_options *o = &a->options;
    size_t least = o->least;
    if (least == 0) {
        least = in->now - a->active >= o->idle && in->running == 0 && in->waiting == 0 ? 0 : 1;
    }
    size_t need = workers_for(a, a->busiest, a->wanted);
    need = need < least ? least : need;
    if (need >= a->wanted) {
        a->needed = in->now;
        a->busiest = 0.0;
    } else if (in->now - a->needed >= o->calm && in->now - a->changed >= o->calm) {
        /* Removes half of what could go: the load may come back. */
        set(a, least == 0 ? 0 : a->wanted - (a->wanted - need + 1) / 2, in->now);
        a->needed = in->now;
        a->busiest = 0.0;
    }
}

size_t by__autoscale_decide(by__autoscale *a, const by__autoscale_input *in)
{
    double rate = in->window > 0.0 ? (double)in->arrived / in->window : 0.0;
    measure(a, in);
    a->busiest = rate > a->busiest ? rate : a->busiest;
    if (in->arrived > 0 || in->waiting > 0 || in->running > 0) {
        a->active = in->now;
    }
    if (a->wanted < a->options.least || (a->wanted == 0 && in->waiting > 0)) {
        set(a, a->options.least > 0 ? a->options.least : 1, in->now);
    } else if (is_slow(a, in)) {
        a->needed = in->now;
        a->busiest = rate;
        scale_out(a, in, rate);
    } else {
        scale_in(a, in);
    }
    return a->wanted;
}
