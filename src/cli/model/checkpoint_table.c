/* banyan checkpoint ls, verify and prune. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/checkpoint.h"
#include "base/cli.h"
#include "model/checkpoint.h"

static void print_json(const by_checkpoint_info *c)
{
    char number[32];
    printf("{\"path\":");
    cli_print_json_string(c->path);
    printf(",\"step\":%" PRIu64 ",\"valid\":%s", c->step, c->reason == NULL ? "true" : "false");
    if (c->reason != NULL) {
        printf(",\"reason\":");
        cli_print_json_string(c->reason);
        printf("}\n");
        return;
    }
    printf(",\"files\":%zu,\"bytes\":%" PRIu64 ",\"own_bytes\":%" PRIu64
           ",\"valid_loss\":%s,\"best\":%s}\n",
           c->files, c->bytes, c->own_bytes, cli_json_number(number, c->loss, 9),
           c->is_best ? "true" : "false");
}

static void print_row(const by_checkpoint_info *c)
{
    char bytes[2][32];
    char loss[32] = "-";
    if (c->reason != NULL) {
        printf("%" PRIu64 "\t-\t-\t-\t-\tnot valid: %s\n", c->step, c->reason);
        return;
    }
    if (!isnan(c->loss)) {
        (void)snprintf(loss, sizeof loss, "%.4f", c->loss);
    }
    printf("%" PRIu64 "\t%zu\t%s\t%s\t%s\t%s\n", c->step, c->files,
           by_format_bytes(bytes[0], c->bytes), by_format_bytes(bytes[1], c->own_bytes), loss,
           c->is_best ? "valid, best" : "valid");
}

by_status cli_checkpoint_list(const char *path, bool verify, bool json, bool *all_valid,
                              by_error *error)
{
    by_checkpoint_list list;
    *all_valid = true;
    if (by_checkpoint_list_make(&list, path, verify, error) != BY_OK) {
        return error->status;
    }
    if (!json) {
        printf("step\tfiles\tsize\town size\tvalid loss\tstate\n");
    }
    for (size_t i = 0; i < list.count; i++) {
        *all_valid = *all_valid && list.items[i].reason == NULL;
        if (json) {
            print_json(&list.items[i]);
        } else {
            print_row(&list.items[i]);
        }
    }
    by_checkpoint_list_free(&list);
    return BY_OK;
}

by_status cli_checkpoint_prune(const char *root, const by_retention *retention, bool json,
                               by_error *error)
{
    uint64_t *steps;
    size_t count;
    if (by_checkpoint_retain(root, retention, &steps, &count, error) != BY_OK) {
        return error->status;
    }
    if (json) {
        printf("{\"dry_run\":%s,\"removed\":[", retention->is_dry_run ? "true" : "false");
        for (size_t i = 0; i < count; i++) {
            printf("%s%" PRIu64, i == 0 ? "" : ",", steps[i]);
        }
        printf("]}\n");
    }
    for (size_t i = 0; i < count && !json; i++) {
        printf("%s\t%" PRIu64 "\n", retention->is_dry_run ? "would remove" : "removed", steps[i]);
    }
    free(steps);
    return BY_OK;
}
