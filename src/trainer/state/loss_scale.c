/* The scale of the loss (Micikevicius et al. 2018, section 3.2): moves gradients that would
 * underflow in fp16 into its range. The dynamic scale follows torch.amp.GradScaler: after a step
 * whose gradient overflowed, which is not applied, it is multiplied by backoff_factor, and after
 * growth_interval steps without overflow by growth_factor. */
#include <math.h>
#include <string.h>

#include "trainer/state/guard.h"
#include "trainer/state/train.h"

static bool is_auto(const by_config *config, const char *word)
{
    const char *wanted = config->precision.loss_scaling;
    bool derived = strcmp(wanted, "auto") == 0 && by__trainer_compute_dtype(config) == BY_F16;
    return strcmp(wanted, word) == 0 || (derived && strcmp(word, "dynamic") == 0);
}

bool by__trainer_scales_loss_dynamically(const by_config *config)
{
    return is_auto(config, "dynamic");
}

bool by__trainer_scales_loss(const by_config *config)
{
    return is_auto(config, "dynamic") || is_auto(config, "static");
}

by__trainer_loss_scale by__trainer_loss_scale_first(const by_config *config)
{
    return (by__trainer_loss_scale){
        .scale = by__trainer_scales_loss(config) ? config->precision.loss_scale : 1.0};
}

bool by__trainer_loss_scale_backs_off(const by__trainer_loss_scale *s, const by_config *config)
{
    return by__trainer_scales_loss_dynamically(config) &&
           s->scale > config->precision.min_loss_scale;
}

void by__trainer_loss_scale_follow(by__trainer_loss_scale *s, const by_config *config,
                                   bool overflow)
{
    const by_precision_config *p = &config->precision;
    if (!by__trainer_scales_loss_dynamically(config)) {
        return;
    }
    if (overflow) {
        s->scale = fmax(s->scale * p->backoff_factor, p->min_loss_scale);
        s->steps = 0;
    } else if (++s->steps >= p->growth_interval) {
        s->scale = fmin(s->scale * p->growth_factor, p->max_loss_scale);
        s->steps = 0;
    }
}
