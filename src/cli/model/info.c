#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "banyan/export.h"
#include "banyan/passes.h"
#include "banyan/plan.h"
#include "banyan/plot.h"
#include "banyan/train.h"
#include "base/cli.h"

typedef struct info_request {
    cli_list overrides;
    const char *after;
    const char *out;
    int64_t ranks; /* of the job; 0: as the config is run by one process */
    int64_t rank;
    bool graph;
    bool config;
    bool json;
} info_request;

static by_status print_text(const by_graph *graph, by_error *error)
{
    char *text;
    by_status status = by_graph_print(graph, &text, error);
    if (status == BY_OK) {
        fputs(text, stdout);
        free(text);
    }
    return status;
}

/* Returns true for a program that computes gradients: "gradients" or, for each stage of a pipeline,
 * "forward 1". */
static bool is_of_model(const char *name)
{
    static const char *const names[] = {"gradients", "forward", "backward", "weights"};
    size_t length = strcspn(name, " ");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i]) == length && strncmp(name, names[i], length) == 0) {
            return true;
        }
    }
    return false;
}

/* Prints the graph as it runs, or those of a rank's stages; what is recomputed, and the part of a
 * rank, are known only after planning everything. */
static by_status print_planned_graph(by_config *config, const by_trainer_options *options,
                                     by_error *error)
{
    by_trainer *trainer;
    by_status status = by_trainer_open_fitting(&trainer, config, options, error);
    if (status != BY_OK) {
        return status;
    }
    for (size_t i = 0; status == BY_OK && by_trainer_program_name(trainer, i) != NULL; i++) {
        const char *name = by_trainer_program_name(trainer, i);
        status = is_of_model(name) ? print_text(by_trainer_graph(trainer, name), error) : BY_OK;
    }
    by_trainer_close(&trainer);
    return status;
}

static by_status print_graph(const by_config *config, const char *after, by_error *error)
{
    by_graph *graph;
    by_status status = by_train_graph(&graph, NULL, config, NULL, NULL, after, error);
    if (status == BY_OK) {
        status = print_text(graph, error);
        by_graph_close(&graph);
    }
    return status;
}

/* Whether the plan fits into memory, and what would make it fit. */
typedef struct plan_fit {
    uint64_t limit;
    bool fits;
    by_plan_change changes[BY_PLAN_CHANGES];
    size_t count;
} plan_fit;

static by_status find_fit(plan_fit *f, const by_config *config, const by_trainer *trainer,
                          const by_trainer_options *options, by_error *error)
{
    f->limit = by_plan_limit(config, NULL, NULL);
    f->fits = by_trainer_memory(trainer)->total <= f->limit;
    f->count = 0;
    return f->fits ? BY_OK
                   : by_plan_changes(f->changes, &f->count, config, options, f->limit, error);
}

/* Nothing if the model cannot be run as a whole here, such as one that a task completes. */
static bool plan_inference(by_inference_plan *out, const by_config *config)
{
    by_speeds speeds = cli_speeds(config);
    return by_plan_inference(out, config, &speeds, NULL) == BY_OK;
}

static void print_json(const by_config *config, const by_trainer *trainer, const plan_fit *f,
                       const by_trainer_options *options)
{
    const by_model_size *size = by_trainer_size(trainer);
    const by_memory_report *m = by_trainer_memory(trainer);
    const char *examples = by_trainer_task(trainer)->examples;
    int one = (int)strlen(examples) - 1; /* length without the plural's s */
    printf("{\"parameters\":%lld,\"parameters_in_products\":%lld,\"flops_per_%.*s\":%.9g,"
           "\"flops_per_%.*s_full\":%.9g,\"planned_bytes\":%llu,\"parameter_bytes\":%llu,"
           "\"gradient_bytes\":%llu,\"optimizer_bytes\":%llu,\"activation_bytes\":%llu,"
           "\"workspace_bytes\":%llu,\"data_bytes\":%llu,\"staging_bytes\":%llu,"
           "\"process_bytes\":%llu,"
           "\"on_disk_bytes\":%llu,\"trained_parameters\":%lld,\"frozen_parameters\":%lld,\"spared_"
           "bytes\":%llu,\"coded_bytes\":%llu,"
           "\"budget_bytes\":%lld,\"predicted_step_s\":%.4g",
           (long long)size->parameters, (long long)size->in_products, one, examples,
           size->flops_per_example, one, examples, size->flops_per_example_full,
           (unsigned long long)m->total, (unsigned long long)m->parameters,
           (unsigned long long)m->gradients, (unsigned long long)m->optimizer,
           (unsigned long long)m->activations, (unsigned long long)m->workspace,
           (unsigned long long)m->data, (unsigned long long)m->staging,
           (unsigned long long)m->process, (unsigned long long)m->on_disk, (long long)size->trained,
           (long long)size->frozen, (unsigned long long)m->spared, (unsigned long long)m->coded,
           (long long)config->memory.budget, by_trainer_seconds(trainer));
    if (options->ranks > 0) {
        char place[128];
        by_trainer_place(trainer, place, sizeof place);
        printf(",\"ranks\":%d,\"rank\":%d,\"place\":\"%s\"", options->ranks, options->rank, place);
    }
    by_inference_plan p;
    if (plan_inference(&p, config)) {
        printf(",\"inference\":{\"read_flops\":%.9g,\"read_seconds\":%.4g,\"write_flops\":%.9g,"
               "\"write_bytes\":%.9g,\"write_seconds\":%.4g}",
               p.read_flops, p.read_seconds, p.write_flops, p.write_bytes, p.write_seconds);
    }
    by_device_info d;
    if (by_trainer_device(&d, trainer, NULL) == BY_OK) {
        printf(",\"device\":\"%s\",\"device_name\":\"%s\",\"device_bytes\":%llu,"
               "\"device_free_bytes\":%llu",
               d.kind, d.name, (unsigned long long)d.memory_total,
               (unsigned long long)d.memory_free);
    }
    printf(",\"limit_bytes\":%llu,\"fits\":%s,\"changes\":[", (unsigned long long)f->limit,
           f->fits ? "true" : "false");
    for (size_t i = 0; i < f->count; i++) {
        const by_plan_change *change = &f->changes[i];
        printf("%s{\"set\":\"%s\",\"ranks\":%d,\"planned_bytes\":%llu,"
               "\"predicted_step_s\":%.4g}",
               i == 0 ? "" : ",", change->settings, change->ranks,
               (unsigned long long)change->bytes, change->seconds);
    }
    printf("]}\n");
}

static void print_row(const char *name, uint64_t bytes)
{
    char text[32];
    printf("  %-12s %12s\n", name, by_format_bytes(text, bytes));
}

/* Prints the sizes of the model and of a step's batch. */
static void print_sizes(const by_config *config)
{
    const by_model_config *m = &config->model;
    long long batch = (long long)config->train.batch;
    long long micro_batch = (long long)config->train.micro_batch;
    printf("model         %s, %lld layers, width %lld, ", m->kind, (long long)m->layers,
           (long long)m->width);
    if (strcmp(by_model_reads(m), "tokens") == 0) {
        printf("context %lld, vocabulary %lld\n", (long long)m->context, (long long)m->vocab);
    } else if (strcmp(by_model_reads(m), "images") == 0) {
        printf("images of %lld x %lld x %lld, %lld outputs\n", (long long)m->channels,
               (long long)m->image_height, (long long)m->image_width, (long long)m->outputs);
    } else if (strcmp(by_model_reads(m), "series") == 0) {
        bool ahead = strcmp(by_model_usual_task(m), "forecast") == 0;
        printf("%lld rows of %lld channels, %lld %s\n", (long long)m->context,
               (long long)m->channels, (long long)m->outputs, ahead ? "rows ahead" : "outputs");
    } else if (strcmp(by_model_reads(m), "nodes") == 0) {
        printf("nodes of %lld features, %lld outputs\n", (long long)m->channels,
               (long long)m->outputs);
    } else {
        printf("rows of %lld numbers and %zu categories, %lld outputs\n", (long long)m->numbers,
               m->categories.count, (long long)m->outputs);
    }
    if (strcmp(by_model_reads(m), "tokens") == 0) {
        printf(
            "batch         %lld sequences of %lld tokens = %lld tokens a step, micro-batch %lld\n",
            batch, (long long)m->context, batch * (long long)m->context, micro_batch);
    } else {
        printf("batch         %lld examples a step, micro-batch %lld\n", batch, micro_batch);
    }
}

/* Prints the disk time of a step, if this machine's disk was measured. */
static void print_disk_time(const by_config *config, uint64_t bytes)
{
    by_machine machine;
    if (by_machine_load(&machine, config->device, (int)config->train.threads, 0, NULL) == BY_OK &&
        machine.disk_write_gbps > 0.0 && machine.disk_read_gbps > 0.0) {
        printf("  a step reads and writes all of it: %.2f s at the disk speed that banyan bench "
               "machine\n  has measured, which is that of %s if it was run there\n",
               cli_disk_seconds(&machine, bytes), by_config_offload_path(config));
    }
}

/* Prints the estimated time of a step, if this machine's speeds are known. */
static void print_step_time(const by_config *config, const by_trainer *trainer)
{
    by_speeds speeds = cli_speeds(config);
    if (speeds.bytes > 0.0 && speeds.f32_flops > 0.0) {
        printf("predicted step  %.3g s\n", by_trainer_seconds(trainer));
    }
}

static void print_inference(const by_config *config, int one, const char *examples)
{
    by_inference_plan p;
    char bytes[32];
    if (!plan_inference(&p, config)) {
        return;
    }
    printf("inference     %.4g FLOPs to read a %.*s", p.read_flops, one, examples);
    if (p.write_flops > 0.0) {
        printf(", %.4g to write token %lld, which reads %s", p.write_flops,
               (long long)config->model.context, by_format_bytes(bytes, (uint64_t)p.write_bytes));
    }
    if (p.write_seconds > 0.0) {
        printf("; predicted %.3g s to read %lld, %.3g s to write one", p.read_seconds,
               (long long)config->model.context, p.write_seconds);
    } else if (p.read_seconds > 0.0) {
        printf("; predicted %.3g s", p.read_seconds);
    }
    printf("\n");
}

static void print_fit(const by_config *config, const plan_fit *f)
{
    char text[32];
    if (f->fits) {
        return;
    }
    printf("does not fit: %s are %s\n", by_format_bytes(text, f->limit),
           config->memory.budget == (int64_t)f->limit ? "its budget" : "free");
    for (size_t i = 0; i < f->count; i++) {
        const by_plan_change *change = &f->changes[i];
        printf("  %s %12s, %.3g s a step: %s", i == 0 ? "fits with" : "         ",
               by_format_bytes(text, change->bytes), change->seconds, change->settings);
        if (change->ranks > 0) {
            printf(" on %d ranks, about", change->ranks);
        }
        printf("\n");
    }
    if (f->count == 0) {
        printf("  no setting makes it fit: take a smaller train.batch, model.context or model\n");
    }
}

static void print_device(const by_trainer *trainer)
{
    by_device_info d;
    char text[32];
    if (by_trainer_device(&d, trainer, NULL) == BY_OK) {
        printf("device        %s, %s of memory\n", d.name, by_format_bytes(text, d.memory_total));
    }
}

static void print_plan(const by_config *config, const by_trainer *trainer,
                       const by_trainer_options *options)
{
    const by_model_size *size = by_trainer_size(trainer);
    const by_memory_report *m = by_trainer_memory(trainer);
    const char *examples = by_trainer_task(trainer)->examples;
    int one = (int)strlen(examples) - 1;
    if (options->ranks > 0) {
        char place[128];
        by_trainer_place(trainer, place, sizeof place);
        printf("rank          %d of %d%s%s\n", options->rank, options->ranks,
               place[0] == '\0' ? "" : ": ", place);
    }
    print_sizes(config);
    print_device(trainer);
    printf("parameters    %lld (%lld in matrix products)\n", (long long)size->parameters,
           (long long)size->in_products);
    if (size->frozen > 0) {
        char text[32];
        printf("trained       %lld parameters (%.3g %%); the rest is frozen, which saves %s of "
               "gradients and optimizer state\n",
               (long long)size->trained, cli_trained_percent(size),
               by_format_bytes(text, m->spared));
    }
    if (m->coded > 0) {
        char text[32];
        printf("codes         frozen weights of layers in %s, which saves %s of parameters\n",
               config->lora.base, by_format_bytes(text, m->coded));
    }
    printf("FLOPs         %.4g a %.*s", size->flops_per_example, one, examples);
    if (strcmp(examples, "tokens") == 0) {
        printf(" (6N + 6LCT), %.4g (6N + 12LCT)", size->flops_per_example_full);
    }
    printf("\n");
    print_inference(config, one, examples);
    printf("planned peak memory\n");
    print_row("parameters", m->parameters);
    print_row("gradients", m->gradients);
    print_row("optimizer", m->optimizer);
    print_row("activations", m->activations);
    print_row("workspace", m->workspace);
    print_row("data", m->data);
    print_row("staging", m->staging);
    print_row("process", m->process);
    print_row("total", m->total);
    if (config->memory.budget > 0) {
        print_row("budget", (uint64_t)config->memory.budget);
    }
    print_step_time(config, trainer);
    if (m->on_disk > 0) {
        print_row("on disk", m->on_disk);
        print_disk_time(config, m->on_disk);
    }
}

/* Sets the sizes that the config leaves to the data. */
static by_status learn_sizes(by_config *config, const by_task *task, int ranks, uint64_t *bytes,
                             by_error *error)
{
    by_task_data *data;
    const by_task_request what = {.config = config, .ranks = ranks};
    by_status status = by_task_open(&data, task, &what, error);
    if (status == BY_OK) {
        status = by_task_complete(data, config, error);
        *bytes = data->bytes;
        by_task_close(&data);
    }
    return status;
}

static by_status show(const info_request *r, by_config *config, by_error *error)
{
    by_trainer *trainer;
    char *text;
    const by_task *task;
    uint64_t bytes = 0;
    by_status status = by_config_inherit_model(config, error);
    if (status == BY_OK) {
        status = by_task_find(&task, config, error);
    }
    if (status == BY_OK && (task->knows(config) & BY_TASK_SIZES) == 0) {
        status = learn_sizes(config, task, (int)r->ranks, &bytes, error);
    }
    if (status != BY_OK) {
        return status;
    }
    if (r->config) {
        status = by_config_print(config, &text, error);
        if (status == BY_OK) {
            fputs(text, stdout);
            free(text);
        }
        return status;
    }
    if (r->after != NULL || (r->graph && config->memory.budget == 0 && r->ranks == 0)) {
        return print_graph(config, r->after, error);
    }
    const by_trainer_options options = {.ranks = (int)r->ranks,
                                        .rank = (int)r->rank,
                                        .speeds = cli_speeds(config),
                                        .data_bytes = bytes};
    if (r->graph) {
        return print_planned_graph(config, &options, error);
    }
    status = by_trainer_open_fitting(&trainer, config, &options, error);
    if (status != BY_OK) {
        return status;
    }
    bool held_out = (task->knows(config) & BY_TASK_HOLDS_OUT) != 0;
    by_trainer_plan_data(trainer, bytes);
    by_trainer_plan_staging(trainer);
    status = by_trainer_plan_loaders(trainer, held_out, error);
    plan_fit f;
    if (status == BY_OK && r->out != NULL) {
        status = by_trainer_draw_memory(trainer, r->out, error);
        cli_tell_written(status == BY_OK ? r->out : NULL);
    }
    if (status == BY_OK) {
        status = find_fit(&f, config, trainer, &options, error);
    }
    if (status == BY_OK && r->json) {
        print_json(config, trainer, &f, &options);
    } else if (status == BY_OK) {
        print_plan(config, trainer, &options);
        print_fit(config, &f);
    }
    by_trainer_close(&trainer);
    return status;
}

static by_status show_config(void *user, by_config *config, by_error *error)
{
    return show(user, config, error);
}

/* Shows a file of weights instead of a config. */
static int show_file(const info_request *r, const char *path)
{
    char *text;
    by_error error = {0};
    if (r->overrides.count > 0 || r->graph || r->after != NULL || r->config || r->ranks > 0) {
        return cli_misuse(
            &cli_info,
            "a GGUF file can only be printed, as a whole: give no other flag than --json");
    }
    if (by_gguf_summary(&text, path, r->json, &error) != BY_OK) {
        return cli_fail(&cli_info, &error);
    }
    if (r->json) {
        printf("%s\n", text);
    } else {
        cli_print_lines(stdout, text);
    }
    free(text);
    return CLI_DONE;
}

/* Returns true if PATH is a directory in Hugging Face format and not a run. */
static bool is_model(const char *path)
{
    char file[4096];
    (void)snprintf(file, sizeof file, "%s/config.yaml", path);
    if (access(file, F_OK) == 0) {
        return false;
    }
    (void)snprintf(file, sizeof file, "%s/config.json", path);
    return access(file, F_OK) == 0;
}

/* Opens the config of a training that starts from the model in a directory. */
static by_status open_model_config(by_config **out, const char *path, const cli_list *overrides,
                                   by_error *error)
{
    by_config *config;
    by_string from = {0};
    by_status status =
        by_config_parse(&config, path, "", 0, overrides->items, overrides->count, error);
    if (status != BY_OK) {
        return status;
    }
    by_string_format(&from, "model.from=");
    by_string_json(&from, path, strlen(path));
    status = by_string_check(&from, error);
    if (status == BY_OK) {
        status = by_config_set(config, from.data, error);
    }
    if (status == BY_OK) {
        status = by_config_inherit_model(config, error);
    }
    if (status == BY_OK && strcmp(config->task.kind, "language") == 0) {
        char task[64];
        (void)snprintf(task, sizeof task, "task.kind=%s", by_model_usual_task(&config->model));
        status = by_config_set(config, task, error);
    }
    by_string_free(&from);
    if (status != BY_OK) {
        by_config_close(&config);
        return status;
    }
    *out = config;
    return BY_OK;
}

static int show_model(const info_request *r, const char *path)
{
    by_config *config;
    by_error error = {0};
    by_status status = open_model_config(&config, path, &r->overrides, &error);
    if (status == BY_OK) {
        status = show(r, config, &error);
        by_config_close(&config);
    }
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_info, &error);
}

static int run(int argc, char **argv)
{
    info_request r = {0};
    char after[256] = "print the graph after a pass: forward";
    for (int i = 0; i < by_pass_count(); i++) {
        size_t length = strlen(after);
        (void)snprintf(after + length, sizeof after - length, ", %s", by_pass_name(i));
    }
    const cli_flag flags[] = {
        {"device", CLI_DEVICE, &r.overrides, "NAME", CLI_DEVICE_HELP},
        {"set", CLI_LIST, &r.overrides, "KEY=VALUE", CLI_SET_HELP},
        {"graph", CLI_SWITCH, &r.graph, NULL, "print the training graph as it will run"},
        {"after", CLI_STRING, &r.after, "PASS", after},
        {"config", CLI_SWITCH, &r.config, NULL, "print the resolved config"},
        {"out", CLI_STRING, &r.out, "FILE",
         "plot the memory of a training step, node by node, to an .svg or .png file"},
        {"ranks", CLI_INTEGER_IN(1, 1048576), &r.ranks, "N",
         "plan one rank of a job of N ranks, as if each had a machine like this one"},
        {"rank", CLI_INTEGER_IN(0, 1048575), &r.rank, "R",
         "the rank that --ranks plans, from 0 (default 0)"},
        {"json", CLI_SWITCH, &r.json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_info, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1) {
        return cli_misuse(&cli_info, "name one config file, run or model directory");
    }
    if (r.rank > 0 && r.rank >= r.ranks) {
        return cli_misuse(&cli_info, "--rank %lld: give --ranks, and a rank below it",
                          (long long)r.rank);
    }
    if (r.ranks > 0 && r.after != NULL) {
        return cli_misuse(&cli_info,
                          "--after prints the graph of a process that is alone: leave out --ranks, "
                          "or print the graph as it will run with --graph");
    }
    if (by_gguf_is_file(rest[0])) {
        return show_file(&r, rest[0]);
    }
    return is_model(rest[0]) ? show_model(&r, rest[0])
                             : cli_with_config(&cli_info, rest[0], &r.overrides, show_config, &r);
}

const cli_command cli_info = {
    .name = "info",
    .summary = "print parameters, FLOPs and planned memory of a config; its graph after any pass",
    .usage = "banyan info CONFIG [--graph | --after PASS | --config] [--out FILE]\n"
             "                   [--ranks N [--rank R]] [--set KEY=VALUE]... [--json]",
    .text =
        "Plans a training run without allocating its memory, and prints parameters, FLOPs per\n"
        "token by both conventions, and peak memory by category.\n"
        "\n"
        "examples:\n"
        "  banyan info examples/gpt2_124m.yaml\n"
        "  banyan info my-model --set train.batch=4 --set lora.rank=8\n"
        "  banyan info examples/shakespeare_char.yaml --set model.vocab=65 --after fuse\n"
        "  banyan info examples/gpt2_124m.yaml --set parallel.pipeline=4 --ranks 8 --rank 5\n"
        "\n"
        "CONFIG is a config file or a run. For a model directory in Hugging Face form, the plan\n"
        "is of a training run that starts from its weights (model.from). For a GGUF file, the\n"
        "command prints what the file contains.",
    .run = run};
