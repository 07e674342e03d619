#include "data/pack_images.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

typedef struct image_pack_view {
    bool terminal;
    double printed;
} image_pack_view;

static double seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool show(void *user, uint64_t done, uint64_t total)
{
    image_pack_view *view = user;
    double now = seconds();
    if (view->terminal && now - view->printed >= 0.1) {
        char a[32];
        char b[32];
        view->printed = now;
        fprintf(stderr, "\r\033[Kpacking  %s of %s", by_format_bytes(a, done),
                by_format_bytes(b, total));
        fflush(stderr);
    }
    return !cli_stop_requested(NULL);
}

static void print_result(const by_image_pack_options *o, const by_image_pack_result *r,
                         double elapsed, bool json)
{
    char bytes[32];
    if (json) {
        printf("{\"output\": ");
        cli_print_json_string(o->output);
        printf(", \"rank\": %zu, \"pictures\": %" PRIu64 ", \"skipped\": %" PRIu64
               ", \"shards\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"written\": %" PRIu64
               ", \"complete\": %s, \"seconds\": %.3f}\n",
               o->rank, r->pictures, r->skipped, r->shards, r->bytes, r->written,
               r->complete ? "true" : "false", elapsed);
        return;
    }
    if (o->ranks > 1) {
        printf("rank %zu: ", o->rank);
    }
    printf("%s: %" PRIu64 " pictures in %" PRIu64 " shards, %s; %" PRIu64 " shards written",
           o->output, r->pictures, r->shards, by_format_bytes(bytes, r->bytes), r->written);
    if (r->skipped > 0) {
        printf("; %" PRIu64 " damaged pictures are left out", r->skipped);
    }
    printf("%s\n", r->complete ? "" : "; other ranks still write");
}

int cli_pack_images(by_image_pack_options *o, bool json)
{
    by_error error = {0};
    by_image_pack_result result;
    image_pack_view view = {.terminal = isatty(STDERR_FILENO) != 0};
    int rank;
    int ranks;
    double start = seconds();
    cli_find_rank(&rank, &ranks);
    o->rank = (size_t)rank;
    o->ranks = (size_t)ranks;
    o->progress = show;
    o->user = &view;
    cli_catch_signals();
    by_status status = by_image_pack(o, &result, &error);
    if (view.terminal) {
        fprintf(stderr, "\r\033[K");
    }
    if (status != BY_OK) {
        return cli_fail(&cli_pack, &error);
    }
    print_result(o, &result, seconds() - start, json);
    return CLI_DONE;
}
