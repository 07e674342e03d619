/* Arranges the ranks of a job as a mesh, from the section `parallel` and the number of ranks;
 * without communication, before anything is allocated. */
#include <string.h>

#include "config/kind.h"
#include "trainer/state/train.h"

/* The size of an axis in the config; -1: derived. */
static int64_t wanted(const by_parallel_config *p, int axis)
{
    const int64_t sizes[BY_MESH_AXES] = {
        [BY_MESH_PIPELINE] = p->pipeline, [BY_MESH_DATA] = p->data,
        [BY_MESH_SHARD] = p->shard,       [BY_MESH_EXPERT] = p->expert,
        [BY_MESH_SEQUENCE] = p->sequence, [BY_MESH_TENSOR] = p->tensor};
    return sizes[axis];
}

/* Prints "data 2 x shard 4": the given axes that are not 1. */
static void describe(by_string *out, const by_parallel_config *p)
{
    for (int axis = 0; axis < BY_MESH_AXES; axis++) {
        if (wanted(p, axis) > 1) {
            by_string_format(out, "%s%s %lld", out->length == 0 ? "" : " x ",
                             by_mesh_axis_name((by_mesh_axis)axis), (long long)wanted(p, axis));
        }
    }
}

static by_status refuse_product(const by_config *config, int64_t product, int derived, int ranks,
                                by_error *error)
{
    by_string axes = {0};
    describe(&axes, &config->parallel);
    const char *where = by__config_where(config, "parallel.data", "parallel.shard");
    const char *text = axes.data == NULL ? "the axes" : axes.data;
    if (derived < 0) {
        (void)by_error_set(error, BY_ECONFIG,
                           "%s: parallel: %s make %lld ranks, and the job has %d: start %lld "
                           "(mpirun -n %lld), or let data: -1 take what there is",
                           where, text, (long long)product, ranks, (long long)product,
                           (long long)product);
    } else {
        int64_t above = (ranks / product + 1) * product;
        (void)by_error_set(error, BY_ECONFIG,
                           "%s: parallel: %s make %lld, which does not divide the job's %d ranks; "
                           "start %lld (mpirun -n %lld)",
                           where, text, (long long)product, ranks, (long long)above,
                           (long long)above);
    }
    by_string_free(&axes);
    return BY_ECONFIG;
}

/* Derives the sizes of all axes, whose product is the layout's number of ranks. */
static by_status derive(by__trainer_layout *l, const by_config *config, by_error *error)
{
    int derived = -1;
    int64_t product = 1;
    for (int axis = 0; axis < BY_MESH_AXES; axis++) {
        int64_t size = wanted(&config->parallel, axis);
        if (size == -1) {
            derived = axis;
            size = 1;
        }
        product = product > INT32_MAX ? product : product * size; /* both are below 2^31 */
        l->size[axis] = (int)size;
    }
    if (derived >= 0 && l->ranks % product == 0) {
        l->size[derived] = (int)(l->ranks / product);
        return BY_OK;
    }
    return product == l->ranks && derived < 0
               ? BY_OK
               : refuse_product(config, product, derived, l->ranks, error);
}

by_status by__trainer_layout_axes(by__trainer_layout *l, const by_config *config, by_error *error)
{
    BY_TRY(derive(l, config, error));
    l->replicas = l->size[BY_MESH_DATA] * l->size[BY_MESH_SHARD];
    return BY_OK;
}

/* Every replica must compute at least one micro-batch of a step. */
static by_status check_batch(const by__trainer_layout *l, const by_config *config, by_error *error)
{
    const by_train_config *train = &config->train;
    int64_t count = train->batch / train->micro_batch;
    int64_t least = by_config_batch(config, 0);
    if (count >= l->replicas && least / train->micro_batch < l->replicas) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: train.batch_warmup begins with a batch of %lld in micro-batches "
                            "of %lld, fewer than the %d ranks of data %d x shard %d: begin with "
                            "%lld or more",
                            by__config_where(config, "train.batch_warmup", "train.batch"),
                            (long long)least, (long long)train->micro_batch, l->replicas,
                            l->size[BY_MESH_DATA], l->size[BY_MESH_SHARD],
                            (long long)(train->micro_batch * l->replicas));
    }
    if (train->batch_warmup.count > 0 && l->size[BY_MESH_PIPELINE] > 1) {
        return by_error_set(
            error, BY_ECONFIG,
            "%s: train.batch_warmup changes the number of micro-batches per step, but the schedule "
            "of parallel.pipeline is for a fixed number: leave one of them out",
            by__config_where(config, "train.batch_warmup", "parallel.pipeline"));
    }
    if (count >= l->replicas) {
        return BY_OK;
    }
    const char *where = by__config_where(config, "train.micro_batch", "train.batch");
    int64_t fits = train->batch / l->replicas;
    while (fits > 0 && train->batch % fits != 0) {
        fits--;
    }
    if (fits == 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: a batch of %lld is less than one example for each of the %d ranks "
                            "of data %d x shard %d; set train.batch to %d or more",
                            where, (long long)train->batch, l->replicas, l->size[BY_MESH_DATA],
                            l->size[BY_MESH_SHARD], l->replicas);
    }
    return by_error_set(error, BY_ECONFIG,
                        "%s: a batch of %lld in micro-batches of %lld is %lld micro-batches, fewer "
                        "than the %d ranks of data %d x shard %d; set train.micro_batch to %lld or "
                        "less, or train.batch to %lld",
                        where, (long long)train->batch, (long long)train->micro_batch,
                        (long long)count, l->replicas, l->size[BY_MESH_DATA],
                        l->size[BY_MESH_SHARD], (long long)fits,
                        (long long)(train->micro_batch * l->replicas));
}

/* Stages cannot keep gathered parameters, because they are separate programs. */
static by_status check_keep(const by__trainer_layout *l, const by_config *config, by_error *error)
{
    if (config->parallel.keep != 0 && config->parallel.zero > 2 && l->size[BY_MESH_SHARD] > 1 &&
        l->size[BY_MESH_PIPELINE] > 1) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: parallel.keep is true, but with parallel.pipeline %d stages "
                            "gather parameters for each pass; set keep to false",
                            by__config_where(config, "parallel.keep", "parallel.pipeline"),
                            l->size[BY_MESH_PIPELINE]);
    }
    return BY_OK;
}

/* Replicas that are normalised together compute as many micro-batches each. */
static by_status check_batch_norm(const by__trainer_layout *l, const by_config *config,
                                  by_error *error)
{
    const by_train_config *train = &config->train;
    int64_t count = train->batch / train->micro_batch;
    if (config->parallel.sync_batch_norm == 0 || l->replicas == 1) {
        return BY_OK;
    }
    if (train->batch_warmup.count > 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: parallel.sync_batch_norm needs batches of one size, and "
                            "train.batch_warmup changes it: leave one of them out",
                            by__config_where(config, "parallel.sync_batch_norm", "train.batch"));
    }
    return count % l->replicas == 0
               ? BY_OK
               : by_error_set(
                     error, BY_ECONFIG,
                     "%s: parallel.sync_batch_norm needs as many micro-batches on each of "
                     "the %d ranks of data %d x shard %d, which do not divide %lld (a "
                     "batch of %lld in micro-batches of %lld): set train.batch to %lld",
                     by__config_where(config, "parallel.sync_batch_norm", "train.batch"),
                     l->replicas, l->size[BY_MESH_DATA], l->size[BY_MESH_SHARD], (long long)count,
                     (long long)train->batch, (long long)train->micro_batch,
                     (long long)((count / l->replicas + 1) * l->replicas * train->micro_batch));
}

/* BY_ECONFIG for axes that are incompatible with other settings of the config. */
static by_status check_axes(const by__trainer_layout *l, const by_config *config, by_error *error)
{
    BY_TRY(check_keep(l, config, error));
    BY_TRY(check_batch_norm(l, config, error));
    if (config->sync.staleness > 0 && l->ranks != l->size[BY_MESH_DATA]) {
        return by_error_set(
            error, BY_ECONFIG,
            "%s: sync.staleness is %lld, which needs replicas of one rank each, but only %d of %d "
            "ranks are along parallel.data; set sync.staleness to 0, or all other axes to 1",
            by__config_where(config, "sync.staleness", "parallel.data"),
            (long long)config->sync.staleness, l->size[BY_MESH_DATA], l->ranks);
    }
    return BY_OK;
}

int by__trainer_job_ranks(const by_trainer_options *options)
{
    return options->comm != NULL ? by_comm_size(options->comm)
           : options->ranks > 0  ? options->ranks
                                 : 1;
}

int by__trainer_job_rank(const by_trainer_options *options)
{
    return options->comm != NULL ? by_comm_rank(options->comm) : options->rank;
}

by_status by__trainer_layout_resolve(by__trainer_layout *out, const by_config *config, int ranks,
                                     int rank, by_error *error)
{
    by__trainer_layout l = {.ranks = ranks, .rank = rank};
    if (rank < 0 || rank >= ranks) {
        return by_error_set(error, BY_EARG, "rank %d of %d: they are numbered from 0 to %d", rank,
                            ranks, ranks - 1);
    }
    BY_TRY(by__trainer_layout_axes(&l, config, error));
    int left = rank;
    for (int axis = BY_MESH_AXES - 1; axis >= 0; axis--) {
        l.place[axis] = left % l.size[axis];
        left /= l.size[axis];
    }
    l.replica = l.place[BY_MESH_DATA] * l.size[BY_MESH_SHARD] + l.place[BY_MESH_SHARD];
    BY_TRY(check_batch(&l, config, error));
    BY_TRY(check_axes(&l, config, error));
    *out = l;
    return BY_OK;
}

void by__trainer_layout_describe(const by__trainer_layout *layout, const int numbers[BY_MESH_AXES],
                                 char *text, size_t size)
{
    size_t length = 0;
    (void)snprintf(text, size, "%s", "");
    for (int axis = 0; axis < BY_MESH_AXES && length < size; axis++) {
        if (layout->size[axis] > 1) {
            length +=
                (size_t)snprintf(text + length, size - length, "%s%s %d", length == 0 ? "" : ", ",
                                 by_mesh_axis_name((by_mesh_axis)axis), numbers[axis]);
        }
    }
}

void by__trainer_layout_single(by__trainer_layout *out)
{
    *out = (by__trainer_layout){.ranks = 1, .replicas = 1};
    for (int axis = 0; axis < BY_MESH_AXES; axis++) {
        out->size[axis] = 1;
    }
}
