/* What is best by a law when tokens are few, or when those of inference count, too.
 *
 * Both search along the logarithm of N, where the slope of what is minimised rises. */
#include <math.h>

#include "plan/law/law.h"

#define HALVINGS 200

double by_law_effective(double amount, double unique, double worth)
{
    double repeats = amount / unique - 1.0;
    return repeats <= 0.0 ? amount : unique * (1.0 + worth * (1.0 - exp(-repeats / worth)));
}

static by_law_flops cost_of(const by_law_flops *cost)
{
    return cost == NULL || cost->factor == 0.0 ? (by_law_flops){6.0, 1.0} : *cost;
}

static bool has_optimum(const by_law *law)
{
    return law->a > 0.0 && law->b > 0.0 && law->alpha > 0.0 && law->beta > 0.0;
}

/* ---- repeated tokens ---- */

/* The size for which so many tokens are the best. */
static double size_of(const by_law *law, double power, double tokens)
{
    double ratio = law->alpha * law->a / (power * law->beta * law->b);
    return exp((log(ratio) + law->beta * log(tokens)) / law->alpha);
}

double by_law_loss_repeated(const by_law *law, const by_law_flops *cost, double parameters,
                            double tokens, double unique)
{
    double own = fmin(tokens, unique);
    double size = fmin(parameters, size_of(law, cost_of(cost).power, own));
    return by_law_loss(law, by_law_effective(parameters, size, BY_LAW_EXCESS_WORTH),
                       by_law_effective(tokens, own, BY_LAW_REPEATS_WORTH));
}

/* X^-power of what X is worth, times the share that it grows by for each share more of X. */
static double marginal(double x, double unique, double worth, double power)
{
    double effective = by_law_effective(x, unique, worth);
    double growth = x <= unique ? 1.0 : exp(-(x / unique - 1.0) / worth);
    return pow(effective, -power) * growth * x / effective;
}

by_law_optimum by_law_best_repeated(const by_law *law, const by_law_flops *cost, double flops,
                                    double unique)
{
    by_law_flops c = cost_of(cost);
    by_law_optimum best = by_law_best(law, cost, flops);
    if (!(best.tokens > unique) || !has_optimum(law)) {
        return best;
    }
    /* Between all of the rest of the FLOPs for repeats, and all of it for parameters. */
    double size = size_of(law, c.power, unique);
    double least = log(size);
    double most = log(flops / (c.factor * unique)) / c.power;
    for (int i = 0; i < HALVINGS; i++) {
        double middle = 0.5 * (least + most);
        double n = exp(middle);
        double d = flops / (c.factor * pow(n, c.power));
        double larger = law->alpha * law->a * marginal(n, size, BY_LAW_EXCESS_WORTH, law->alpha);
        double longer =
            c.power * law->beta * law->b * marginal(d, unique, BY_LAW_REPEATS_WORTH, law->beta);
        least = larger > longer ? middle : least;
        most = larger > longer ? most : middle;
    }
    best.parameters = exp(most);
    best.tokens = flops / (c.factor * pow(best.parameters, c.power));
    best.loss = by_law_loss_repeated(law, cost, best.parameters, best.tokens, unique);
    return best;
}

/* ---- inference ---- */

/* The slope of the FLOPs along log N is that of N^power, times what training and inference read,
 * and that of the tokens: fewer reach the loss as A N^-alpha leaves more of it to B D^-beta. */
double by_law_flops_served(by_law_optimum *best, const by_law *law, const by_law_flops *cost,
                           double loss, double served)
{
    by_law_flops c = cost_of(cost);
    by_law_optimum at;
    double flops = by_law_flops_to(&at, law, cost, loss);
    if (served > 0.0 && isfinite(flops) && has_optimum(law)) {
        double left = loss - law->e;
        double least = log(law->a / left) / law->alpha; /* that never gets there */
        double most = log(at.parameters);               /* best without inference */
        for (int i = 0; i < HALVINGS; i++) {
            double middle = 0.5 * (least + most);
            double size = law->a * exp(-law->alpha * middle);
            double tokens = by_law_tokens(law, exp(middle), loss);
            double falls = law->alpha * size / (law->beta * (left - size));
            bool larger = !isfinite(tokens) || falls * tokens > c.power * (tokens + served / 3.0);
            least = larger ? middle : least;
            most = larger ? most : middle;
        }
        at = (by_law_optimum){exp(most), by_law_tokens(law, exp(most), loss), loss};
        flops = c.factor * pow(at.parameters, c.power) * (at.tokens + served / 3.0);
    }
    if (best != NULL) {
        *best = at;
    }
    return flops;
}
