/* From rewards to the weights of tokens in the loss.
 *
 * The objective of a step is, for completions i of n_i tokens with advantage A_i,
 *
 *     J = sum_i s_i sum_t (A_i log p(t) - beta k3(t)) / D,
 *     k3(t) = q(t)/p(t) - log(q(t)/p(t)) - 1,
 *
 * where p is the model, q the model at the start and k3 the estimate of the divergence of p from q
 * (Shao et al. 2024, arXiv 2402.03300, equation 4). GRPO has the ratio of p to the model that
 * sampled in the place of log p(t), and clips it; as each step samples with the weights that it
 * changes, that ratio is 1, both have the same gradient, and nothing is clipped. By log p(t) it is
 *
 *     s_i (A_i + beta (q(t)/p(t) - 1)) / D,
 *
 * so J is maximized by a cross-entropy, -log p(t), of tokens with these weights.
 *
 * s_i and D: 1 and sum n_i (DAPO, Yu et al. 2025, arXiv 2503.14476, equation 8); 1/n_i and the
 * number of completions (GRPO); 1/max_tokens and the number of completions (Dr. GRPO, Liu et al.
 * 2025, arXiv 2503.20783, section 3.2). A_i is the reward minus the mean of its group and, with
 * `deviation`, divided by the standard deviation (of n - 1 degrees of freedom, plus 1e-4). Groups
 * whose rewards are all the same have no gradient, and are left out of D as well. */
#include "reinforce/reinforce.h"

#include <math.h>
#include <string.h>

/* Added to a deviation, so that noise in nearly equal rewards is not blown up. */
#define SMALL_DEVIATION 1e-4

by__reinforce_objective by__reinforce_objective_of(const by__task_reinforce_keys *keys)
{
    by__reinforce_objective o = {.group = keys->group,
                                 .max_tokens = keys->max_tokens,
                                 .deviation = strcmp(keys->advantage, "deviation") == 0,
                                 .kl = keys->kl,
                                 .passes = keys->passes};
    o.normalize = strcmp(keys->normalize, "sequences") == 0  ? BY__REINFORCE_SEQUENCES
                  : strcmp(keys->normalize, "constant") == 0 ? BY__REINFORCE_CONSTANT
                                                             : BY__REINFORCE_TOKENS;
    return o;
}

static bool is_flat(const by__reinforce_completion *group, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (group[i].reward != group[0].reward) {
            return false;
        }
    }
    return true;
}

static void compare_group(double *advantages, const by__reinforce_completion *group, size_t count,
                          bool deviation)
{
    double mean = 0.0;
    double squares = 0.0;
    for (size_t i = 0; i < count; i++) {
        mean += group[i].reward / (double)count;
    }
    for (size_t i = 0; i < count; i++) {
        advantages[i] = group[i].reward - mean;
        squares += advantages[i] * advantages[i];
    }
    double spread = sqrt(squares / (double)(count - 1)) + SMALL_DEVIATION;
    for (size_t i = 0; i < count && deviation; i++) {
        advantages[i] /= spread;
    }
}

static double scale_of(const by__reinforce_objective *o, int64_t tokens)
{
    return o->normalize == BY__REINFORCE_SEQUENCES  ? 1.0 / (double)tokens
           : o->normalize == BY__REINFORCE_CONSTANT ? 1.0 / (double)o->max_tokens
                                                    : 1.0;
}

double by__reinforce_weigh(double *advantages, double *scales, const by__reinforce_completion *list,
                           size_t count, const by__reinforce_objective *o)
{
    size_t group = (size_t)o->group;
    double divisor = 0.0;
    for (size_t first = 0; first < count; first += group) {
        bool flat = is_flat(list + first, group);
        compare_group(advantages + first, list + first, group, o->deviation);
        for (size_t i = first; i < first + group; i++) {
            advantages[i] = flat ? 0.0 : advantages[i];
            scales[i] = flat ? 0.0 : scale_of(o, list[i].tokens);
            divisor += flat                                   ? 0.0
                       : o->normalize == BY__REINFORCE_TOKENS ? (double)list[i].tokens
                                                              : 1.0;
        }
    }
    return divisor > 1.0 ? divisor : 1.0;
}

double by__reinforce_token_weight(double advantage, double kl, double own, double start)
{
    return kl == 0.0 ? advantage : advantage + kl * expm1(start - own);
}

double by__reinforce_divergence(double own, double start)
{
    return expm1(start - own) - (start - own);
}

by_rollout_report by__reinforce_report(const by__reinforce_completion *list, size_t count,
                                       const by__reinforce_objective *o)
{
    by_rollout_report r = {.steps = 1, .completions = (int64_t)count, .group = o->group};
    double all = (double)count;
    double tokens = 0.0;
    for (size_t first = 0; first < count; first += (size_t)o->group) {
        bool passes = false;
        for (size_t i = first; i < first + (size_t)o->group; i++) {
            passes = passes || list[i].reward >= o->passes;
            r.reward += list[i].reward / all;
            r.cut += list[i].cut ? 1.0 / all : 0.0;
            r.kl += list[i].kl;
            tokens += (double)list[i].tokens;
        }
        r.pass += passes ? (double)o->group / all : 0.0;
        r.flat += is_flat(list + first, (size_t)o->group) ? (double)o->group / all : 0.0;
    }
    r.tokens = tokens / all;
    r.kl /= tokens;
    return r;
}
