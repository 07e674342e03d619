#include "data/pack_graph.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct graph_pack_view {
    bool terminal;
    double printed;
    const char *phase;
} graph_pack_view;

static double seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool show(void *user, const char *phase, uint64_t done, uint64_t total)
{
    graph_pack_view *view = user;
    double now = seconds();
    if (view->terminal && (phase != view->phase || now - view->printed >= 0.1)) {
        view->printed = now;
        view->phase = phase;
        fprintf(stderr, "\r\033[K%-8s %.0f %%", phase,
                total > 0 ? 100.0 * (double)done / (double)total : 100.0);
        fflush(stderr);
    }
    return !cli_stop_requested(NULL);
}

static void show_note(void *user, const char *text)
{
    const graph_pack_view *view = user;
    fprintf(stderr, "%s", view->terminal ? "\r\033[K" : "");
    cli_print_lines(stderr, text);
    fprintf(stderr, "\n");
}

static void print_result(const char *output, const by_graph_pack_result *r, double elapsed,
                         bool json)
{
    if (json) {
        printf("{\"output\": ");
        cli_print_json_string(output);
        printf(", \"nodes\": %" PRIu64 ", \"edges\": %" PRIu64 ", \"features\": %" PRIu64
               ", \"classes\": %" PRIu64 ", \"train\": %" PRIu64 ", \"valid\": %" PRIu64
               ", \"test\": %" PRIu64 ", \"listed\": %" PRIu64 ", \"duplicates\": %" PRIu64
               ", \"loops\": %" PRIu64 ", \"skipped\": %" PRIu64 ", \"seconds\": %.3f}\n",
               r->nodes, r->edges, r->features, r->classes, r->held[0], r->held[1], r->held[2],
               r->listed, r->duplicates, r->loops, r->skipped, elapsed);
        return;
    }
    printf("%s: %" PRIu64 " nodes with %" PRIu64 " features and %" PRIu64 " classes, %" PRIu64
           " edges",
           output, r->nodes, r->features, r->classes, r->edges);
    if (r->duplicates > 0) {
        printf(", %" PRIu64 " duplicates left out", r->duplicates);
    }
    if (r->loops > 0) {
        printf(", %" PRIu64 " were from a node to itself", r->loops);
    }
    if (r->skipped > 0) {
        printf(", %" PRIu64 " damaged lines left out", r->skipped);
    }
    printf("\n");
}

/* Returns what is wrong with the flags, or NULL. */
static const char *take_flags(cli_graph_pack *g)
{
    static const char *const loops[] = {[BY_LOOPS_DROP] = "drop",
                                        [BY_LOOPS_ADD] = "add",
                                        [BY_LOOPS_KEEP] = "keep",
                                        [BY_LOOPS_FAIL] = "fail"};
    int64_t bytes = 0;
    size_t kind = 0;
    while (g->loops != NULL && kind < 4 && strcmp(g->loops, loops[kind]) != 0) {
        kind++;
    }
    if (kind == 4) {
        return "--self-loops is drop, add, keep or fail";
    }
    g->options.loops = (by_graph_loops)kind;
    g->options.refuse_duplicates = g->duplicates != NULL && strcmp(g->duplicates, "fail") == 0;
    if (g->duplicates != NULL && !g->options.refuse_duplicates &&
        strcmp(g->duplicates, "merge") != 0) {
        return "--duplicates is merge or fail";
    }
    if (g->memory != NULL && (!by_parse_size(&bytes, g->memory) || bytes < 1)) {
        return "--memory must be a number of bytes, such as 1GiB";
    }
    g->options.memory = (uint64_t)bytes;
    return NULL;
}

int cli_pack_graph(cli_graph_pack *g, bool json)
{
    by_error error = {0};
    by_graph_pack_result result;
    graph_pack_view view = {.terminal = isatty(STDERR_FILENO) != 0};
    double start = seconds();
    const char *misuse = take_flags(g);
    if (misuse != NULL) {
        return cli_misuse(&cli_pack, "%s", misuse);
    }
    g->options.progress = show;
    g->options.note = show_note;
    g->options.user = &view;
    cli_catch_signals();
    by_status status = by_graph_pack(&g->options, &result, &error);
    if (view.terminal) {
        fprintf(stderr, "\r\033[K");
    }
    if (status != BY_OK) {
        return cli_fail(&cli_pack, &error);
    }
    print_result(g->options.output, &result, seconds() - start, json);
    return CLI_DONE;
}
