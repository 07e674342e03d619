/* Learning-rate schedules. */
#include <math.h>
#include <string.h>

#include "banyan/optimizer.h"
#include "base/base.h"

double by_learning_rate_scale(const by_optimizer_config *config, int64_t batch)
{
    double times = config->lr_batch == -1 ? 1.0 : (double)batch / (double)config->lr_batch;
    return strcmp(config->lr_scaling, "linear") == 0 ? times
           : strcmp(config->lr_scaling, "sqrt") == 0 ? sqrt(times)
                                                     : 1.0;
}

double by_learning_rate(const by_optimizer_config *config, double step, double steps)
{
    double lr = config->lr;
    double low = config->min_lr;
    double first = config->warmup;
    if (step < first) {
        return lr * (step + 1.0) / (first + 1.0);
    }
    if (strcmp(config->schedule, "constant") == 0) {
        return lr;
    }
    if (strcmp(config->schedule, "wsd") == 0) {
        double last = steps - config->decay;
        first = last > first ? last : first;
    }
    if (step < first || steps <= first) {
        return lr;
    }
    double progress = (step - first) / (steps - first);
    progress = progress > 1.0 ? 1.0 : progress;
    if (strcmp(config->schedule, "cosine") == 0) {
        return low + 0.5 * (1.0 + cos(3.14159265358979323846 * progress)) * (lr - low);
    }
    return lr + (low - lr) * progress;
}
