/* The choice of the dial: a search over depths. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "plan/dial/dial.h"

#define MOST_LAYERS  64
#define FEWEST_STEPS 20
/* Of a normal distribution, 80 % are within so many deviations. */
#define EIGHTY 1.2816
/* Bytes of a parameter in training: weights, gradients, two moments, a narrow copy. */
#define PARAMETER_BYTES 18.0
/* Bytes of the activations of a token, for each column of a layer; and of its logits. */
#define ACTIVATION_BYTES 70.0
#define LOGIT_BYTES      8.0
/* Losses of models and texts unlike those of the law's runs are as many times less certain. */
#define BEYOND      4.0
#define MOST_EPOCHS 4.0

double by_dial_seconds(const by_dial_machine *machine, double flops)
{
    size_t i = 0;
    if (machine->count == 1) {
        return machine->seconds[0] * flops / machine->flops[0];
    }
    while (i + 2 < machine->count && flops > machine->flops[i + 1]) {
        i++;
    }
    double power = log(machine->seconds[i + 1] / machine->seconds[i]) /
                   log(machine->flops[i + 1] / machine->flops[i]);
    bool beyond = flops > machine->flops[machine->count - 1];
    /* Larger models are not faster per operation than the largest that was measured. */
    const size_t from = beyond ? machine->count - 1 : i;
    power = beyond ? fmax(power, 1.0) : power;
    return machine->seconds[from] * pow(flops / machine->flops[from], power);
}

/* The batch is rounded to a multiple of 4 sequences. */
static int64_t batch_of(const by__dial_laws *laws, double tokens, int64_t context)
{
    double batch = laws->batch * pow(tokens / laws->batch_tokens, laws->batch_power);
    double sequences = round(batch / (4.0 * (double)context)) * 4.0;
    return (int64_t)fmin(fmax(sequences, 4.0), 1024.0);
}

static double bytes_of(const by_dial_choice *c, const by_dial_data *data)
{
    double tokens = (double)c->batch * (double)c->context;
    return PARAMETER_BYTES * c->parameters +
           tokens * ((double)(c->layers * c->width) * ACTIVATION_BYTES +
                     (double)data->vocab * LOGIT_BYTES);
}

void by_dial_extend(by_dial_choice *c, const by_dial_data *data)
{
    const by__dial_laws *laws = &by__dial_laws_of_text;
    c->tokens = (double)c->steps * (double)c->batch * (double)c->context;
    c->epochs = c->tokens / data->tokens;
    double bytes = c->tokens * data->bytes_per_token;
    c->lr = laws->rate;
    c->bits = by_law_loss(&laws->bits, c->blocks,
                          by__dial_effective(laws, bytes, data->tokens * data->bytes_per_token));
    c->beyond = c->blocks < 0.5 * laws->blocks[0] || c->blocks > 2.0 * laws->blocks[1] ||
                bytes < 0.5 * laws->bytes[0] || bytes > 2.0 * laws->bytes[1] ||
                c->epochs > MOST_EPOCHS;
    double spread = laws->spread * (c->beyond ? BEYOND : 1.0);
    c->low = c->bits * exp(-EIGHTY * spread);
    c->high = c->bits * exp(EIGHTY * spread);
}

/* The bytes with which a model of so many parameters is the best of its FLOPs: where a share more
 * of either is worth the same. */
static double best_bytes(const by__dial_laws *laws, double blocks)
{
    const by_law *l = &laws->bits;
    return pow(l->beta * l->b / (l->alpha * l->a) * pow(blocks, l->alpha), 1.0 / l->beta);
}

/* Sets the training of a model; false: the budget does not suffice for a few steps. */
static bool train(by_dial_choice *c, const by_dial_budget *budget, const by_dial_data *data,
                  const by_dial_machine *machine)
{
    const by__dial_laws *laws = &by__dial_laws_of_text;
    double each = by_dial_seconds(machine, c->flops_per_token);
    double tokens = best_bytes(laws, c->blocks) / data->bytes_per_token;
    c->limit = "depth";
    if (budget->seconds > 0.0 || budget->flops > 0.0) {
        tokens = INFINITY;
    }
    if (budget->seconds > 0.0) {
        tokens = budget->seconds / each;
        c->limit = "time";
    }
    if (budget->flops > 0.0 && budget->flops / c->flops_per_token < tokens) {
        tokens = budget->flops / c->flops_per_token;
        c->limit = "FLOPs";
    }
    c->batch = batch_of(laws, tokens, c->context);
    c->steps = (int64_t)fmin(floor(tokens / (double)(c->batch * c->context)), 1e15);
    by_dial_extend(c, data);
    c->seconds = c->tokens * each;
    return c->steps >= FEWEST_STEPS &&
           (budget->bytes == 0 || bytes_of(c, data) <= (double)budget->bytes);
}

double by_dial_least_seconds(const by_dial_data *data, const by_dial_machine *machine,
                             int64_t layers, int64_t context)
{
    const by__dial_laws *laws = &by__dial_laws_of_text;
    by_dial_choice c = {0};
    by__dial_shape(&c, layers > 0 ? layers : 1, context > 0 ? context : laws->context, data->vocab);
    double tokens = (double)(FEWEST_STEPS * batch_of(laws, 1.0, c.context) * c.context);
    return tokens * by_dial_seconds(machine, c.flops_per_token);
}

by_status by_dial_choose(by_dial_choice *out, const by_dial_budget *budget,
                         const by_dial_data *data, const by_dial_machine *machine, by_error *error)
{
    by_dial_choice best = {.bits = INFINITY};
    bool limited = budget->seconds > 0.0 || budget->flops > 0.0;
    int64_t first = budget->layers > 0 ? budget->layers : 1;
    int64_t last = budget->layers > 0 ? budget->layers : MOST_LAYERS;
    int64_t context = budget->context > 0 ? budget->context : by__dial_laws_of_text.context;
    if (!limited && budget->layers == 0 && budget->bytes == 0) {
        return by_error_set(error, BY_EARG,
                            "the dial is set to nothing: give it a time, FLOPs, "
                            "memory or a depth");
    }
    for (int64_t layers = first; layers <= last; layers++) {
        by_dial_choice c = {0};
        by__dial_shape(&c, layers, context, data->vocab);
        if (train(&c, budget, data, machine) && (limited ? c.bits < best.bits : true)) {
            best = c;
        }
    }
    if (!isfinite(best.bits)) {
        return by_error_set(error, BY_EARG,
                            "the dial: %s is less than %d steps of %s; give it more",
                            limited ? "what is asked for" : "the memory", FEWEST_STEPS,
                            budget->layers > 0 ? "a model of this depth" : "the smallest model");
    }
    best.bytes = budget->bytes;
    best.limit = !limited && budget->layers == 0 ? "memory" : best.limit;
    *out = best;
    return BY_OK;
}
