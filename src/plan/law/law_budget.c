/* What a budget of FLOPs buys by a law, in closed form.
 *
 * With D = C / (factor N^power) the loss is E + A N^-alpha + B (factor N^power / C)^beta, whose
 * minimum is N^(alpha + power beta) = alpha A / (power beta B) (C / factor)^beta. For 6 N this is
 * equation 4 of Hoffmann et al. Along it, loss - E is a power of C. */
#include <math.h>

#include "plan/law/law.h"

/* A budget from which others are scaled: powers of it are within the range of numbers. */
static const double unit = 1e18;

static by_law_flops cost_of(const by_law_flops *cost)
{
    return cost == NULL || cost->factor == 0.0 ? (by_law_flops){6.0, 1.0} : *cost;
}

by_law_flops by_law_flops_of(const by_law_run *runs, size_t count)
{
    double sum[5] = {0}; /* 1, x, y, x x, x y */
    for (size_t i = 0; i < count; i++) {
        if (runs[i].flops > 0.0) {
            double x = log(runs[i].parameters);
            double y = log(runs[i].flops / runs[i].tokens);
            sum[0] += 1.0;
            sum[1] += x;
            sum[2] += y;
            sum[3] += x * x;
            sum[4] += x * y;
        }
    }
    double spread = sum[3] - sum[1] * sum[1] / sum[0];
    if (sum[0] < 2.0 || !(spread > 1e-6 * sum[0])) {
        return (by_law_flops){6.0, 1.0};
    }
    double power = (sum[4] - sum[1] * sum[2] / sum[0]) / spread;
    return (by_law_flops){.factor = exp((sum[2] - power * sum[1]) / sum[0]), .power = power};
}

by_law_optimum by_law_best(const by_law *law, const by_law_flops *cost, double flops)
{
    by_law_flops c = cost_of(cost);
    double powers = law->alpha + c.power * law->beta;
    double ratio = law->alpha * law->a / (c.power * law->beta * law->b);
    if (!(ratio > 0.0) || !isfinite(ratio) || !(powers > 0.0) || !(flops > 0.0)) {
        return (by_law_optimum){NAN, NAN, NAN};
    }
    double n = exp((log(ratio) + law->beta * log(flops / c.factor)) / powers);
    double d = flops / (c.factor * pow(n, c.power));
    return (by_law_optimum){.parameters = n, .tokens = d, .loss = by_law_loss(law, n, d)};
}

double by_law_tokens(const by_law *law, double parameters, double loss)
{
    double left = loss - law->e - law->a * pow(parameters, -law->alpha);
    if (!(left > 0.0)) {
        return INFINITY;
    }
    return law->b > 0.0 ? pow(law->b / left, 1.0 / law->beta) : 0.0;
}

double by_law_flops_to(by_law_optimum *best, const by_law *law, const by_law_flops *cost,
                       double loss)
{
    by_law_flops c = cost_of(cost);
    by_law_optimum at = by_law_best(law, cost, unit);
    double power = law->alpha * law->beta / (law->alpha + c.power * law->beta);
    double flops = loss > law->e && isfinite(at.loss)
                       ? unit * pow((at.loss - law->e) / (loss - law->e), 1.0 / power)
                       : INFINITY;
    if (best != NULL) {
        *best = isfinite(flops) ? by_law_best(law, cost, flops) : (by_law_optimum){NAN, NAN, NAN};
    }
    return flops;
}
