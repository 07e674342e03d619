/* banyan checkpoint diff. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/cli.h"
#include "model/checkpoint.h"

static const char *const words[] = {"equal", "different", "other shape", "only in the first",
                                    "only in the second"};

static void print_json(const by_tensor_difference *d)
{
    char number[2][32];
    printf("{\"name\":");
    cli_print_json_string(d->name);
    printf(",\"part\":\"%s\",\"state\":\"%s\"", d->optimizer ? "optimizer" : "model",
           words[d->kind]);
    if (d->kind <= BY_DIFFERENCE_VALUES) {
        printf(",\"elements\":%" PRIu64 ",\"different\":%" PRIu64 ",\"max_abs\":%s,\"max_rel\":%s",
               d->elements, d->different, cli_json_number(number[0], d->max_abs, 9),
               cli_json_number(number[1], d->max_rel, 9));
    }
    printf("}\n");
}

static void print_row(const by_tensor_difference *d)
{
    if (d->kind == BY_DIFFERENCE_VALUES) {
        printf("%.4g\t%.4g\t%" PRIu64 " of %" PRIu64 "\t", d->max_abs, d->max_rel, d->different,
               d->elements);
    } else {
        printf("-\t-\t%s\t", words[d->kind]);
    }
    cli_print_cell(d->name);
    printf("\n");
}

by_status cli_checkpoint_diff(const char *first, const char *second, bool json, bool *differs,
                              by_error *error)
{
    by_difference difference;
    size_t equal = 0;
    if (by_checkpoint_diff(&difference, first, second, error) != BY_OK) {
        return error->status;
    }
    if (!json) {
        printf("max abs\tmax rel\telements\ttensor\n");
    }
    for (size_t i = 0; i < difference.count; i++) {
        const by_tensor_difference *d = &difference.tensors[i];
        if (json) {
            print_json(d);
        } else if (d->kind != BY_DIFFERENCE_NONE) {
            print_row(d);
        }
        equal += d->kind == BY_DIFFERENCE_NONE;
    }
    if (!json) {
        printf("%zu of %zu tensors are equal\n", equal, difference.count);
    }
    *differs = difference.differs;
    by_difference_free(&difference);
    return BY_OK;
}
