/* Stages of a pipeline: a training graph and its parts, one after another in one process, give the
 * same bits; costs are even; what crosses is little. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/train.h"
#include "passes/stages.h"
#include "runner.h"

#define MOST_STAGES 6
#define VOCAB       31

static by_graph *open_model(const char *const *settings)
{
    by_error error = {0};
    by_config *config;
    by_graph *graph;
    check_ok(by_config_default(&config, &error), &error);
    for (; *settings != NULL; settings++) {
        check_ok(by_config_set(config, *settings, &error), &error);
    }
    check_ok(by_config_resolve(config, &error), &error);
    check_ok(by_train_graph(&graph, NULL, config, NULL, NULL, NULL, &error), &error);
    by_config_close(&config);
    return graph;
}

/* A graph cut into parts, and what runs them. */
typedef struct cut_graph {
    by_graph *whole;
    int *part;
    by__pass_crossing *crossings;
    size_t count;
    int stages;
    by_graph *graphs[MOST_STAGES * BY__PART_KINDS];
    runner runners[MOST_STAGES * BY__PART_KINDS];
} cut_graph;

static void open_cut(cut_graph *c, by_graph *whole, int stages, bool apart)
{
    by_error error = {0};
    *c = (cut_graph){.whole = whole, .stages = stages};
    c->part = malloc(((size_t)by_graph_node_count(whole) + 1) * sizeof *c->part);
    by_value seed = by_graph_find(whole, "loss_scale");
    by__pass_stage_map map;
    check_ok(by__pass_map_stages(&map, whole, seed, stages, &error), &error);
    check_ok(by__pass_assign_parts(c->part, whole, seed, &map, apart, &error), &error);
    by__pass_stage_map_free(&map);
    check_ok(by__pass_list_crossings(&c->crossings, &c->count, whole, c->part, &error), &error);
    for (int k = 0; k < stages * BY__PART_KINDS; k++) {
        check_ok(
            by__pass_cut_part(&c->graphs[k], whole, c->part, k, c->crossings, c->count, &error),
            &error);
        check_ok(by_pass_order(c->graphs[k], &error), &error);
        runner_open(&c->runners[k], c->graphs[k], 1);
        runner_fill(&c->runners[k], 7, VOCAB);
    }
}

static void close_cut(cut_graph *c)
{
    for (int k = 0; k < c->stages * BY__PART_KINDS; k++) {
        runner_close(&c->runners[k]);
        by_graph_close(&c->graphs[k]);
    }
    free(c->part);
    free(c->crossings);
}

/* Runs a part on what the others have made. */
static void run_part(cut_graph *c, int part)
{
    for (size_t i = 0; i < c->count; i++) {
        const by__pass_crossing *x = &c->crossings[i];
        char name[32];
        if (x->to != part) {
            continue;
        }
        const char *value = by__pass_crossing_name(name, c->whole, x->value);
        by_value made = by_graph_find(c->graphs[x->from], value);
        assert_true(made != BY_NONE);
        memcpy(runner_data(&c->runners[part], value), runner_data(&c->runners[x->from], value),
               by__graph_value_bytes(&c->graphs[x->from]->values[made]));
    }
    if (by_graph_node_count(c->graphs[part]) > 0) {
        runner_run(&c->runners[part]);
    }
}

static void run_all(cut_graph *c)
{
    for (int s = 0; s < c->stages; s++) {
        run_part(c, by__part_of(s, BY__PART_FORWARD));
    }
    for (int s = c->stages - 1; s >= 0; s--) {
        run_part(c, by__part_of(s, BY__PART_BACKWARD));
        run_part(c, by__part_of(s, BY__PART_WEIGHT));
    }
}

/* Loss and all gradients, each made by one part alone; returns how many differ. */
static int compare(const cut_graph *c, const runner *whole)
{
    int different = 0;
    for (size_t v = 0; v < c->whole->value_count; v++) {
        const by__graph_value *value = &c->whole->values[v];
        int makers = 0;
        if (value->role != BY_ROLE_GRADIENT && value->role != BY_ROLE_OUTPUT) {
            continue;
        }
        for (int k = 0; k < c->stages * BY__PART_KINDS; k++) {
            by_value found = by_graph_find(c->graphs[k], value->name);
            if (found == BY_NONE || c->graphs[k]->values[found].producer < 0) {
                continue;
            }
            makers++;
            different += memcmp(runner_data(&c->runners[k], value->name),
                                runner_data(whole, value->name), by__graph_value_bytes(value)) != 0;
        }
        if (makers != 1) {
            fail_msg("%d parts make '%s'", makers, value->name);
        }
    }
    return different;
}

static void check_model(const char *const *settings)
{
    by_graph *graph = open_model(settings);
    runner whole;
    runner_open(&whole, graph, 1);
    runner_fill(&whole, 7, VOCAB);
    runner_run(&whole);
    for (int stages = 1; stages <= 5; stages++) {
        for (int apart = 0; apart < 2; apart++) {
            cut_graph c;
            open_cut(&c, graph, stages, apart == 1);
            run_all(&c);
            int different = compare(&c, &whole);
            if (different != 0) {
                fail_msg("%s: %d values of %d stages differ", settings[0], different, stages);
            }
            close_cut(&c);
        }
    }
    runner_close(&whole);
    by_graph_close(&graph);
}

#define LANGUAGE                                                                                   \
    "model.heads=2", "model.width=16", "model.context=8", "model.vocab=31", "train.batch=2",       \
        "precision.compute=f32"

static void stages_give_the_bits_of_the_whole(void **state)
{
    BY_UNUSED(state);
    static const char *const models[][12] = {
        {"model.kind=gpt2", "model.layers=4", LANGUAGE},
        {"model.kind=gpt2", "model.layers=3", LANGUAGE, "model.dropout=0.2",
         "precision.compute=bf16"},
        {"model.kind=gpt2", "model.layers=4", LANGUAGE, "model.tied=false",
         "memory.recompute=block"},
        {"model.kind=llama", "model.layers=4", LANGUAGE},
        {"model.kind=llama", "model.layers=5", LANGUAGE, "precision.compute=bf16",
         "memory.recompute=block"},
        {"model.kind=vit", "model.layers=4", "model.heads=2", "model.width=16", "model.channels=1",
         "model.image_height=8", "model.image_width=8", "model.patch=4", "model.outputs=31",
         "train.batch=4", "task.kind=classify"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(models); i++) {
        check_model(models[i]);
    }
}

/* ---- where nodes are ---- */

/* Stage of the nodes of a block in the forward pass, and in the backward pass. */
static void expect_blocks_whole(const cut_graph *c)
{
    for (size_t n = 0; n < c->whole->node_count; n++) {
        for (size_t k = n; k < c->whole->node_count; k++) {
            const by__graph_node *a = &c->whole->nodes[n];
            const by__graph_node *b = &c->whole->nodes[k];
            if (a->block >= 0 && a->block == b->block) {
                assert_int_equal(by__stage_of_part(c->part[n]), by__stage_of_part(c->part[k]));
            }
        }
    }
}

/* Between stages goes the hidden state of a micro-batch, its gradient, and with a tied embedding
 * the head's part of its gradient; nothing else. */
static void little_crosses(void **state)
{
    BY_UNUSED(state);
    static const char *const tied[] = {"model.kind=gpt2", "model.layers=6", LANGUAGE, NULL};
    static const char *const untied[] = {"model.kind=llama", "model.layers=6", LANGUAGE,
                                         "model.tied=false", NULL};
    const char *const *const models[] = {tied, untied};
    const size_t hidden = 2 * 8 * 16 * sizeof(float);
    const size_t table = (size_t)VOCAB * 16 * sizeof(float);
    for (int m = 0; m < 2; m++) {
        by_graph *graph = open_model(models[m]);
        for (int stages = 2; stages <= 4; stages++) {
            cut_graph c;
            int forward = 0;
            int backward = 0;
            int far = 0;
            int all = 0;
            open_cut(&c, graph, stages, true);
            expect_blocks_whole(&c);
            for (size_t i = 0; i < c.count; i++) {
                const by__pass_crossing *x = &c.crossings[i];
                int from = by__stage_of_part(x->from);
                int to = by__stage_of_part(x->to);
                size_t bytes = by__graph_value_bytes(&graph->values[x->value]);
                bool again = i > 0 && x[-1].value == x->value && by__stage_of_part(x[-1].to) == to;
                if (from == to || again) {
                    continue;
                }
                forward += from + 1 == to && bytes == hidden;
                backward += from - 1 == to && bytes == hidden;
                far += from == stages - 1 && to == 0 && bytes == table;
                all++;
            }
            assert_int_equal(all, forward + backward + far);
            assert_int_equal(forward, stages - 1);
            assert_int_equal(backward, stages - 1);
            assert_int_equal(far, m == 0 ? 1 : 0);
            close_cut(&c);
        }
        by_graph_close(&graph);
    }
}

/* A stage costs at most a block more than the mean. */
static void costs_are_even(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=gpt2", "model.layers=11", LANGUAGE, NULL};
    by_graph *graph = open_model(settings);
    double blocks[12] = {0};
    for (size_t n = 0; n < graph->node_count; n++) {
        by__op_cost cost;
        assert_int_equal(by__op_node_cost(graph, n, &cost, NULL), BY_OK);
        blocks[graph->nodes[n].block + 1] +=
            cost.flops + 16.0 * (cost.bytes_read + cost.bytes_written);
    }
    for (int stages = 1; stages <= 5; stages++) {
        double sums[MOST_STAGES] = {0};
        double all = 0.0;
        cut_graph c;
        open_cut(&c, graph, stages, false);
        for (size_t n = 0; n < graph->node_count; n++) {
            by__op_cost cost;
            assert_int_equal(by__op_node_cost(graph, n, &cost, NULL), BY_OK);
            double node = cost.flops + 16.0 * (cost.bytes_read + cost.bytes_written);
            sums[by__stage_of_part(c.part[n])] += node;
            all += node;
        }
        for (int s = 0; s < stages; s++) {
            assert_true(sums[s] > 0.0);
            assert_true(sums[s] <= all / stages + blocks[1] * 1.01);
        }
        close_cut(&c);
    }
    by_graph_close(&graph);
}

static void too_many_stages_are_refused(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=gpt2", "model.layers=2", LANGUAGE, NULL};
    by_graph *graph = open_model(settings);
    by_error error = {0};
    by_value seed = by_graph_find(graph, "loss_scale");
    by__pass_stage_map map;
    check_ok(by__pass_map_stages(&map, graph, seed, 4, &error), &error);
    by__pass_stage_map_free(&map);
    check_error(by__pass_map_stages(&map, graph, seed, 5, &error), BY_EARG, &error,
                "a pipeline of 5 stages: the model has 2 blocks");
    by_graph_close(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_give_the_bits_of_the_whole),
        cmocka_unit_test(little_crosses),
        cmocka_unit_test(costs_are_even),
        cmocka_unit_test(too_many_stages_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
