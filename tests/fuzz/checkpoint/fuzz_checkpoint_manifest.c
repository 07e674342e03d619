/* Any bytes as manifest.json and as state.json: refused or taken, and what is taken prints to text
 * that is taken again. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void manifest_round_trip(const char *text, size_t size)
{
    by__checkpoint_manifest first = {0};
    by__checkpoint_manifest second = {0};
    by_error error;
    char *printed = NULL;
    size_t length;
    (void)by__checkpoint_manifest_check_seal("manifest.json", text, size, &error);
    if (by__checkpoint_manifest_parse(&first, "manifest.json", text, size, &error) != BY_OK) {
        return;
    }
    if (by__checkpoint_manifest_print(&first, &printed, &length, &error) != BY_OK ||
        by__checkpoint_manifest_check_seal("manifest.json", printed, length, &error) != BY_OK ||
        by__checkpoint_manifest_parse(&second, "manifest.json", printed, length, &error) != BY_OK ||
        second.step != first.step || second.files.count != first.files.count) {
        abort();
    }
    for (size_t i = 0; i < first.files.count; i++) {
        const char *a = first.files.items[i].in;
        const char *b = second.files.items[i].in;
        if ((a == NULL) != (b == NULL) || (a != NULL && strcmp(a, b) != 0)) {
            abort();
        }
    }
    free(printed);
    by__checkpoint_manifest_free(&first);
    by__checkpoint_manifest_free(&second);
}

static void state_round_trip(const char *text, size_t size)
{
    by__checkpoint_state first = {0};
    by__checkpoint_state second = {0};
    by_error error;
    char *printed = NULL;
    size_t length;
    if (by__checkpoint_state_parse(&first, "state.json", text, size, &error) != BY_OK) {
        return;
    }
    /* An empty key can be read but is not written. */
    if (by__checkpoint_state_print(first.step, first.values, first.count, &printed, &length,
                                   &error) == BY_OK) {
        if (by__checkpoint_state_parse(&second, "state.json", printed, length, &error) != BY_OK ||
            second.count != first.count) {
            abort();
        }
        for (size_t i = 0; i < first.count; i++) {
            const by_checkpoint_value *a = &first.values[i];
            const by_checkpoint_value *b = &second.values[i];
            if (a->kind != b->kind || strcmp(a->key, b->key) != 0 ||
                (a->kind == BY_VALUE_U64 && a->as.u64 != b->as.u64) ||
                (a->kind == BY_VALUE_F64 && a->as.f64 == a->as.f64 &&
                 memcmp(&a->as.f64, &b->as.f64, sizeof a->as.f64) != 0) ||
                (a->kind == BY_VALUE_STRING && strcmp(a->as.string, b->as.string) != 0)) {
                abort();
            }
        }
        free(printed);
        by__checkpoint_state_free(&second);
    }
    by__checkpoint_state_free(&first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    manifest_round_trip((const char *)data, size);
    state_round_trip((const char *)data, size);
    return 0;
}
