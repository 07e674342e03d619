/* The choice of the dial: a search over depths. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/dial/dial.h"

#define MOST_LAYERS  64
#define FEWEST_STEPS 20
/* Of a normal distribution, 80 % are within so many deviations. */
#define EIGHTY 1.2816
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
    return (int64_t)fmin(fmax(sequences, (double)BY__DIAL_LEAST_BATCH), 1024.0);
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
 * of either is worth the same. Of repeated bytes that is less than of new ones. *limit, if a text
 * is not read more often than 1 + R* times: more of it is worth less than 1/e of new text. */
static double best_bytes(const char **limit, const by__dial_laws *laws, double blocks,
                         double unique)
{
    const by_law *l = &laws->bits;
    double worth = l->alpha * l->a * pow(blocks, -l->alpha); /* of a share more parameters */
    double least = 0.0;
    double most = unique * (1.0 + laws->repeats);
    const double all = most;
    for (int i = 0; i < 100; i++) {
        double bytes = 0.5 * (least + most);
        double effective = by__dial_effective(laws, bytes, unique);
        double growth = bytes <= unique ? 1.0 : exp(-(bytes / unique - 1.0) / laws->repeats);
        double share = growth * bytes / effective;
        if (share * l->beta * l->b * pow(effective, -l->beta) > worth) {
            least = bytes;
        } else {
            most = bytes;
        }
    }
    *limit = most == all ? "repeats" : *limit;
    return most;
}

/* Sets the training of a model. Returns false if the budget does not suffice for a few steps. */
static bool train(by_dial_choice *c, const by_dial_budget *budget, const by_dial_data *data,
                  const by_dial_machine *machine)
{
    const by__dial_laws *laws = &by__dial_laws_of_text;
    double each = by_dial_seconds(machine, c->flops_per_token);
    double tokens = INFINITY;
    c->limit = budget->layers > 0 ? "depth" : "memory";
    if (budget->seconds > 0.0) {
        tokens = budget->seconds / each;
        c->limit = "time";
    }
    if (budget->flops > 0.0 && budget->flops / c->flops_per_token < tokens) {
        tokens = budget->flops / c->flops_per_token;
        c->limit = "FLOPs";
    }
    if (!isfinite(tokens)) {
        tokens = best_bytes(&c->limit, laws, c->blocks, data->tokens * data->bytes_per_token) /
                 data->bytes_per_token;
    }
    c->batch = batch_of(laws, tokens, c->context);
    c->steps = (int64_t)fmin(floor(tokens / (double)(c->batch * c->context)), 1e15);
    by_dial_extend(c, data);
    c->seconds = c->tokens * each;
    c->slower = 1.0;
    memcpy(c->precision, machine->precision, sizeof c->precision);
    c->asked = machine->asked;
    return c->steps >= FEWEST_STEPS;
}

/* ---- memory ---- */

/* Of the state of a plan per parameter, what no other plan's is below. */
#define STATE_SHARE 0.95

/* A search for what fits. */
typedef struct fitting {
    const by_dial_request *request;
    const by_dial_data *data;
    double per_parameter; /* bytes that no plan's state is below, of a parameter */
} fitting;

/* Plans a candidate within its bytes, by which its steps may be slower and fewer. */
static by_status plan(by_dial_choice *c, bool *fits, fitting *f, by_error *error)
{
    by_config *config;
    by__dial_plan p = {0};
    const by_dial_budget *budget = &f->request->budget;
    *fits = f->per_parameter * c->parameters <= (double)budget->bytes;
    if (!*fits || budget->bytes == 0) {
        return BY_OK;
    }
    BY_TRY(by__dial_open(&config, c, f->data, f->request, error));
    by_status status =
        by__dial_plan_make(&p, config, f->data, f->request->options, budget->bytes, error);
    by_config_close(&config);
    BY_TRY(status);
    double each = STATE_SHARE * (double)p.state / c->parameters;
    f->per_parameter = f->per_parameter > 0.0 ? fmin(f->per_parameter, each) : each;
    double step = p.slower * c->seconds / (double)c->steps;
    if (budget->seconds > 0.0 && step * (double)c->steps > budget->seconds) {
        c->steps = (int64_t)(budget->seconds / step);
        c->limit = "time";
        by_dial_extend(c, f->data);
    }
    c->seconds = step * (double)c->steps;
    c->bytes = budget->bytes;
    c->planned = p.bytes;
    c->slower = p.slower;
    c->micro_batch = p.micro_batch;
    *fits = p.fits && c->steps >= FEWEST_STEPS;
    return BY_OK;
}

static by_status refuse(const by_dial_choice *c, const fitting *f, by_error *error)
{
    by_config *config;
    uint64_t least = 0;
    BY_TRY(by__dial_open(&config, c, f->data, f->request, error));
    by_status status = by__dial_plan_least(&least, config, f->data, f->request->options, error);
    by_config_close(&config);
    BY_TRY(status);
    return by_error_set(error, BY_EMEMORY,
                        "the dial: a model of %lld layer%s trains in %llu MiB of memory at least, "
                        "and may have %llu MiB; give it more%s",
                        (long long)c->layers, c->layers == 1 ? "" : "s",
                        (unsigned long long)((least >> 20) + 1),
                        (unsigned long long)(f->request->budget.bytes >> 20),
                        c->layers > 1 ? ", or a smaller depth" : "");
}

/* ---- the search ---- */

static int compare_bits(const void *a, const void *b)
{
    double x = ((const by_dial_choice *)a)->bits;
    double y = ((const by_dial_choice *)b)->bits;
    return (x > y) - (x < y);
}

static int compare_layers(const void *a, const void *b)
{
    int64_t x = ((const by_dial_choice *)a)->layers;
    int64_t y = ((const by_dial_choice *)b)->layers;
    return (x < y) - (x > y);
}

/* Takes the best of candidates whose order is that of their worth with memory for all of them.
 * *found: there is one that fits. */
static by_status search(by_dial_choice *out, bool *found, by_dial_choice *all, size_t count,
                        fitting *f, by_error *error)
{
    const by_dial_budget *budget = &f->request->budget;
    bool limited = budget->seconds > 0.0 || budget->flops > 0.0;
    out->bits = INFINITY;
    *found = false;
    for (size_t i = 0; i < count; i++) {
        bool fits;
        if (*found && (!limited || all[i].bits >= out->bits)) {
            break;
        }
        BY_TRY(plan(&all[i], &fits, f, error));
        if (fits && all[i].bits < out->bits) {
            *out = all[i];
            *found = true;
        }
    }
    return BY_OK;
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

by_status by_dial_choose(by_dial_choice *out, const by_dial_request *request,
                         const by_dial_data *data, const by_dial_machine *machine, by_error *error)
{
    by_dial_choice all[MOST_LAYERS];
    by_dial_choice best;
    size_t count = 0;
    bool found;
    const by_dial_budget *budget = &request->budget;
    fitting f = {.request = request, .data = data};
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
        c.model = budget->layers > 0 ? "of the depth that is asked for"
                  : limited          ? "least loss by the law"
                                     : "the largest that memory suffices for";
        if (train(&c, budget, data, machine)) {
            all[count++] = c;
        }
    }
    if (count == 0) {
        return by_error_set(
            error, BY_EARG, "the dial: %s is less than %d steps of %s; give it more",
            limited ? "what is asked for" : "the text, read as often as it is worth it,",
            FEWEST_STEPS, budget->layers > 0 ? "a model of this depth" : "the smallest model");
    }
    const by_dial_choice smallest = all[0];
    qsort(all, count, sizeof *all, limited ? compare_bits : compare_layers);
    BY_TRY(search(&best, &found, all, count, &f, error));
    if (!found) {
        return refuse(&smallest, &f, error);
    }
    *out = best;
    return BY_OK;
}
