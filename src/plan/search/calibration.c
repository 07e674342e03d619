/* Plans measured steps, and fits the figures of their cluster. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/search/calibration.h"
#include "trainer/state/trainer.h"

void by_calibration_close(by_calibration **calibration)
{
    by_calibration *c = *calibration;
    if (c == NULL) {
        return;
    }
    for (size_t i = 0; i < c->model_count; i++) {
        by_config_close(&c->models[i].config);
    }
    for (size_t i = 0; i < c->profile_count; i++) {
        by__search_profile_free(&c->profiles[i]);
    }
    free(c->point_of);
    free(c->points);
    free(c->model_of);
    free(c->profiles);
    free(c->models);
    free(c->steps);
    free(c);
    *calibration = NULL;
}

const by_measured_step *by_calibration_steps(const by_calibration *c, size_t *count)
{
    *count = c->count;
    return c->steps;
}

/* ---- compiling ---- */

static bool is_same(const by__search_key *a, const by__search_key *b)
{
    return a->tensor == b->tensor && a->expert == b->expert && a->recompute == b->recompute &&
           a->sequence_parallel == b->sequence_parallel;
}

static by_status find_profile(size_t *out, by_calibration *c, const by_measured_step *s,
                              const by_cluster *cluster, by_error *error)
{
    const by__search_key key = {.tensor = s->layout.sizes[BY_MESH_TENSOR],
                                .expert = 1,
                                .recompute = s->layout.recompute,
                                .sequence_parallel = s->layout.sequence_parallel};
    for (size_t i = 0; i < c->profile_count; i++) {
        if (c->model_of[i] == s->model && is_same(&c->profiles[i].key, &key)) {
            *out = i;
            return BY_OK;
        }
    }
    *out = c->profile_count;
    c->model_of[c->profile_count] = s->model;
    BY_TRY(by__search_profile_make(&c->profiles[c->profile_count], c->models[s->model].config, &key,
                                   cluster, error));
    c->profile_count++;
    return BY_OK;
}

static void find_point(size_t *out, by_calibration *c, const by_measured_step *s, size_t profile)
{
    for (size_t i = 0; i < c->point_count; i++) {
        const by__search_case_point *p = &c->points[i];
        if (p->profile == profile && p->micro_batch == s->layout.micro_batch &&
            p->sequence == s->layout.sizes[BY_MESH_SEQUENCE]) {
            *out = i;
            return;
        }
    }
    *out = c->point_count;
    c->points[c->point_count++] =
        (by__search_case_point){.model = s->model,
                                .profile = profile,
                                .micro_batch = s->layout.micro_batch,
                                .sequence = s->layout.sizes[BY_MESH_SEQUENCE]};
}

static by_status compile(by_calibration *c, const by_cluster *cluster, by_error *error)
{
    size_t n = c->count;
    BY_TRY(by__alloc((void **)&c->profiles, n, sizeof *c->profiles, "steps", error));
    BY_TRY(by__alloc((void **)&c->model_of, n, sizeof *c->model_of, "steps", error));
    BY_TRY(by__alloc((void **)&c->points, n, sizeof *c->points, "steps", error));
    BY_TRY(by__alloc((void **)&c->point_of, n, sizeof *c->point_of, "steps", error));
    for (size_t i = 0; i < n; i++) {
        size_t profile;
        BY_TRY(find_profile(&profile, c, &c->steps[i], cluster, error));
        find_point(&c->point_of[i], c, &c->steps[i], profile);
    }
    return BY_OK;
}

by_status by_calibration_open(by_calibration **out, const by_table *table,
                              const by_cluster *cluster, by_error *error)
{
    by_calibration *c;
    BY_TRY(by__alloc((void **)&c, 1, sizeof *c, "steps", error));
    by_status status = by__search_cases_read(c, table, error);
    if (status == BY_OK) {
        status = compile(c, cluster, error);
    }
    if (status != BY_OK) {
        by_calibration_close(&c);
        return status;
    }
    *out = c;
    return BY_OK;
}

/* ---- planning ---- */

static double plan_step(by_calibration *c, size_t i, const by_cluster *cluster)
{
    const by_measured_step *s = &c->steps[i];
    const by__search_case_point *point = &c->points[c->point_of[i]];
    const by__search_profile *profile = &c->profiles[point->profile];
    by__search_model model;
    by__search_stages stages;
    by_search_choice choice = s->layout;
    by__search_describe(&model, c->models[s->model].config, cluster);
    model.batch = s->batch;
    model.adds = s->adds;
    model.gradient = s->gradient;
    model.bucket = s->bucket;
    model.overlap = s->overlaps_gradients;
    model.overlaps_sends = s->overlaps_sends;
    model.overlaps_tensor = s->overlaps_tensor;
    model.splits_sends = s->splits_sends;
    by__search_rank_stages(&stages, &model, profile, &point->block, choice.sizes[BY_MESH_PIPELINE],
                           choice.chunks);
    by__search_cost(&choice, &model, profile, &point->block, &stages);
    return choice.seconds;
}

by_status by_calibration_plan(double *planned, by_calibration *c, const by_cluster *cluster,
                              by_error *error)
{
    for (size_t i = 0; i < c->profile_count; i++) {
        BY_TRY(by__search_profile_rates(&c->profiles[i], cluster, error));
    }
    for (size_t i = 0; i < c->point_count; i++) {
        by__search_case_point *p = &c->points[i];
        by__search_profile_evaluate(&p->block, &c->profiles[p->profile], cluster, p->micro_batch,
                                    p->sequence);
    }
    for (size_t i = 0; i < c->count; i++) {
        planned[i] = plan_step(c, i, cluster);
    }
    return BY_OK;
}

/* ---- the fit ---- */

/* A figure that is fitted: its place, and its range. */
typedef struct fitted_figure {
    double *at;
    double least;
    double most;
    double start;     /* of the search; a usual value where it was 0 */
    unsigned figures; /* bits by by_cluster_figure; 0: of a level */
} fitted_figure;

enum { MOST_FIGURES = 14, FITTED_LEVELS = 3 };

/* What a figure costs that is e times where it began, as an error of a step. */
static const double change_weight = 0.02;

static int list_figures(fitted_figure out[MOST_FIGURES], by_cluster *cluster)
{
    by_cluster_device *d = &cluster->device;
    int count = 0;
    out[count++] = (fitted_figure){&d->product_share, 0.02, 1.0, 0.5,
                                   BY_FIGURE_PRODUCT_SHARE | BY_FIGURE_F32 | BY_FIGURE_BF16};
    out[count++] = (fitted_figure){&d->attention_share, 0.005, 1.0, 0.3, BY_FIGURE_ATTENTION_SHARE};
    out[count++] = (fitted_figure){&d->bandwidth, 1e9, 1e14, 1e12, BY_FIGURE_BANDWIDTH};
    out[count++] = (fitted_figure){&d->launch, 1e-8, 1e-3, 5e-6, BY_FIGURE_LAUNCH};
    out[count++] = (fitted_figure){&d->host, 1e-8, 1e-2, 1e-5, BY_FIGURE_HOST};
    out[count++] = (fitted_figure){&d->step, 1e-6, 10.0, 1e-3, BY_FIGURE_STEP};
    out[count++] =
        (fitted_figure){&d->compute_slowdown, 1e-3, 3.0, 0.1, BY_FIGURE_COMPUTE_SLOWDOWN};
    out[count++] =
        (fitted_figure){&d->exchange_slowdown, 1e-3, 3.0, 0.1, BY_FIGURE_EXCHANGE_SLOWDOWN};
    for (int i = 0; i < cluster->level_count && i < FITTED_LEVELS; i++) {
        out[count++] = (fitted_figure){&cluster->levels[i].latency, 1e-8, 1e-2, 1e-5, 0};
        out[count++] = (fitted_figure){&cluster->levels[i].bandwidth, 1e7, 1e14, 1e11, 0};
    }
    for (int k = 0; k < count; k++) {
        out[k].start = *out[k].at > 0.0 ? *out[k].at : out[k].start;
        *out[k].at = out[k].start;
    }
    return count;
}

/* A fit under way. */
typedef struct figure_fit {
    by_calibration *calibration;
    const by_cluster *cluster; /* whose figures are moved */
    fitted_figure figures[MOST_FIGURES];
    int count;
    double *planned;
    double best; /* objective */
} figure_fit;

static by_status measure_error(double *out, const figure_fit *f, by_error *error)
{
    const by_calibration *c = f->calibration;
    BY_TRY(by_calibration_plan(f->planned, f->calibration, f->cluster, error));
    *out = 0.0;
    for (size_t i = 0; i < c->count; i++) {
        *out += fabs(log(f->planned[i] / c->steps[i].seconds));
    }
    for (int k = 0; k < f->count; k++) {
        *out += change_weight * fabs(log(*f->figures[k].at / f->figures[k].start));
    }
    return BY_OK;
}

static bool improves(figure_fit *f, double objective)
{
    bool better = objective < f->best * (1.0 - 1e-9);
    f->best = better ? objective : f->best;
    return better;
}

static void set_figure(const fitted_figure *f, double value)
{
    *f->at = value < f->least ? f->least : value > f->most ? f->most : value;
}

/* Moves a figure up or down by a factor if that helps. */
static by_status move_figure(figure_fit *f, bool *moved, int k, double factor, by_error *error)
{
    const fitted_figure *figure = &f->figures[k];
    double before = *figure->at;
    for (int direction = 0; direction < 2; direction++) {
        double objective;
        set_figure(figure, before * (direction == 0 ? factor : 1.0 / factor));
        BY_TRY(measure_error(&objective, f, error));
        if (improves(f, objective)) {
            *moved = true;
            return BY_OK;
        }
        *figure->at = before;
    }
    return BY_OK;
}

/* Moves all figures by what they have moved since `before`, while that helps. */
static by_status move_on(figure_fit *f, const double *before, by_error *error)
{
    double ratio[MOST_FIGURES];
    double here[MOST_FIGURES];
    double objective;
    bool better = true;
    for (int k = 0; k < f->count; k++) {
        ratio[k] = *f->figures[k].at / before[k];
    }
    while (better) {
        for (int k = 0; k < f->count; k++) {
            here[k] = *f->figures[k].at;
            set_figure(&f->figures[k], here[k] * ratio[k]);
        }
        BY_TRY(measure_error(&objective, f, error));
        better = improves(f, objective);
    }
    for (int k = 0; k < f->count; k++) {
        *f->figures[k].at = here[k];
    }
    return BY_OK;
}

static by_status search_figures(figure_fit *f, by_error *error)
{
    BY_TRY(measure_error(&f->best, f, error));
    for (double factor = 2.0; factor > 1.004;) {
        bool moved = false;
        double before[MOST_FIGURES];
        for (int k = 0; k < f->count; k++) {
            before[k] = *f->figures[k].at;
        }
        for (int k = 0; k < f->count; k++) {
            BY_TRY(move_figure(f, &moved, k, factor, error));
        }
        if (moved) {
            BY_TRY(move_on(f, before, error));
        }
        factor = moved ? factor : sqrt(factor);
    }
    return BY_OK;
}

by_status by_calibration_fit(by_cluster *cluster, int *fitted, by_calibration *c, by_error *error)
{
    by_cluster work = *cluster;
    figure_fit f = {.calibration = c, .cluster = &work};
    f.count = list_figures(f.figures, &work);
    BY_TRY(by__alloc((void **)&f.planned, c->count, sizeof *f.planned, "steps", error));
    by_status status = search_figures(&f, error);
    free(f.planned);
    if (status != BY_OK) {
        return status;
    }
    work.device.origin = BY_ORIGIN_MEASURED;
    for (int k = 0; k < f.count; k++) { /* one that the steps do not tell stays what it was */
        bool told = *f.figures[k].at != f.figures[k].start;
        work.device.guessed &= ~(told ? f.figures[k].figures : 0u);
    }
    for (int i = 0; i < work.level_count && i < FITTED_LEVELS; i++) {
        work.levels[i].origin = BY_ORIGIN_MEASURED;
    }
    *cluster = work;
    *fitted = f.count;
    return BY_OK;
}
