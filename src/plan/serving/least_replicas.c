/* The least number of replicas that keeps a promise. */
#include "banyan/capacity.h"

#include "base/base.h"

enum { most_replicas = 4096 };

/* Times above this share of others are as long: draws differ between replicas. */
static const double least_gain = 0.98;

bool by_serving_meets(const by_serving_figures *figures, const by_serving_targets *targets)
{
    bool meets = true;
    for (int i = 0; i < 2; i++) {
        meets = meets && figures->first_token[i] <= targets->first_token[i] &&
                figures->token[i] <= targets->token[i];
    }
    return meets;
}

/* Whether twice the replicas were no faster: then each has its requests to itself. */
static bool is_no_faster(const by_serving_figures *now, const by_serving_figures *before)
{
    bool none = true;
    for (int i = 0; i < 2; i++) {
        none = none && now->first_token[i] >= least_gain * before->first_token[i] &&
               now->token[i] >= least_gain * before->token[i];
    }
    return none;
}

/* Simulates a number of replicas. */
static by_status try_number(by_serving_figures *out, bool *meets, int replicas,
                            const by_engine_curve *curve, const by_load_request *requests,
                            size_t count, const by_serving_options *options,
                            const by_serving_targets *targets, by_error *error)
{
    by_serving_options o = *options;
    o.replicas = replicas;
    BY_TRY(by_serving_simulate(out, NULL, curve, requests, count, &o, error));
    *meets = by_serving_meets(out, targets);
    return BY_OK;
}

by_status by_serving_replicas(int *replicas, by_serving_figures *figures,
                              const by_engine_curve *curve, const by_load_request *requests,
                              size_t count, const by_serving_options *options,
                              const by_serving_targets *targets, by_error *error)
{
    int most = options->replicas;
    int below = 0; /* does not meet them */
    int at = 1;
    bool meets = false;
    by_serving_figures found;
    by_serving_figures best = {0};
    by_serving_figures before = {0};
    if (most < 1 || most > most_replicas) {
        return by_error_set(error, BY_EARG, "%d replicas at most; must be 1 to %d", most,
                            most_replicas);
    }
    for (;; at = 2 * at < most ? 2 * at : most) {
        BY_TRY(try_number(&best, &meets, at, curve, requests, count, options, targets, error));
        if (meets || at == most || (at > 1 && is_no_faster(&best, &before))) {
            break;
        }
        below = at;
        before = best;
    }
    while (meets && at - below > 1) {
        int middle = below + (at - below) / 2;
        bool enough;
        BY_TRY(
            try_number(&found, &enough, middle, curve, requests, count, options, targets, error));
        if (enough) {
            at = middle;
            best = found;
        } else {
            below = middle;
        }
    }
    *replicas = meets ? at : 0;
    *figures = best;
    return BY_OK;
}
