#include "serve/rollout/rollout.h"

#include <math.h>
#include <stdio.h>

/* Exits of new workers during their start that fail the rollout. */
#define MAX_EXITS 2
/* Seconds by which percentiles may differ whatever the ratio: smaller differences are noise. */
#define NOISE 0.01
/* Factor by which a share with too few requests is held longer. */
#define PATIENCE 3.0

const char *by__rollout_name(by__rollout_phase phase)
{
    static const char *const names[] = {"starting", "checking", "shadow",
                                        "canary",   "done",     "failed"};
    return names[phase];
}

void by__rollout_plan(by__rollout_options *out, const by_deploy_options *options)
{
    static const double later[] = {0.25, 0.5};
    *out = (by__rollout_options){.hold = options->hold,
                                 .shadow = options->shadow,
                                 .force = options->force || options->rollback,
                                 .start = 300.0,
                                 .check = 60.0,
                                 .requests = 20,
                                 .errors = options->errors,
                                 .slower = options->slower};
    if (options->canary > 0.0) {
        out->shares[out->share_count++] = options->canary;
        for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
            if (later[i] > options->canary) {
                out->shares[out->share_count++] = later[i];
            }
        }
    }
    out->shares[out->share_count++] = 1.0;
}

void by__rollout_begin(by__rollout *r, const by__rollout_options *options, double now)
{
    *r = (by__rollout){.options = *options, .since = now};
}

void by__rollout_fail(by__rollout *r, const char *reason)
{
    r->phase = BY__ROLLOUT_FAILED;
    r->share = 0.0;
    r->mirrors = false;
    (void)snprintf(r->reason, sizeof r->reason, "%s", reason);
}

bool by__rollout_ended(const by__rollout *r)
{
    return r->phase == BY__ROLLOUT_DONE || r->phase == BY__ROLLOUT_FAILED;
}

size_t by__rollout_workers(const by__rollout *r, size_t total)
{
    double share = r->phase == BY__ROLLOUT_DONE ? 1.0 : r->options.shares[r->step];
    double n = ceil(share * (double)total - 1e-9);
    return n < 1.0 ? 1 : (size_t)n;
}

/* ---- comparison of versions ---- */

/* Totals below earlier ones are from a broker that was restarted. */
static bool has_fallen(const by__rollout_version_load *now, const by__rollout_version_load *then)
{
    return now->requests < then->requests || now->errors < then->errors ||
           now->failed < then->failed || now->same < then->same ||
           now->different < then->different || now->first.count < then->first.count;
}

static void window_of(by__rollout_version_load *out, const by__rollout_version_load *now,
                      const by__rollout_version_load *then)
{
    *out = (by__rollout_version_load){.requests = now->requests - then->requests,
                                      .errors = now->errors - then->errors,
                                      .failed = now->failed - then->failed,
                                      .same = now->same - then->same,
                                      .different = now->different - then->different};
    out->first = now->first;
    by__telemetry_histogram_subtract(&out->first, &then->first);
}

static double rate_of(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0.0 : (double)part / (double)whole;
}

/* Fails the rollout if the new version did worse since the last step than the former one. Returns
 * true if there were enough requests to judge. */
static bool compare_versions(by__rollout *r, const by__rollout_input *in)
{
    const by__rollout_options *o = &r->options;
    by__rollout_version_load before;
    by__rollout_version_load after;
    char text[160];
    window_of(&before, &in->before, &r->before);
    window_of(&after, &in->after, &r->after);
    uint64_t copies = after.same + after.different + after.failed;
    uint64_t count = r->mirrors ? copies : after.requests;
    if (count < o->requests) {
        return false;
    }
    double errors = rate_of(r->mirrors ? after.failed : after.errors, count);
    double former = rate_of(before.errors, before.requests);
    if (errors > former + o->errors) {
        (void)snprintf(text, sizeof text,
                       "%.1f %% of its requests failed, %.1f %% of the former version's",
                       100.0 * errors, 100.0 * former);
        by__rollout_fail(r, text);
        return true;
    }
    double slow = by__telemetry_histogram_quantile(&after.first, 0.95);
    double usual = by__telemetry_histogram_quantile(&before.first, 0.95);
    bool both = after.first.count >= o->requests && before.first.count >= o->requests;
    if (both && slow > usual * o->slower + NOISE) {
        (void)snprintf(text, sizeof text,
                       "95 %% of its first texts came within %.0f ms, of the former version's "
                       "within %.0f ms",
                       1e3 * slow, 1e3 * usual);
        by__rollout_fail(r, text);
    }
    return true;
}

/* ---- the phases ---- */

static void enter(by__rollout *r, by__rollout_phase phase, const by__rollout_input *in)
{
    r->phase = phase;
    r->since = in->now;
    r->before = in->before;
    r->after = in->after;
    r->mirrors = phase == BY__ROLLOUT_SHADOWING;
    r->share = phase == BY__ROLLOUT_DONE      ? 1.0
               : phase == BY__ROLLOUT_HOLDING ? r->options.shares[r->step]
                                              : 0.0;
}

/* Starts the share of r->step, or ends the rollout after the last one. */
static void enter_share(by__rollout *r, const by__rollout_input *in)
{
    bool last = r->options.shares[r->step] >= 1.0;
    enter(r, last ? BY__ROLLOUT_DONE : BY__ROLLOUT_HOLDING, in);
}

static void check(by__rollout *r, const by__rollout_input *in)
{
    if (in->golden == BY__GOLDEN_BAD) {
        by__rollout_fail(r, in->golden_reason);
    } else if (in->golden == BY__GOLDEN_PENDING) {
        if (in->now - r->since > r->options.check) {
            by__rollout_fail(r, "the golden request was not answered in time");
        }
    } else if (r->options.shadow) {
        enter(r, BY__ROLLOUT_SHADOWING, in);
    } else {
        enter_share(r, in);
    }
}

static void hold_share(by__rollout *r, const by__rollout_input *in)
{
    if (has_fallen(&in->before, &r->before) || has_fallen(&in->after, &r->after)) {
        /* The share is held for its whole time again. */
        r->since = in->now;
        r->before = in->before;
        r->after = in->after;
        return;
    }
    bool judged = compare_versions(r, in);
    double lasted = in->now - r->since;
    if (r->phase == BY__ROLLOUT_FAILED || lasted < r->options.hold ||
        (!judged && lasted < PATIENCE * r->options.hold)) {
        return;
    }
    if (r->phase == BY__ROLLOUT_HOLDING) {
        /* Workers for the next share must be ready first. */
        size_t next = r->step + 1;
        double n = ceil(r->options.shares[next] * (double)in->total - 1e-9);
        r->step = next;
        if ((double)in->ready < n) {
            r->phase = BY__ROLLOUT_STARTING;
            r->since = in->now;
            return;
        }
    }
    enter_share(r, in);
}

void by__rollout_step(by__rollout *r, const by__rollout_input *in)
{
    if (by__rollout_ended(r)) {
        return;
    }
    if (in->config_error || in->exits >= MAX_EXITS) {
        char text[sizeof r->reason];
        bool has_reason = in->why != NULL && in->why[0] != '\0';
        (void)snprintf(
            text, sizeof text, "%s%s%s",
            in->config_error ? "its workers cannot start" : "its workers exited repeatedly",
            has_reason ? ": " : " (their messages are in the log)", has_reason ? in->why : "");
        by__rollout_fail(r, text);
        return;
    }
    if (in->differs != NULL && !r->options.force) {
        char text[sizeof r->reason];
        (void)snprintf(text, sizeof text, "it answers other requests: %s (--force deploys it)",
                       in->differs);
        by__rollout_fail(r, text);
        return;
    }
    switch (r->phase) {
    case BY__ROLLOUT_STARTING:
        if (in->ready >= by__rollout_workers(r, in->total)) {
            r->phase = BY__ROLLOUT_CHECKING;
            r->since = in->now;
            if (r->step > 0) {
                enter_share(r, in);
            }
        } else if (in->now - r->since > r->options.start) {
            by__rollout_fail(r, "its workers were not ready in time");
        }
        break;
    case BY__ROLLOUT_CHECKING:
        check(r, in);
        break;
    case BY__ROLLOUT_SHADOWING:
    case BY__ROLLOUT_HOLDING:
        hold_share(r, in);
        break;
    case BY__ROLLOUT_DONE:
    case BY__ROLLOUT_FAILED:
        break;
    }
}
