/* Evaluation and prediction: runs the micro-batches of one pass through the program for losses. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/kind.h"
#include "job/job.h"
#include "tasks/tasks.h"
#include "trainer/exchange/exchange.h"

/* Limit on the values of all sums of a task: they are added up, and exchanged, after every
 * micro-batch. */
#define MOST_VALUES ((size_t)1 << 24)

/* Loss of some targets. */
typedef struct tally {
    double loss;
    double weight; /* of the targets: their number, unless they have weights */
    uint64_t targets;
} tally;

/* Result of a micro-batch of the pass. */
typedef struct portion {
    tally tally;
    uint64_t sample; /* the first sample */
    int64_t stopped; /* its rank was asked to stop */
    int64_t ended;   /* the data had ended before it */
    double values[]; /* of the task's sums, one sum after another */
} portion;

/* A pass: ranks compute micro-batches in turn, and the results of all are added in the order of
 * micro-batches, so that the sum does not depend on the number of ranks. */
typedef struct evaluating {
    by_trainer *trainer;
    by_task_data *data;
    by_loader *loader;
    by__job_outcomes *outcomes; /* NULL: not wanted */
    bool (*stop)(void *user);
    void *user;
    size_t values;  /* of all sums of the task */
    double **sums;  /* [sum_count]: where in a portion the values of each are */
    portion *total; /* of the pass */
    double *parts;  /* [part_count, values] of each part of the data; NULL: not wanted */
    char *portions; /* of all ranks, for one round */
    size_t *counts; /* 32-bit words of each rank's portion */
    double *said;   /* predictions of the round, of all ranks; NULL without outcomes */
    size_t *said_counts;
    size_t ranks;
    size_t rank;
} evaluating;

static size_t portion_bytes(const evaluating *e)
{
    return sizeof(portion) + e->values * sizeof(double);
}

static portion *portion_of(const evaluating *e, size_t rank)
{
    return (portion *)(void *)(e->portions + rank * portion_bytes(e));
}

/* Points e->sums to the values of each sum of the task in a portion; *values: their number. */
static by_status point_sums(const evaluating *e, portion *p, size_t *values, by_error *error)
{
    const by_task *task = by_trainer_task(e->trainer);
    size_t at = 0;
    for (size_t i = 0; i < task->sum_count; i++) {
        const by_task_sum *sum = &task->sums[i];
        size_t count = sum->count == NULL ? 1 : sum->count(e->data, e->trainer->config);
        if (count < 1 || count > MOST_VALUES - at) {
            return by_error_set(error, BY_EARG,
                                "task %s: sum '%s' has %zu values: at least 1, and at most %zu in "
                                "all sums",
                                task->name, sum->name, count, MOST_VALUES);
        }
        e->sums[i] = p == NULL ? NULL : p->values + at;
        at += count;
    }
    *values = at;
    return BY_OK;
}

/* The predictions of a rank in this round. */
static double *said_by(const evaluating *e, size_t rank)
{
    return e->said + rank * e->outcomes->micro_batch * e->outcomes->numbers;
}

static by_status measure_one(const evaluating *e, portion *out, const by_batch *batch,
                             by_error *error)
{
    const by_task *task = by_trainer_task(e->trainer);
    const float *values;
    size_t width;
    size_t all;
    tally *t = &out->tally;
    BY_TRY(by_trainer_evaluate(e->trainer, batch, &t->loss, &values, &width, error));
    t->targets = batch->valid_targets;
    t->weight = by__trainer_weight(batch, false);
    out->sample = batch->first_sample;
    if (task->measure != NULL) {
        BY_TRY(point_sums(e, out, &all, error));
        task->measure(e->data, e->sums, batch, values, width);
    }
    return e->outcomes == NULL ? BY_OK
                               : by__job_outcomes_predict(e->outcomes, said_by(e, e->rank), e->data,
                                                          batch, t->loss, values, width, error);
}

/* *together: whether this rank runs the program in this round. If programs gather parameters, all
 * ranks do or none, even those without a micro-batch. */
static by_status join(const evaluating *e, bool *together, by_error *error)
{
    const portion *mine = portion_of(e, e->rank);
    bool has = mine->stopped == 0 && mine->ended == 0;
    bool stopped = false;
    *together = has;
    if (!by__job_ranks_evaluate_together(e->trainer)) {
        return BY_OK;
    }
    BY_TRY(by__trainer_ranks_gather(e->trainer, mine, e->portions, e->counts, error));
    for (size_t r = 0; r < e->ranks; r++) {
        const portion *p = portion_of(e, r);
        has = has || (p->stopped == 0 && p->ended == 0);
        stopped = stopped || p->stopped != 0;
    }
    *together = has && !stopped;
    return BY_OK;
}

/* Computes a round and exchanges its results. */
static by_status measure_round(const evaluating *e, by_error *error)
{
    portion *mine = portion_of(e, e->rank);
    by_batch batch = {0};
    bool together;
    bool stopped = e->stop != NULL && e->stop(e->user);
    BY_TRY(by__trainer_ranks_agree(e->trainer, &stopped, error));
    memset(mine, 0, portion_bytes(e));
    mine->stopped = stopped;
    if (mine->stopped == 0) {
        BY_TRY(by_loader_next(e->loader, &batch, error));
        mine->ended = batch.batch == 0 || batch.first_sample >= by_loader_epoch_samples(e->loader);
        BY_TRY(by__job_fetch_batch(e->data, &batch, error));
    }
    BY_TRY(join(e, &together, error));
    if (together) {
        BY_TRY(mine->stopped == 0 && mine->ended == 0
                   ? measure_one(e, mine, &batch, error)
                   : by__job_ranks_evaluate_nothing(e->trainer, error));
    }
    BY_TRY(by__trainer_ranks_gather(e->trainer, mine, e->portions, e->counts, error));
    return e->outcomes == NULL ? BY_OK
                               : by__trainer_ranks_gather(e->trainer, said_by(e, e->rank), e->said,
                                                          e->said_counts, error);
}

/* The part of the data that contains a sample of the pass. */
static size_t part_of(const evaluating *e, uint64_t sample)
{
    size_t part = 0;
    while (part + 1 < e->data->part_count && sample >= e->data->parts[part].end) {
        part++;
    }
    return part;
}

static void add_tally(tally *sum, const tally *t)
{
    sum->loss += t->loss;
    sum->weight += t->weight;
    sum->targets += t->targets;
}

/* Adds up to `batches` micro-batches (-1: all; if the data have parts, their source gives as many
 * of each) to e->total and to the parts. */
static by_status measure_all(const evaluating *e, int64_t batches, tally *parts, by_error *error)
{
    int64_t i = 0;
    batches = e->data->part_count > 0 ? -1 : batches;
    while (batches < 0 || i < batches) {
        BY_TRY(measure_round(e, error));
        for (size_t r = 0; r < e->ranks; r++) {
            if (portion_of(e, r)->stopped != 0) {
                return by_error_set(error, BY_ESTOPPED, "evaluation was interrupted");
            }
        }
        for (size_t r = 0; r < e->ranks && (batches < 0 || i < batches); r++, i++) {
            const portion *p = portion_of(e, r);
            if (p->ended != 0) {
                return BY_OK;
            }
            if (e->outcomes != NULL) {
                by__job_outcomes_add(e->outcomes, said_by(e, r), p->sample);
            }
            size_t part = part_of(e, p->sample);
            add_tally(&parts[part], &p->tally);
            add_tally(&e->total->tally, &p->tally);
            for (size_t k = 0; k < e->values; k++) {
                e->total->values[k] += p->values[k];
                if (e->parts != NULL) {
                    e->parts[part * e->values + k] += p->values[k];
                }
            }
        }
    }
    return BY_OK;
}

static by_status open_evaluating(evaluating *e, by_error *error)
{
    const by_task *task = by_trainer_task(e->trainer);
    if (task->metric_count > BY_TASK_METRICS) {
        return by_error_set(error, BY_EARG, "task %s has %zu metrics, of at most %d", task->name,
                            task->metric_count, BY_TASK_METRICS);
    }
    BY_TRY(by_loader_seek(e->loader, 0, error));
    e->ranks = by__trainer_ranks_replicas(e->trainer, &e->rank);
    BY_TRY(by__alloc((void **)&e->sums, task->sum_count + 1, sizeof *e->sums, "evaluation", error));
    BY_TRY(point_sums(e, NULL, &e->values, error));
    size_t bytes = portion_bytes(e);
    BY_TRY(by__alloc((void **)&e->total, 1, bytes, "evaluation", error));
    BY_TRY(by__alloc((void **)&e->portions, e->ranks, bytes, "evaluation", error));
    BY_TRY(by__alloc((void **)&e->counts, e->ranks, sizeof *e->counts, "evaluation", error));
    if (e->data->part_count > 0 && e->data->parts[0].metric_key != NULL && e->values > 0) {
        BY_TRY(by__alloc((void **)&e->parts, e->data->part_count, e->values * sizeof *e->parts,
                         "evaluation", error));
    }
    for (size_t r = 0; r < e->ranks; r++) {
        e->counts[r] = bytes / sizeof(int32_t);
    }
    return BY_OK;
}

static by_status open_outcomes(evaluating *e, by_error *error)
{
    size_t numbers = e->outcomes->micro_batch * e->outcomes->numbers;
    e->outcomes->count = 0;
    BY_TRY(
        by__alloc((void **)&e->said_counts, e->ranks, sizeof *e->said_counts, "evaluation", error));
    for (size_t r = 0; r < e->ranks; r++) {
        e->said_counts[r] = numbers * sizeof(double) / sizeof(int32_t);
    }
    return by__alloc((void **)&e->said, e->ranks, numbers * sizeof *e->said, "evaluation", error);
}

/* Computes the first metric of a part from its sums, which take the place of those of a portion. */
static by_status measure_part(const evaluating *e, size_t part, by_part_loss *out, by_error *error)
{
    by_evaluation result = {
        .task = by_trainer_task(e->trainer), .loss = out->loss, .targets = out->targets};
    portion *p = portion_of(e, 0);
    size_t values;
    out->metric = (double)NAN;
    if (e->parts == NULL) {
        return BY_OK;
    }
    memcpy(p->values, e->parts + part * e->values, e->values * sizeof *p->values);
    BY_TRY(point_sums(e, p, &values, error));
    by_task_metrics(e->data, (const double *const *)e->sums, &result);
    out->metric = result.metrics[0];
    return BY_OK;
}

/* Makes the result from e->total and the parts. */
static by_status finish(const evaluating *e, const tally *parts, by_evaluation *out,
                        by_error *error)
{
    const by_task_data *data = e->data;
    const tally *total = &e->total->tally;
    size_t values;
    if (total->targets == 0) {
        return by_error_set(error, BY_EARG, "evaluation: there is nothing to predict in the data");
    }
    if (!(total->weight > 0.0)) {
        return by_error_set(error, BY_EARG, "evaluation: the weights of all examples are 0");
    }
    by_evaluation result = {.task = by_trainer_task(e->trainer),
                            .loss = total->loss / total->weight,
                            .targets = total->targets,
                            .part_count = data->part_count};
    for (size_t i = 0; i < data->part_count; i++) {
        if (parts[i].targets == 0) {
            return by_error_set(error, BY_EFORMAT,
                                "held-out set '%s': each sample that was evaluated has damaged "
                                "tokens, so that nothing is predicted: pack it again, or raise "
                                "train.eval_batches",
                                data->parts[i].name);
        }
        result.parts[i] = (by_part_loss){.part = &data->parts[i],
                                         .loss = parts[i].loss / parts[i].weight,
                                         .targets = parts[i].targets};
        BY_TRY(measure_part(e, i, &result.parts[i], error));
    }
    BY_TRY(point_sums(e, e->total, &values, error));
    by_task_metrics(data, (const double *const *)e->sums, &result);
    *out = result;
    return BY_OK;
}

by_status by__job_evaluate_loader(by_evaluation *out, by_trainer *trainer, by_task_data *data,
                                  by_loader *loader, int64_t batches, by__job_outcomes *outcomes,
                                  bool (*stop)(void *user), void *user, by_error *error)
{
    tally parts[BY_TASK_PARTS] = {{0}};
    evaluating e = {.trainer = trainer,
                    .data = data,
                    .loader = loader,
                    .outcomes = outcomes,
                    .stop = stop,
                    .user = user};
    by_status status = open_evaluating(&e, error);
    if (status == BY_OK && outcomes != NULL) {
        status = open_outcomes(&e, error);
    }
    if (status == BY_OK) {
        status = measure_all(&e, batches, parts, error);
    }
    if (status == BY_OK) {
        status = finish(&e, parts, out, error);
    }
    free(e.sums);
    free(e.total);
    free(e.parts);
    free(e.portions);
    free(e.counts);
    free(e.said);
    free(e.said_counts);
    return status;
}

/* Weights for inference only, and a pass over the data. */
typedef struct evaluation_pass {
    by_trainer *trainer;
    by_loader *loader;
} evaluation_pass;

static by_status open_trainer(by_trainer **out, const by_config *config, const by_task *task,
                              by_task_data *data, by_error *error)
{
    const by_trainer_options options = {.mode = BY_TRAINER_LOSS, .task = task};
    BY_TRY(by_trainer_open(out, config, &options, error));
    BY_TRY(by_trainer_allocate(*out, error));
    return by_trainer_set_data(*out, data, error);
}

/* Compares the data with the weights at the start, if the task does. */
static by_status find_references(by_trainer *trainer, const by_task *task, by_task_data *data,
                                 by_error *error)
{
    const by__job_reference_user user = {
        .begins = trainer->config->lora.rank > 0, .leads = true, .recipe = {.task = task}};
    return by__job_references(trainer, data, &user, error);
}

/* The adapters of the weights are merged into them, so that `config` has none. If training began on
 * weights in codes, or on other adapters, so does this pass, by the program that training had. */
static by_status find_trained_references(bool *found, const by_config *config, const by_task *task,
                                         by_task_data *data, by_error *error)
{
    const by_config *trained = by__config_trained(config);
    by_trainer *trainer = NULL;
    by_config *own;
    *found = trained != NULL &&
             (strcmp(trained->lora.base, "full") != 0 || trained->lora.from[0] != '\0');
    if (!*found) {
        return BY_OK;
    }
    BY_TRY(by_config_copy(&own, config, error));
    by_status status = by__config_copy_section(own, trained, "lora", error);
    if (status == BY_OK) {
        status = by_config_resolve(own, error);
    }
    if (status == BY_OK) {
        status = open_trainer(&trainer, own, task, data, error);
    }
    if (status == BY_OK) {
        status = find_references(trainer, task, data, error);
    }
    by_trainer_close(&trainer);
    by_config_close(&own);
    return status;
}

static by_status open_pass(evaluation_pass *p, const by_config *config, const by_task *task,
                           const by_weights *weights, by_task_data *data, by_error *error)
{
    bool has = by__job_has_references(data, config);
    bool found = false;
    BY_TRY(has ? find_trained_references(&found, config, task, data, error) : BY_OK);
    BY_TRY(open_trainer(&p->trainer, config, task, data, error));
    BY_TRY(has && !found ? find_references(p->trainer, task, data, error) : BY_OK);
    BY_TRY(by_trainer_load_weights(p->trainer, weights, error));
    return by_trainer_loader(&p->loader, p->trainer, data, false, error);
}

static void close_pass(evaluation_pass *p)
{
    by_loader_close(&p->loader);
    by_trainer_close(&p->trainer);
}

by_status by_evaluate(by_evaluation *out, const by_config *config, const by_weights *weights,
                      by_task_data *data, int64_t batches, bool (*stop)(void *user), void *user,
                      by_error *error)
{
    evaluation_pass p = {0};
    by_status status = open_pass(&p, config, data->task, weights, data, error);
    if (status == BY_OK) {
        status = by__job_evaluate_loader(out, p.trainer, data, p.loader, batches, NULL, stop, user,
                                         error);
    }
    close_pass(&p);
    return status;
}

/* A batch of a pass, and what the model makes of it. */
typedef struct evaluated_batch {
    by_batch batch; /* batch.batch 0: the pass is over */
    double loss;
    const float *values; /* NULL: the task evaluates the loss alone */
    size_t width;
} evaluated_batch;

/* what: is interrupted if `stop` says so. */
static by_status evaluate_next(evaluated_batch *out, const evaluation_pass *p, const char *what,
                               bool (*stop)(void *user), void *user, by_error *error)
{
    if (stop != NULL && stop(user)) {
        return by_error_set(error, BY_ESTOPPED, "%s was interrupted", what);
    }
    BY_TRY(by_loader_next(p->loader, &out->batch, error));
    return out->batch.batch == 0 ? BY_OK
                                 : by_trainer_evaluate(p->trainer, &out->batch, &out->loss,
                                                       &out->values, &out->width, error);
}

static by_status report_each(const evaluation_pass *p, const by_task_data *data,
                             by_evaluated *report, bool (*stop)(void *user), void *user,
                             by_error *error)
{
    for (;;) {
        evaluated_batch e;
        BY_TRY(evaluate_next(&e, p, "evaluation", stop, user, error));
        if (e.batch.batch == 0) {
            return BY_OK;
        }
        if (e.values == NULL) {
            return by_error_set(error, BY_EARG, "task %s evaluates the loss alone",
                                data->task->name);
        }
        BY_TRY(report(user, &e.batch, e.values, e.width, error));
    }
}

/* Reports the numbers of an output of the model. */
static by_status report_output(const evaluation_pass *p, const by_task_data *data,
                               const char *output, const by_batch *batch, const float *values,
                               size_t width, by_predicted *report, void *user)
{
    uint64_t examples = by_loader_epoch_samples(p->loader);
    for (size_t i = 0; i < batch->batch && batch->first_sample + i < examples; i++) {
        by_example_name of = {.index = batch->first_sample + i};
        if (data->task->name_example != NULL) {
            data->task->name_example(data, of.index, &of);
        }
        by_field fields[2 + BY__TASK_NAME_FIELDS] = {
            {.name = "index", .number = (double)of.index, .is_whole = true},
            {.name = output, .list = values + i * width, .list_count = width}};
        report(user, fields, 2 + by__task_name_fields(fields + 2, &of));
    }
    return BY_OK;
}

/* output: NULL: what the task predicts. */
static by_status predict_all(const evaluation_pass *p, by_task_data *data, const char *output,
                             by_predicted *report, bool (*stop)(void *user), void *user,
                             by_error *error)
{
    for (;;) {
        evaluated_batch e;
        BY_TRY(evaluate_next(&e, p, "prediction", stop, user, error));
        if (e.batch.batch == 0) {
            return BY_OK;
        }
        BY_TRY(output != NULL
                   ? report_output(p, data, output, &e.batch, e.values, e.width, report, user)
                   : data->task->predict(data, &e.batch, e.loss, e.values, e.width, report, user,
                                         error));
    }
}

/* A copy of a config for predictions, whose micro-batches are those of training or larger: the sums
 * of products of very few rows have another order, so that the last digits would depend on how many
 * examples are computed together. */
static by_status copy_config(by_config **out, const by_config *config, const by_task *task,
                             by_error *error)
{
    by_config *own;
    BY_TRY(by_config_copy(&own, config, error));
    if (task->open_examples != NULL && own->train.micro_batch < BY__JOB_PREDICTED) {
        own->train.micro_batch = BY__JOB_PREDICTED;
        own->train.batch = BY__JOB_PREDICTED;
    }
    *out = own;
    return BY_OK;
}

by_status by_predict(const by_config *config, const by_weights *weights, by_task_data *data,
                     by_predicted *report, bool (*stop)(void *user), void *user, by_error *error)
{
    evaluation_pass p = {0};
    by_config *own;
    BY_TRY(copy_config(&own, config, data->task, error));
    by_status status = open_pass(&p, own, data->task, weights, data, error);
    if (status == BY_OK) {
        status = predict_all(&p, data, NULL, report, stop, user, error);
    }
    close_pass(&p);
    by_config_close(&own);
    return status;
}

/* The loss of a model of which only an output is wanted: none, without targets. */
static by_status no_loss(const by_config *config, const by_model_request *request, by_graph *graph,
                         by_model *model, by_error *error)
{
    BY_UNUSED(request);
    if (model->output == BY_NONE) {
        return by_error_set(error, BY_ECONFIG, "a model of kind %s has no outputs by name",
                            config->model.kind);
    }
    model->loss = by_fill(graph, BY_F32, BY_SHAPE(1), 0.0f);
    model->evaluated = model->output;
    return BY_OK;
}

/* Opens a pass in which an output takes the place of what the task evaluates; *own: its config. */
static by_status open_output_pass(evaluation_pass *p, by_config **own, const by_config *config,
                                  const by_task *task, const by_weights *weights,
                                  by_task_data *data, const char *output, by_error *error)
{
    char *name = by__strdup(output);
    by_status status = name == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a name")
                                    : copy_config(own, config, data->task, error);
    if (status != BY_OK) {
        free(name);
        return status;
    }
    free((*own)->model.output);
    (*own)->model.output = name;
    return open_pass(p, *own, task, weights, data, error);
}

by_status by_predict_output(const by_config *config, const by_weights *weights, by_task_data *data,
                            const char *output, by_predicted *report, bool (*stop)(void *user),
                            void *user, by_error *error)
{
    evaluation_pass p = {0};
    by_config *own = NULL;
    const by_task task = {.name = output, .examples = data->task->examples, .loss = no_loss};
    by_status status = open_output_pass(&p, &own, config, &task, weights, data, output, error);
    if (status == BY_OK) {
        status = predict_all(&p, data, output, report, stop, user, error);
    }
    close_pass(&p);
    by_config_close(&own);
    return status;
}

by_status by_evaluate_each(const by_config *config, const by_weights *weights, by_task_data *data,
                           const char *output, by_evaluated *report, bool (*stop)(void *user),
                           void *user, by_error *error)
{
    evaluation_pass p = {0};
    by_config *own = NULL;
    const by_task task = {.name = output, .examples = data->task->examples, .loss = no_loss};
    by_status status = BY_OK;
    if (output == NULL) {
        BY_TRY(copy_config(&own, config, data->task, error));
        status = open_pass(&p, own, data->task, weights, data, error);
    } else {
        status = open_output_pass(&p, &own, config, &task, weights, data, output, error);
    }
    if (status == BY_OK) {
        status = report_each(&p, data, report, stop, user, error);
    }
    close_pass(&p);
    by_config_close(&own);
    return status;
}

/* With ZeRO-3 programs gather the parameters that ranks divide, in which all of them take part. */
bool by__job_ranks_evaluate_together(const by_trainer *trainer)
{
    return trainer->shard.parameters != 0;
}

/* Runs on the previous inputs. */
by_status by__job_ranks_evaluate_nothing(by_trainer *trainer, by_error *error)
{
    return trainer->strategy->evaluate(trainer, NULL, error);
}
