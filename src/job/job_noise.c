/* The gradient noise scale B = tr(S) / |G|^2, with S the covariance of the gradients of examples
 * and G their mean: the critical batch, at which a step makes half the progress that one on all
 * data would (McCandlish et al. 2018, arXiv 1812.06162, equations 2.8 and 2.9). From the squared
 * norms of gradients over b and B examples, appendix A.1 has estimates without bias,
 *
 *     |G|^2 = (B |G_B|^2 - b |G_b|^2) / (B - b)
 *     tr(S) = (|G_b|^2 - |G_B|^2) / (1 / b - 1 / B)
 *
 * whose ratio has one, so that both are averaged before they are divided. */
#include "job/job.h"

#define DECAY 0.95

void by__job_noise_add(by__job_noise *noise, const by_step_result *result, double small)
{
    double large = (double)result->examples;
    if (result->micro_norm <= 0.0 || result->skipped != BY_SKIP_NONE || large <= small) {
        return;
    }
    double of_small = result->micro_norm * result->micro_norm;
    double of_large = result->norm * result->norm;
    double mean = (large * of_large - small * of_small) / (large - small);
    double spread = (of_small - of_large) / (1.0 / small - 1.0 / large);
    noise->mean = DECAY * noise->mean + (1.0 - DECAY) * mean;
    noise->spread = DECAY * noise->spread + (1.0 - DECAY) * spread;
}

double by__job_noise_scale(const by__job_noise *noise)
{
    return noise->mean > 0.0 && noise->spread > 0.0 ? noise->spread / noise->mean : 0.0;
}
