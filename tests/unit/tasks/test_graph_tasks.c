/* Tasks of graphs: which links are held out and which pairs are no links, packs of small graphs,
 * tables of numbers, and metrics against their formulas in f64 (Hu et al. 2020 for ranks; the
 * definition of the area by pairs). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/task.h"
#include "data/nodes/graph_list.h"
#include "data/nodes/node_links.h"
#include "nn/nn.h"
#include "runner.h"
#include "tasks/graph/scored.h"
#include "tasks/tasks.h"
#include "temporary.h"

enum { NODES = 60, CANDIDATES = 6, GRAPHS = 23 };

static char *folder;
static char graph_path[600];
static char features_path[600];
static char tables_path[600];

static double random_at(uint64_t stream, size_t i)
{
    return 0.5 + 0.5 * random_unit(7, stream, i);
}

static void write_text(const char *path, const by_string *text)
{
    by_error error = {0};
    check_ok(by__file_write(path, text->data, text->length, &error), &error);
}

/* Features as npy: f32 [NODES, 2]. */
static void write_features(void)
{
    by_string text = {0};
    char head[128];
    (void)snprintf(head, sizeof head,
                   "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 2), }", NODES);
    by_string_add(&text, "\x93NUMPY\x01\x00\x76\x00", 10);
    by_string_format(&text, "%-117s\n", head);
    for (size_t i = 0; i < 2 * (size_t)NODES; i++) {
        float x = (float)random_at(1, i);
        by_string_add(&text, (const char *)&x, sizeof x);
    }
    write_text(features_path, &text);
    by_string_free(&text);
}

static int64_t nodes_in(int g)
{
    return 1 + (g * 7) % 11;
}

/* Each node but the first of a graph has an edge to one in front, whose features are the numbers of
 * graph and node. */
static void write_tables(void)
{
    by_string texts[6] = {{0}};
    static const char *const names[6] = {"num-node-list", "num-edge-list", "edge",
                                         "node-feat",     "graph-label",   "edge-feat"};
    char path[700];
    for (int g = 0; g < GRAPHS; g++) {
        by_string_format(&texts[0], "%lld\n", (long long)nodes_in(g));
        by_string_format(&texts[1], "%lld\n", (long long)nodes_in(g) - 1);
        for (int64_t i = 0; i < nodes_in(g); i++) {
            if (i > 0) {
                by_string_format(&texts[2], "%lld,%lld\n", (long long)i,
                                 (long long)((i * 5 + g) % i));
                by_string_format(&texts[5], "%d,%lld\n", g, (long long)i);
            }
            by_string_format(&texts[3], "%d,%lld,0.5\n", g, (long long)i);
        }
        by_string_format(&texts[4], "%d\n", g % 2);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        (void)snprintf(path, sizeof path, "%s/%s.csv", tables_path, names[i]);
        write_text(path, &texts[i]);
        by_string_free(&texts[i]);
    }
}

static int make_files(void **state)
{
    by_string text = {0};
    by_error error = {0};
    BY_UNUSED(state);
    folder = temporary_make();
    (void)snprintf(graph_path, sizeof graph_path, "%s/edges.csv", folder);
    (void)snprintf(features_path, sizeof features_path, "%s/x.npy", folder);
    (void)snprintf(tables_path, sizeof tables_path, "%s/tables", folder);
    for (int i = 0; i < NODES; i++) {
        for (size_t k = 0; k < 3; k++) {
            by_string_format(&text, "%d,%d\n", i,
                             (int)(NODES * random_at(2, (size_t)i * 3 + k)) % NODES);
        }
    }
    write_text(graph_path, &text);
    by_string_free(&text);
    write_features();
    check_ok(by__make_dirs(tables_path, &error), &error);
    write_tables();
    return 0;
}

static int drop_files(void **state)
{
    BY_UNUSED(state);
    temporary_remove(folder);
    return 0;
}

/* ---- links ---- */

static by__nodes_links *open_links(double supervision)
{
    by__nodes_links *links;
    by_error error = {0};
    const by__nodes_link_options o = {
        .graph = {.graph = graph_path, .features = features_path, .labels = "", .symmetric = true},
        .valid = 0.1,
        .test = 0.2,
        .supervision = supervision,
        .seed = 3};
    check_ok(by__nodes_links_open(&links, &o, &error), &error);
    return links;
}

static bool is_message(const by__nodes_links *l, int32_t from, int32_t to)
{
    for (int64_t k = l->set->offsets[to]; k < l->set->offsets[to + 1]; k++) {
        if (l->set->sources[k] == from) {
            return true;
        }
    }
    return false;
}

static void test_split(void **state)
{
    BY_UNUSED(state);
    for (int shared = 0; shared < 2; shared++) {
        by__nodes_links *l = open_links(shared ? 0.0 : 0.25);
        uint64_t held = l->valid_count + l->test_count;
        assert_int_equal(l->valid_count, l->count / 10);
        assert_int_equal(l->test_count, l->count / 5);
        assert_int_equal(l->train_count, shared ? l->count - held : (l->count - held) / 4);
        for (uint64_t i = 0; i < l->count; i++) {
            bool message = shared ? i >= held : i >= held + l->train_count;
            const int32_t *pair = l->pairs[i];
            assert_true(pair[0] < pair[1] && by__nodes_linked(l, pair[0], pair[1]) &&
                        by__nodes_linked(l, pair[1], pair[0]));
            assert_true(is_message(l, pair[0], pair[1]) == message &&
                        is_message(l, pair[1], pair[0]) == message);
        }
        assert_int_equal(l->set->edges, 2 * (l->count - (shared ? held : held + l->train_count)));
        by__nodes_links_close(&l);
    }
}

static void fill_links(by_source *source, uint64_t place, uint64_t index, uint64_t seed,
                       int32_t ids[CANDIDATES + 1], int32_t labels[CANDIDATES])
{
    by_error error = {0};
    float weight;
    int32_t number;
    void *const rows[] = {ids, labels, &weight, &number};
    const by_source_sample sample = {.place = place, .index = index, .seed = seed};
    check_ok(source->fill(source, &sample, rows, &error), &error);
    assert_true((number >= 0) == (weight > 0.0f));
}

static void test_candidates(void **state)
{
    by__nodes_links *l = open_links(0.25);
    by_error error = {0};
    by_source *source;
    const by__nodes_link_samples s = {.pairs = (const int32_t(*)[2])l->pairs,
                                      .count = l->valid_count,
                                      .candidates = CANDIDATES,
                                      .room = CANDIDATES,
                                      .shuffle = true};
    int32_t ids[2][CANDIDATES + 1];
    int32_t labels[CANDIDATES];
    bool turned[2] = {false, false};
    BY_UNUSED(state);
    check_ok(by__nodes_link_source_open(&source, l, &s, &error), &error);
    for (uint64_t i = 0; i < l->valid_count; i++) {
        fill_links(source, i, i, 1, ids[0], labels);
        assert_int_equal(labels[0], 1);
        assert_true(by__nodes_linked(l, ids[0][0], ids[0][1]));
        turned[ids[0][0] > ids[0][1]] = true;
        for (int k = 1; k < CANDIDATES; k++) {
            assert_int_equal(labels[k], 0);
            assert_true(ids[0][1 + k] != ids[0][0]);
            assert_false(by__nodes_linked(l, ids[0][0], ids[0][1 + k]));
        }
        fill_links(source, i, i, 1, ids[1], labels);
        assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
        fill_links(source, i, i + l->valid_count, 1, ids[1], labels); /* in the next epoch */
        assert_memory_not_equal(ids[0] + 2, ids[1] + 2, sizeof ids[0] - 2 * sizeof ids[0][0]);
        fill_links(source, i, i, 2, ids[1], labels); /* with another seed */
        assert_memory_not_equal(ids[0] + 2, ids[1] + 2, sizeof ids[0] - 2 * sizeof ids[0][0]);
    }
    assert_true(turned[0] && turned[1]);
    fill_links(source, l->valid_count, 0, 1, ids[0], labels); /* padding */
    assert_int_equal(labels[0], -1);
    by_source_close(&source);
    by__nodes_links_close(&l);
}

/* Surroundings of both ends and of the other nodes have all of their edges but the link itself,
 * which no degree counts. */
static void test_link_surroundings(void **state)
{
    enum { TARGETS = CANDIDATES + 1, ROOM = 8192 };
    static float x[ROOM * 2], scales[3][ROOM];
    static int32_t offsets[2][ROOM], sources[2][ROOM], back[6][ROOM];
    by__nodes_links *l = open_links(0.0);
    by__nodes_sampling around = {.fan_outs = {NODES, NODES}, .hops = 2, .targets = TARGETS};
    by_error error = {0};
    by_source *source;
    int32_t ids[TARGETS];
    int32_t labels[CANDIDATES];
    float weight;
    int32_t place;
    BY_UNUSED(state);
    check_ok(by__nodes_sampling_fit(&around, l->set, &error), &error);
    assert_true(around.nodes <= ROOM && around.edges <= ROOM);
    const by__nodes_link_samples s = {
        .pairs = (const int32_t(*)[2])(l->pairs + l->valid_count + l->test_count),
        .count = l->train_count,
        .candidates = CANDIDATES,
        .room = CANDIDATES,
        .shuffle = true,
        .around = &around};
    check_ok(by__nodes_link_source_open(&source, l, &s, &error), &error);
    assert_int_equal(source->array_count, 4 + 4 + 2 * 5);
    void *const rows[] = {ids,       labels,     &weight,    &place,     x,       scales[0],
                          scales[1], scales[2],  offsets[0], sources[0], back[0], back[1],
                          back[2],   offsets[1], sources[1], back[3],    back[4], back[5]};
    void *scratch = malloc(source->scratch);
    assert_non_null(scratch);
    for (uint64_t i = 0; i < l->train_count; i++) {
        const by_source_sample sample = {.place = i, .index = i, .seed = 5, .scratch = scratch};
        check_ok(source->fill(source, &sample, rows, &error), &error);
        for (int t = 0; t < TARGETS; t++) {
            int64_t degree = by__nodes_set_degree(l->set, ids[t]) - (t < 2 ? 1 : 0);
            assert_memory_equal(x + 2 * t, l->set->x + 2 * ids[t], 2 * sizeof *x);
            assert_true(scales[0][t] == by__nodes_inverse_root((double)degree));
            assert_true(scales[1][t] == scales[0][t]);
            for (int hop = 0; hop < 2; hop++) {
                assert_int_equal(offsets[hop][t + 1] - offsets[hop][t], degree);
                for (int32_t k = offsets[hop][t]; k < offsets[hop][t + 1]; k++) {
                    assert_true(t > 1 || sources[hop][k] != 1 - t);
                }
            }
        }
    }
    assert_true(is_message(l, ids[0], ids[1])); /* it was there to be left out */
    free(scratch);
    by_source_close(&source);
    by__nodes_links_close(&l);
}

/* ---- metrics ---- */

/* The area by its definition. */
static double area_of(const double *scores, const bool *positive, size_t count)
{
    double pairs = 0.0;
    double right = 0.0;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < count; k++) {
            if (positive[i] && !positive[k]) {
                pairs += 1.0;
                right += scores[i] > scores[k] ? 1.0 : scores[i] == scores[k] ? 0.5 : 0.0;
            }
        }
    }
    return right / pairs;
}

static void near(double have, double want)
{
    if (!(fabs(have - want) <= 1e-9)) {
        fail_msg("%.12g is not %.12g", have, want);
    }
}

static void test_area(void **state)
{
    by__task_scored all[200];
    double scores[200];
    bool positive[200];
    BY_UNUSED(state);
    for (int coarse = 0; coarse < 2; coarse++) {
        for (size_t i = 0; i < 200; i++) {
            positive[i] = random_at(4, i) < 0.3;
            scores[i] = random_at(5, i) + (positive[i] ? 0.2 : 0.0);
            scores[i] = coarse ? floor(scores[i] * 8.0) : scores[i];
            all[i] = (by__task_scored){scores[i], positive[i]};
        }
        near(by__task_area(all, 200), area_of(scores, positive, 200));
    }
    assert_true(isnan(by__task_area(all, 0)));
    all[0] = (by__task_scored){1.0, true};
    assert_true(isnan(by__task_area(all, 1)));
}

/* Sums as an evaluation keeps them, and a metric by name. */
typedef struct task_sums {
    const by_task *task;
    by_task_data *data;
    double *values[8];
} task_sums;

static void open_sums(task_sums *s, by_task_data *data, const by_config *config)
{
    *s = (task_sums){.task = data->task, .data = data};
    assert_true(s->task->sum_count <= 8);
    for (size_t i = 0; i < s->task->sum_count; i++) {
        const by_task_sum *sum = &s->task->sums[i];
        size_t count = sum->count == NULL ? 1 : sum->count(data, config);
        s->values[i] = calloc(count, sizeof(double));
        assert_non_null(s->values[i]);
    }
}

static double metric(const task_sums *s, const char *name)
{
    const by_evaluation e = {.task = s->task};
    for (size_t i = 0; i < s->task->metric_count; i++) {
        if (strcmp(s->task->metrics[i].name, name) == 0) {
            return s->task->metrics[i].value(s->data, (const double *const *)s->values, &e);
        }
    }
    fail_msg("there is no metric %s", name);
    return 0.0;
}

static void close_sums(task_sums *s)
{
    for (size_t i = 0; i < 8; i++) {
        free(s->values[i]);
    }
}

static by_task_data *open_task(by_config **config, const char *const *settings)
{
    static const char *const common[] = {"model.kind=gcn", "train.eval_batches=-1", NULL};
    by_task_data *data;
    by_error error = {0};
    *config = config_of(common, settings);
    const by_task_request r = {.purpose = BY_TASK_EVALUATE, .config = *config};
    check_ok(by_task_open(&data, NULL, &r, &error), &error);
    check_ok(by_task_complete(data, *config, &error), &error);
    return data;
}

static void test_link_metrics(void **state)
{
    char settings[2][640];
    (void)snprintf(settings[0], sizeof settings[0], "data.graph=%s", graph_path);
    (void)snprintf(settings[1], sizeof settings[1], "data.features=%s", features_path);
    const char *const all[] = {
        "task.kind=links",           settings[0], settings[1], "data.valid_links=0.2",
        "data.held_out_negatives=5", NULL};
    enum { MOST = 256 };
    static float values[MOST * CANDIDATES];
    static double scores[MOST * CANDIDATES];
    static bool positive[MOST * CANDIDATES];
    int32_t places[MOST + 2];
    by_config *config;
    task_sums s;
    double reciprocal = 0.0;
    double hits[3] = {0.0, 0.0, 0.0};
    static const double most[3] = {1.0, 3.0, 10.0};
    BY_UNUSED(state);
    by_task_data *data = open_task(&config, all);
    size_t count = (size_t)data->valid_examples;
    assert_true(count > 10 && count <= MOST);
    for (size_t i = 0; i < count; i++) {
        double better = 0.0;
        double same = 0.0;
        for (size_t k = 0; k < CANDIDATES; k++) {
            size_t at = i * CANDIDATES + k;
            values[at] = (float)floor(random_at(6, at) * 9.0 + (k == 0 ? 1.0 : 0.0));
            scores[at] = (double)values[at];
            positive[at] = k == 0;
            better += values[at] > values[i * CANDIDATES] ? 1.0 : 0.0;
            same += k > 0 && values[at] == values[i * CANDIDATES] ? 1.0 : 0.0;
        }
        double rank = 1.0 + better + same / 2.0; /* between the best and the worst possible */
        reciprocal += 1.0 / rank;
        for (int h = 0; h < 3; h++) {
            hits[h] += rank <= most[h] ? 1.0 : 0.0;
        }
        places[i] = (int32_t)i;
    }
    places[count] = places[count + 1] = -1;
    open_sums(&s, data, config);
    const by_array array = {"place", BY_I32, BY_SHAPE((int64_t)count + 2), places};
    const by_batch batch = {.arrays = &array, .array_count = 1, .batch = count + 2};
    s.task->measure(data, s.values, &batch, values, CANDIDATES);
    near(metric(&s, "mrr"), reciprocal / (double)count);
    near(metric(&s, "hits_1"), hits[0] / (double)count);
    near(metric(&s, "hits_3"), hits[1] / (double)count);
    near(metric(&s, "hits_10"), hits[2] / (double)count);
    near(metric(&s, "auc"), area_of(scores, positive, count * CANDIDATES));
    close_sums(&s);
    by_task_close(&data);
    by_config_close(&config);
}

/* Models of relations need these, and small graphs have none. */
static void test_refused_relations(void **state)
{
    static const char *const kinds[] = {"links", "graphs"};
    BY_UNUSED(state);
    for (size_t i = 0; i < 2; i++) {
        char settings[3][640];
        (void)snprintf(settings[0], sizeof settings[0], "task.kind=%s", kinds[i]);
        (void)snprintf(settings[1], sizeof settings[1], "data.graph=%s",
                       i == 0 ? graph_path : tables_path);
        (void)snprintf(settings[2], sizeof settings[2], "data.features=%s",
                       i == 0 ? features_path : "");
        const char *const all[] = {settings[0], settings[1], settings[2], NULL};
        static const char *const common[] = {"model.kind=rgcn", NULL};
        by_error error = {0};
        by_task_data *data;
        by_config *config = config_of(common, all);
        const by_task_request r = {.purpose = BY_TASK_TRAIN, .config = config};
        check_ok(by_task_open(&data, NULL, &r, &error), &error);
        check_error(by_task_complete(data, config, &error), BY_ECONFIG, &error,
                    i == 0 ? "needs relations: set data.relations"
                           : "which task.kind graphs does not");
        by_task_close(&data);
        by_config_close(&config);
    }
}

/* The numbers of the task are those of the data: a deviation of 2 and a mean of 5. */
static void measure_graphs(bool numbers)
{
    char setting[640];
    (void)snprintf(setting, sizeof setting, "data.graph=%s", tables_path);
    const char *const all[] = {"task.kind=graphs",
                               setting,
                               "data.valid_graphs=0.6",
                               numbers ? "data.target=number" : "data.target=class",
                               "data.target_mean=5",
                               "data.target_deviation=2",
                               NULL};
    by_config *config;
    by_error error = {0};
    by_loader *loader;
    by_batch batch = {0};
    task_sums s;
    double correct = 0.0;
    double magnitudes = 0.0;
    double squares = 0.0;
    size_t count = 0;
    double scores[GRAPHS];
    bool positive[GRAPHS];
    by_task_data *data = open_task(&config, all);
    open_sums(&s, data, config);
    check_ok(by_task_loader(&loader, data, config, false, &error), &error);
    check_ok(by_loader_next(loader, &batch, &error), &error);
    const by_array *ids = by_batch_array(&batch, "ids");
    size_t rows = batch.batch * (size_t)ids->shape.dim[1];
    size_t outputs = numbers ? 1 : 2;
    float *values = calloc(rows * outputs, sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < rows; i++) {
        int32_t id = ((const int32_t *)ids->data)[i];
        values[i * outputs] = (float)random_at(8, i);
        values[i * outputs + outputs - 1] = (float)random_at(9, i);
        if (id < 0) {
            continue;
        }
        double difference = 5.0 + 2.0 * (double)values[i * outputs] - (double)(id % 2);
        magnitudes += fabs(difference);
        squares += difference * difference;
        positive[count] = id % 2 == 1;
        scores[count] = (double)values[i * outputs + outputs - 1] - (double)values[i * outputs];
        correct += (scores[count] > 0.0) == positive[count] ? 1.0 : 0.0;
        count++;
    }
    assert_int_equal(count, data->valid_examples);
    s.task->measure(data, s.values, &batch, values, outputs * (size_t)ids->shape.dim[1]);
    if (numbers) {
        near(metric(&s, "mae"), magnitudes / (double)count);
        near(metric(&s, "rmse"), sqrt(squares / (double)count));
        assert_true(isnan(metric(&s, "accuracy")) && isnan(metric(&s, "auc")));
    } else {
        near(metric(&s, "accuracy"), correct / (double)count);
        near(metric(&s, "auc"), area_of(scores, positive, count));
        assert_true(isnan(metric(&s, "mae")) && isnan(metric(&s, "rmse")));
    }
    free(values);
    close_sums(&s);
    by_loader_close(&loader);
    by_task_close(&data);
    by_config_close(&config);
}

/* Not every model reads features of edges. */
static void test_refused_edge_features(void **state)
{
    char setting[640];
    by_error error = {0};
    by_task_data *data;
    (void)snprintf(setting, sizeof setting, "data.graph=%s", tables_path);
    const char *const all[] = {"task.kind=graphs", setting, "data.edge_features=true", NULL};
    static const char *const sage[] = {"model.kind=sage", NULL};
    static const char *const gin[] = {"model.kind=gin", NULL};
    BY_UNUSED(state);
    by_config *config = config_of(sage, all);
    by_task_request r = {.purpose = BY_TASK_TRAIN, .config = config};
    check_ok(by_task_open(&data, NULL, &r, &error), &error);
    check_error(by_task_complete(data, config, &error), BY_ECONFIG, &error,
                "model.kind sage reads no features of edges");
    by_task_close(&data);
    by_config_close(&config);
    config = config_of(gin, all);
    r.config = config;
    check_ok(by_task_open(&data, NULL, &r, &error), &error);
    check_ok(by_task_complete(data, config, &error), &error);
    assert_int_equal(by__nn_node_sizes_of(&config->model)->edge_features, 2);
    by_task_close(&data);
    by_config_close(&config);
}

static void test_graph_metrics(void **state)
{
    BY_UNUSED(state);
    measure_graphs(false);
    measure_graphs(true);
}

/* ---- packs ---- */

static const void *array_of(const by_source *source, void *const *rows, const char *name)
{
    for (size_t i = 0; i < source->array_count; i++) {
        if (strcmp(source->arrays[i].name, name) == 0) {
            return rows[i];
        }
    }
    fail_msg("there is no array %s", name);
    return NULL;
}

/* Row `row` of a matrix has `entry`, as its transpose says, too. */
static void has_entry(const by_source *source, void *const *rows, const char *prefix, int32_t row,
                      int32_t column)
{
    char names[5][40];
    static const char *const parts[5] = {"offsets", "sources", "back_offsets", "back_sources",
                                         "back_edges"};
    const int32_t *a[5];
    bool ahead = false;
    bool back = false;
    for (int i = 0; i < 5; i++) {
        (void)snprintf(names[i], sizeof names[i], "%s.%s", prefix, parts[i]);
        a[i] = array_of(source, rows, names[i]);
    }
    for (int32_t k = a[0][row]; k < a[0][row + 1]; k++) {
        ahead = ahead || a[1][k] == column;
    }
    for (int32_t k = a[2][column]; k < a[2][column + 1]; k++) {
        back = back || (a[3][k] == row && a[1][a[4][k]] == column);
    }
    assert_true(ahead && back);
}

/* Checks graph g of a pack, whose first node is `first`. */
static void check_graph(const by_source *source, void *const *rows, int64_t g, int32_t id,
                        int32_t first)
{
    const float *x = array_of(source, rows, "nodes.x");
    const int32_t *offsets = array_of(source, rows, "edges.offsets");
    const float *degrees = array_of(source, rows, "nodes.inverse_degree");
    int32_t count = (int32_t)nodes_in(id);
    int32_t ends = 0;
    for (int32_t i = 0; i < count; i++) {
        const float want[3] = {(float)id, (float)i, 0.5f};
        int32_t degree = offsets[first + i + 1] - offsets[first + i];
        assert_memory_equal(x + (first + i) * 3, want, sizeof want);
        assert_true(degrees[first + i] == (degree == 0 ? 0.0f : (float)(1.0 / degree)));
        ends += degree;
        has_entry(source, rows, "graphs", (int32_t)g, first + i);
        if (i > 0) {
            int32_t other = (i * 5 + id) % i;
            has_entry(source, rows, "edges", first + i, first + other);
            has_entry(source, rows, "edges", first + other, first + i);
        }
    }
    assert_int_equal(ends, 2 * (count - 1));
    const float *size = array_of(source, rows, "graphs.inverse_size");
    assert_true(size[g] == (float)(1.0 / count));
    assert_int_equal(((const int32_t *)array_of(source, rows, "labels"))[g], id % 2);
}

/* Each edge of a graph has its features, and is an entry of the matrix whose columns are edges, in
 * the row where it ends, as the transpose of that matrix says, too. */
static void check_edge_features(const by_source *source, void *const *rows, int32_t id,
                                int32_t first)
{
    const int32_t *offsets = array_of(source, rows, "edges.offsets");
    const int32_t *sources = array_of(source, rows, "edges.sources");
    const int32_t *each = array_of(source, rows, "edges.each");
    const int32_t *own = array_of(source, rows, "edges.own");
    const int32_t *targets = array_of(source, rows, "edges.targets");
    const float *x = array_of(source, rows, "edges.x");
    for (int32_t i = first; i < first + (int32_t)nodes_in(id); i++) {
        for (int32_t k = offsets[i]; k < offsets[i + 1]; k++) {
            int32_t later = (i > sources[k] ? i : sources[k]) - first;
            assert_true(x[2 * k] == (float)id && x[2 * k + 1] == (float)later);
            assert_int_equal(each[k], k);
            assert_int_equal(each[k + 1], k + 1);
            assert_int_equal(own[k], k);
            assert_int_equal(targets[k], i);
        }
    }
}

/* Edges that pad a pack are in no row and no column. */
static void check_edge_padding(const by_source *source, void *const *rows, int64_t nodes,
                               int64_t edges)
{
    const int32_t *each = array_of(source, rows, "edges.each");
    int32_t used = ((const int32_t *)array_of(source, rows, "edges.offsets"))[nodes];
    for (int64_t k = used; k < edges; k++) {
        assert_int_equal(each[k + 1], used);
        assert_int_equal(((const int32_t *)array_of(source, rows, "edges.own"))[k], -1);
        assert_int_equal(((const int32_t *)array_of(source, rows, "edges.targets"))[k], -1);
        assert_true(((const float *)array_of(source, rows, "edges.x"))[2 * k] == 0.0f);
    }
}

static void test_packs(void **state)
{
    by__nodes_graph_list *list;
    by_error error = {0};
    by_source *source;
    uint64_t ids[GRAPHS];
    bool seen[GRAPHS] = {false};
    void *rows[32];
    const by__nodes_options o = {.graph = tables_path,
                                 .features = "",
                                 .labels = "",
                                 .symmetric = true,
                                 .edge_features = true};
    by__nodes_pack_options p = {.ids = ids, .count = GRAPHS, .deviation = 1.0};
    BY_UNUSED(state);
    for (size_t i = 0; i < GRAPHS; i++) {
        ids[i] = GRAPHS - 1 - i;
    }
    check_ok(by__nodes_graph_list_open(&list, &o, &error), &error);
    check_error(by__nodes_pack_size_fit(&p.size, list, 10, &error), BY_ECONFIG, &error,
                "has 11 nodes");
    check_ok(by__nodes_pack_size_fit(&p.size, list, 0, &error), &error);
    assert_int_equal(p.size.nodes, 256);
    check_ok(by__nodes_pack_size_fit(&p.size, list, 20, &error), &error);
    check_ok(by__nodes_pack_source_open(&source, list, &p, &error), &error);
    for (size_t i = 0; i < source->array_count; i++) {
        const by_array *a = &source->arrays[i];
        rows[i] = malloc((size_t)by_shape_count(&a->shape) * by_dtype_size(a->dtype));
        assert_non_null(rows[i]);
    }
    uint64_t all = 0;
    for (uint64_t place = 0; place <= source->samples; place++) {
        const by_source_sample sample = {.place = place};
        uint64_t targets;
        uint64_t found = 0;
        check_ok(source->fill(source, &sample, rows, &error), &error);
        check_ok(source->count(source, &sample, &targets, &error), &error);
        const int32_t *numbers = array_of(source, rows, "ids");
        const int32_t *offsets = array_of(source, rows, "graphs.offsets");
        for (int64_t g = 0; g < p.size.graphs; g++) {
            if (numbers[g] >= 0) {
                check_graph(source, rows, g, numbers[g], offsets[g]);
                check_edge_features(source, rows, numbers[g], offsets[g]);
                assert_false(seen[numbers[g]]);
                seen[numbers[g]] = true;
                found++;
            }
        }
        check_edge_padding(source, rows, p.size.nodes, p.size.edges);
        assert_int_equal(found, targets);
        assert_true(place < source->samples ? found > 0 : found == 0);
        all += found;
    }
    assert_int_equal(all, GRAPHS);
    for (size_t i = 0; i < source->array_count; i++) {
        free(rows[i]);
    }
    by_source_close(&source);
    by__nodes_graph_list_close(&list);
}

/* ---- tables ---- */

static void test_table(void **state)
{
    static const char text[] = "1, 2.5,nan\r\n-3e2,,7\n";
    static const struct {
        const char *text;
        const char *message;
    } wrong[] = {{"1,2\n3\n", "line 2 has 1 numbers, the first one 2"},
                 {"1\nx\n", "line 2: 'x' is not a number"},
                 {"1,inf\n", "'inf' is not a number"},
                 {"", "the table is empty"}};
    double *values;
    uint64_t rows;
    uint64_t columns;
    by_error error = {0};
    BY_UNUSED(state);
    check_ok(
        by__nodes_number_table_parse(&values, &rows, &columns, "t", text, sizeof text - 1, &error),
        &error);
    assert_int_equal(rows, 2);
    assert_int_equal(columns, 3);
    assert_true(values[0] == 1.0 && values[1] == 2.5 && isnan(values[2]) && values[3] == -300.0 &&
                isnan(values[4]) && values[5] == 7.0);
    free(values);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(wrong); i++) {
        check_error(by__nodes_number_table_parse(&values, &rows, &columns, "t", wrong[i].text,
                                                 strlen(wrong[i].text), &error),
                    BY_EFORMAT, &error, wrong[i].message);
    }
}

/* Changes one table, and expects an error. */
static void refuses(const char *name, const char *text, const char *message)
{
    char path[700];
    by__nodes_graph_list *list;
    by_error error = {0};
    const by_string content = {.data = (char *)(uintptr_t)text, .length = strlen(text)};
    const by__nodes_options o = {.graph = tables_path,
                                 .features = "",
                                 .labels = "",
                                 .symmetric = true,
                                 .edge_features = true};
    (void)snprintf(path, sizeof path, "%s/%s.csv", tables_path, name);
    write_text(path, &content);
    check_error(by__nodes_graph_list_open(&list, &o, &error), BY_EFORMAT, &error, message);
    write_tables();
}

static void test_bad_graphs(void **state)
{
    BY_UNUSED(state);
    refuses("num-node-list", "1\n2\n", "2 graphs have nodes, and 23 edges");
    refuses("num-edge-list", "1\n2\n", "23 graphs have nodes, and 2 edges");
    refuses("graph-label", "1\n2\n", "the labels are 2 rows of 1 numbers");
    refuses("edge", "0,1\n", "num_edge_list, row 2: 7 is no number of edges, or there are fewer");
    refuses("edge", "0\n1\n", "has not two numbers for each edge");
    refuses("node-feat", "1\n", "1 rows of features");
    refuses("edge-feat", "1\n", "1 rows of features of edges, and");
    refuses("edge-feat", "", "the table is empty");
}

/* An edge that is listed in both directions has the features of each; one to itself that is added
 * has none. */
static void test_edges_back(void **state)
{
    static const char *const tables[][2] = {{"num-node-list", "3\n"},
                                            {"num-edge-list", "3\n"},
                                            {"edge", "0,1\n1,0\n2,0\n"},
                                            {"edge-feat", "5\n7\n9\n"}};
    static const float want[] = {0, 7, 9, 5, 0, 9, 0}; /* by where edges end, then come from */
    char path[700];
    by__nodes_graph_list *list;
    by_error error = {0};
    const by__nodes_options o = {.graph = path,
                                 .features = "",
                                 .labels = "",
                                 .symmetric = true,
                                 .self_loops = true,
                                 .edge_features = true};
    BY_UNUSED(state);
    (void)snprintf(path, sizeof path, "%s/both", folder);
    check_ok(by__make_dirs(path, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(tables); i++) {
        const by_string content = {.data = (char *)(uintptr_t)tables[i][1],
                                   .length = strlen(tables[i][1])};
        (void)snprintf(path, sizeof path, "%s/both/%s.csv", folder, tables[i][0]);
        write_text(path, &content);
    }
    (void)snprintf(path, sizeof path, "%s/both", folder);
    check_ok(by__nodes_graph_list_open(&list, &o, &error), &error);
    assert_int_equal(list->set->edge_features, 1);
    assert_int_equal(list->set->edges, BY_ARRAY_LENGTH(want));
    assert_memory_equal(list->set->edge_x, want, sizeof want);
    by__nodes_graph_list_close(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_split),
                                       cmocka_unit_test(test_candidates),
                                       cmocka_unit_test(test_area),
                                       cmocka_unit_test(test_link_metrics),
                                       cmocka_unit_test(test_graph_metrics),
                                       cmocka_unit_test(test_packs),
                                       cmocka_unit_test(test_table),
                                       cmocka_unit_test(test_bad_graphs),
                                       cmocka_unit_test(test_edges_back),
                                       cmocka_unit_test(test_refused_edge_features),
                                       cmocka_unit_test(test_refused_relations),
                                       cmocka_unit_test(test_link_surroundings)};
    return cmocka_run_group_tests(tests, make_files, drop_files);
}
