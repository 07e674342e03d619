/* What banyan plan fit prints. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan_command.h"

/* Runs that the report names: those without which the best size changes most. */
#define NAMED 5
/* Budgets beyond this multiple of the runs' are a guess. */
#define FAR 10.0
/* As many passes over a text are worth something (Muennighoff et al. 2023). */
#define MOST_PASSES 40.0

/* A number that a law gives. */
typedef struct law_quantity {
    const char *name; /* in JSON */
    const char *label;
    double (*of)(const by_law *law, const cli_law_report *r);
} law_quantity;

static double e_of(const by_law *law, const cli_law_report *r)
{
    (void)r;
    return law->e;
}

static double a_of(const by_law *law, const cli_law_report *r)
{
    (void)r;
    return law->a;
}

static double b_of(const by_law *law, const cli_law_report *r)
{
    (void)r;
    return law->b;
}

static double alpha_of(const by_law *law, const cli_law_report *r)
{
    (void)r;
    return law->alpha;
}

static double beta_of(const by_law *law, const cli_law_report *r)
{
    (void)r;
    return law->beta;
}

static double power_of(const by_law *law, const cli_law_report *r)
{
    return law->beta / (law->alpha + r->cost.power * law->beta);
}

static by_law_optimum best_of(const by_law *law, const cli_law_report *r)
{
    return r->unique > 0.0 ? by_law_best_repeated(law, &r->cost, r->flops, r->unique)
                           : by_law_best(law, &r->cost, r->flops);
}

/* Times that the best size reads the tokens that differ; 0: that is not asked for. */
static double passes(const cli_law_report *r)
{
    return r->unique > 0.0 ? best_of(&r->fit.law, r).tokens / r->unique : 0.0;
}

static double best_parameters_of(const by_law *law, const cli_law_report *r)
{
    return best_of(law, r).parameters;
}

static double best_tokens_of(const by_law *law, const cli_law_report *r)
{
    return best_of(law, r).tokens;
}

static double best_loss_of(const by_law *law, const cli_law_report *r)
{
    return best_of(law, r).loss;
}

static double flops_to_of(const by_law *law, const cli_law_report *r)
{
    return by_law_flops_to(NULL, law, &r->cost, r->loss);
}

static double served_flops_of(const by_law *law, const cli_law_report *r)
{
    return by_law_flops_served(NULL, law, &r->cost, r->loss, r->served);
}

static double served_parameters_of(const by_law *law, const cli_law_report *r)
{
    by_law_optimum best;
    (void)by_law_flops_served(&best, law, &r->cost, r->loss, r->served);
    return best.parameters;
}

static double served_tokens_of(const by_law *law, const cli_law_report *r)
{
    by_law_optimum best;
    (void)by_law_flops_served(&best, law, &r->cost, r->loss, r->served);
    return best.tokens;
}

static const law_quantity numbers[] = {
    {"e", "E", e_of},          {"a", "A", a_of},
    {"b", "B", b_of},          {"alpha", "alpha", alpha_of},
    {"beta", "beta", beta_of}, {"size_power", "best N ~ C^", power_of},
};
static const law_quantity budget[] = {
    {"parameters", "parameters", best_parameters_of},
    {"tokens", "tokens", best_tokens_of},
    {"loss", "loss", best_loss_of},
};
static const law_quantity target[] = {{"flops", "FLOPs", flops_to_of}};
static const law_quantity service[] = {
    {"flops", "FLOPs", served_flops_of},
    {"parameters", "parameters", served_parameters_of},
    {"tokens", "tokens", served_tokens_of},
};

static by_status interval_of(by_law_interval *out, const law_quantity *q, const cli_law_report *r,
                             by_error *error)
{
    double *values = malloc((r->draw_count + 1) * sizeof *values);
    if (values == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: %zu draws", r->draw_count);
    }
    for (size_t i = 0; i < r->draw_count; i++) {
        values[i] = q->of(&r->draws[i], r);
    }
    *out = by_law_between(values, r->draw_count, q->of(&r->fit.law, r), r->level);
    free(values);
    return BY_OK;
}

/* Budget at which sizes are compared: that asked for, or the runs' largest. */
static double compared_budget(const cli_law_report *r)
{
    return r->flops > 0.0 ? r->flops : r->most;
}

/* How far the best size moves with another law: log of the ratio. */
static double moved(const cli_law_report *r, const by_law *other)
{
    double flops = compared_budget(r);
    return log(by_law_best(other, &r->cost, flops).parameters /
               by_law_best(&r->fit.law, &r->cost, flops).parameters);
}

/* The indices of the runs that move the best size most, in order. Returns their number. */
static size_t find_influence(size_t found[NAMED], const cli_law_report *r)
{
    size_t count = 0;
    for (size_t i = 0; i < r->runs.count; i++) {
        double size = fabs(moved(r, &r->without[i]));
        size_t at = count;
        if (isnan(size)) {
            continue;
        }
        while (at > 0 && size > fabs(moved(r, &r->without[found[at - 1]]))) {
            at--;
        }
        if (at < NAMED) {
            count = count < NAMED ? count + 1 : NAMED;
            memmove(found + at + 1, found + at, (count - at - 1) * sizeof *found);
            found[at] = i;
        }
    }
    return count;
}

/* ---- JSON ---- */

static by_status print_json_quantities(const law_quantity *q, size_t count, const cli_law_report *r,
                                       by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        char text[3][32];
        by_law_interval interval;
        by_status status = interval_of(&interval, &q[i], r, error);
        if (status != BY_OK) {
            return status;
        }
        printf("%s\"%s\":%s,\"%s_interval\":[%s,%s]", i == 0 ? "" : ",", q[i].name,
               cli_json_number(text[0], q[i].of(&r->fit.law, r), 9), q[i].name,
               cli_json_number(text[1], interval.low, 6),
               cli_json_number(text[2], interval.high, 6));
    }
    return BY_OK;
}

static void print_json_others(const cli_law_report *r)
{
    char text[4][32];
    size_t found[NAMED];
    size_t count = find_influence(found, r);
    printf(",\"isoflop\":{\"budgets\":%zu,\"factor\":%s,\"power\":%s},\"influence\":[",
           r->isoflop.budgets, cli_json_number(text[0], r->isoflop.factor, 6),
           cli_json_number(text[1], r->isoflop.power, 6));
    for (size_t i = 0; i < count; i++) {
        char name[160];
        const by_law *without = &r->without[found[i]];
        printf("%s{\"run\":", i == 0 ? "" : ",");
        cli_print_json_string(cli_law_run_name(name, &r->runs, found[i]));
        printf(",\"alpha\":%s,\"beta\":%s,\"size_ratio\":%s}",
               cli_json_number(text[0], without->alpha, 6),
               cli_json_number(text[1], without->beta, 6),
               cli_json_number(text[2], exp(moved(r, without)), 6));
    }
    printf("],\"choices\":[");
    const char *between = "";
    for (size_t i = 0; i < CLI_LAW_CHOICES; i++) {
        const cli_law_choice *c = &r->choices[i];
        if (c->fitted) {
            printf("%s{\"choice\":\"%s\",\"e\":%s,\"alpha\":%s,\"beta\":%s,\"size_ratio\":%s}",
                   between, c->name, cli_json_number(text[0], c->fit.law.e, 6),
                   cli_json_number(text[1], c->fit.law.alpha, 6),
                   cli_json_number(text[2], c->fit.law.beta, 6),
                   cli_json_number(text[3], exp(moved(r, &c->fit.law)), 6));
            between = ",";
        }
    }
    printf("]");
}

static void print_json_shape(const cli_law_shape *s)
{
    char text[3][32];
    printf(",\"shape\":{\"width\":%lld,\"layers\":%lld,\"heads\":%lld,\"kv_heads\":%lld,",
           (long long)s->width, (long long)s->layers, (long long)s->heads, (long long)s->kv_heads);
    if (s->mlp_width > 0) {
        printf("\"mlp_width\":%lld,", (long long)s->mlp_width);
    }
    printf("\"steps\":%lld,\"parameters\":%s,\"tokens\":%s,\"loss\":%s}", (long long)s->steps,
           cli_json_number(text[0], s->parameters, 12), cli_json_number(text[1], s->tokens, 12),
           cli_json_number(text[2], s->loss, 9));
}

static by_status print_json(const cli_law_report *r, by_error *error)
{
    char text[3][32];
    printf(
        "{\"runs\":%zu,\"left_out\":%zu,\"delta\":%s,\"objective\":%s,\"spread\":%s,\"at_edge\":%s,"
        "\"seconds\":%.4g,",
        r->runs.count, r->runs.left_out, cli_json_number(text[0], r->options.delta, 6),
        cli_json_number(text[1], r->fit.objective, 12), cli_json_number(text[2], r->fit.spread, 6),
        r->fit.at_edge ? "true" : "false", r->seconds);
    by_status status = print_json_quantities(numbers, sizeof numbers / sizeof *numbers, r, error);
    printf(",\"flops_factor\":%s,\"flops_power\":%s,\"most_flops\":%s",
           cli_json_number(text[0], r->cost.factor, 6), cli_json_number(text[1], r->cost.power, 6),
           cli_json_number(text[2], r->most, 6));
    if (status == BY_OK && r->flops > 0.0) {
        printf(",\"best\":{\"flops\":%s,", cli_json_number(text[0], r->flops, 9));
        if (r->unique > 0.0) {
            printf("\"unique_tokens\":%s,", cli_json_number(text[0], r->unique, 9));
        }
        status = print_json_quantities(budget, sizeof budget / sizeof *budget, r, error);
        printf("}");
    }
    if (status == BY_OK && r->loss > 0.0) {
        printf(",\"reach\":{\"loss\":%s,", cli_json_number(text[0], r->loss, 9));
        status = print_json_quantities(target, sizeof target / sizeof *target, r, error);
        printf("}");
    }
    if (status == BY_OK && r->served > 0.0) {
        printf(",\"serve\":{\"inference_tokens\":%s,", cli_json_number(text[0], r->served, 9));
        status = print_json_quantities(service, sizeof service / sizeof *service, r, error);
        printf("}");
    }
    if (status == BY_OK) {
        print_json_others(r);
        if (r->has_shape) {
            print_json_shape(&r->shape);
        }
    }
    printf("}\n");
    return status;
}

/* ---- text ---- */

static void print_shape(const cli_law_shape *s)
{
    printf("config        --set model.width=%lld --set model.heads=%lld", (long long)s->width,
           (long long)s->heads);
    if (s->kv_heads > 0 && s->kv_heads < s->heads) {
        printf(" --set model.kv_heads=%lld", (long long)s->kv_heads);
    }
    if (s->mlp_width > 0) {
        printf(" --set model.mlp_width=%lld", (long long)s->mlp_width);
    }
    printf(" --set model.layers=%lld --set train.steps=%lld: %.4g parameters, %.4g tokens, loss "
           "%.5g\n",
           (long long)s->layers, (long long)s->steps, s->parameters, s->tokens, s->loss);
}

static by_status print_quantities(const law_quantity *q, size_t count, const cli_law_report *r,
                                  by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        by_law_interval interval;
        by_status status = interval_of(&interval, &q[i], r, error);
        if (status != BY_OK) {
            return status;
        }
        printf("  %-12s %-12.5g %.5g to %.5g\n", q[i].label, q[i].of(&r->fit.law, r), interval.low,
               interval.high);
    }
    return BY_OK;
}

static void print_fit(const cli_law_report *r)
{
    const by_law *law = &r->fit.law;
    printf("law           loss = %.5g + %.5g / N^%.4f + %.5g / D^%.4f\n", law->e, law->a,
           law->alpha, law->b, law->beta);
    printf("runs          %zu, up to %.3g FLOPs; residuals of %.2f %%\n", r->runs.count, r->most,
           100.0 * r->fit.spread);
    printf("objective     %.8g (sum of Huber of log loss, delta %g), found in %.3f s\n",
           r->fit.objective, r->options.delta, r->seconds);
    if (r->cost.factor != 6.0 || r->cost.power != 1.0) {
        printf("FLOPs         %.4g N^%.4f a token, as the runs say\n", r->cost.factor,
               r->cost.power);
    }
}

static void print_isoflop(const cli_law_report *r)
{
    if (r->isoflop.budgets < 2) {
        printf("IsoFLOP       too few budgets have a minimum inside the sizes that were trained\n");
        return;
    }
    printf("IsoFLOP       best N ~ C^%.4f by parabolas at %zu budgets (biased without noise too)\n",
           r->isoflop.power, r->isoflop.budgets);
}

static void print_choices(const cli_law_report *r)
{
    size_t found[NAMED];
    size_t count = find_influence(found, r);
    printf("other choices, and the best size at %.3g FLOPs by them\n", compared_budget(r));
    for (size_t i = 0; i < CLI_LAW_CHOICES; i++) {
        const cli_law_choice *c = &r->choices[i];
        if (c->fitted) {
            printf("  %-32s E %.4g, alpha %.4f, beta %.4f: %+.1f %%\n", c->name, c->fit.law.e,
                   c->fit.law.alpha, c->fit.law.beta, 100.0 * expm1(moved(r, &c->fit.law)));
        }
    }
    printf("runs of most influence, and the best size without them\n");
    for (size_t i = 0; i < count; i++) {
        char name[160];
        printf("  ");
        cli_print_cell(cli_law_run_name(name, &r->runs, found[i]));
        printf(": %+.1f %%\n", 100.0 * expm1(moved(r, &r->without[found[i]])));
    }
}

/* More draws than lie below an interval do without a term of the law. */
static bool lacks_term(const cli_law_report *r)
{
    size_t count = 0;
    for (size_t i = 0; i < r->draw_count; i++) {
        count += r->draws[i].a == 0.0 || r->draws[i].b == 0.0;
    }
    return (double)count > 0.5 * (1.0 - r->level) * (double)r->draw_count;
}

static void print_warnings(const cli_law_report *r)
{
    if (r->fit.at_edge || lacks_term(r)) {
        printf("note          a number is, or may be, at the end of its range: these runs do not "
               "tell it; "
               "train more sizes and lengths\n");
    }
    if (r->flops > FAR * r->most) {
        printf("note          the budget is %.3g times that of the largest run: an interval says "
               "nothing of what the law leaves out\n",
               r->flops / r->most);
    }
    if (passes(r) > MOST_PASSES) {
        printf("note          more than about %g passes over a text were worth nothing in the runs "
               "behind that law: spend less, or find more text\n",
               MOST_PASSES);
    }
}

static by_status print_text(const cli_law_report *r, by_error *error)
{
    print_fit(r);
    printf("  %-12s %-12s %g %% interval\n", "", "estimate", 100.0 * r->level);
    by_status status = print_quantities(numbers, sizeof numbers / sizeof *numbers, r, error);
    if (status == BY_OK && r->flops > 0.0) {
        printf("best for %.4g FLOPs", r->flops);
        if (r->unique > 0.0) {
            printf(" and %.4g tokens that differ", r->unique);
        }
        if (passes(r) > 1.0) {
            printf(", read %.3g times", passes(r));
        }
        printf("\n");
        status = print_quantities(budget, sizeof budget / sizeof *budget, r, error);
    }
    if (status == BY_OK && r->has_shape) {
        print_shape(&r->shape);
    }
    if (status == BY_OK && r->loss > 0.0) {
        printf("least for a loss of %.5g\n", r->loss);
        status = print_quantities(target, sizeof target / sizeof *target, r, error);
    }
    if (status == BY_OK && r->served > 0.0) {
        printf("least for that and %.4g tokens of inference\n", r->served);
        status = print_quantities(service, sizeof service / sizeof *service, r, error);
    }
    if (status == BY_OK) {
        print_isoflop(r);
        print_choices(r);
        print_warnings(r);
    }
    return status;
}

by_status cli_print_law(const cli_law_report *r, bool json, by_error *error)
{
    return json ? print_json(r, error) : print_text(r, error);
}
