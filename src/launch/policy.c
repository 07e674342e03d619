/* Decides what follows the end of a start of the job; a pure function, so that it can be tested
 * without a job. */
#include "launch/supervisor.h"
#include "process/process.h"

by__launch_decision by__launch_policy_decide(by__launch_history *h, const by__launch_policy *policy,
                                             int code, int64_t saved)
{
    by__launch_decision d = {0};
    if (!by_exit_retry(code)) {
        (void)snprintf(d.why, sizeof d.why, "%s", code == BY_EXIT_CONFIG ? "not tried again" : "");
        return d;
    }
    /* A checkpoint that is written again after going back is not progress. */
    if (saved > h->saved) {
        h->saved = saved;
        h->in_a_row = 0;
        h->same_checkpoint = 0;
    }
    if (h->in_a_row == policy->max_restarts) {
        (void)snprintf(d.why, sizeof d.why, "gave up after %d restarts without a new checkpoint",
                       h->in_a_row);
        return d;
    }
    h->in_a_row++;
    h->same_checkpoint++;
    d.restart = true;
    d.delay = by__process_back_off(policy->back_off, BY__BACK_OFF_MAX, (unsigned)h->in_a_row);
    if (h->same_checkpoint == BY__SAME_CHECKPOINT) {
        d.older = true;
        h->same_checkpoint = 0;
    }
    (void)snprintf(d.why, sizeof d.why, "restart %d of %d in %.0f s", h->in_a_row,
                   policy->max_restarts, d.delay);
    return d;
}
