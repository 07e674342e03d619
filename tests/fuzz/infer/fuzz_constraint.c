/* Constraints: an expression or a schema is refused or compiled; from where a compiled one stands
 * there is always a way on, and what it wrote to the end fits. The first byte chooses the kind, and
 * with the others which way is taken. */
#include <stdlib.h>
#include <string.h>

#include "banyan/constraint.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STEPS 200

static by_status one_byte(void *user, uint32_t id, const char **data, size_t *length,
                          by_error *error)
{
    BY_UNUSED(error);
    *data = (const char *)user + id;
    *length = 1;
    return BY_OK;
}

static void write_text(const by_constraint *constraint, uint64_t seed)
{
    char bytes[256];
    char text[STEPS];
    size_t length = 0;
    bool matches;
    by_token_list *list;
    by_constraint_state *state;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
    }
    if (by_token_list_open(&list, one_byte, bytes, 256, NULL) != BY_OK ||
        by_constraint_state_open(&state, constraint, list, NULL) != BY_OK) {
        abort();
    }
    while (length < STEPS && !by_constraint_state_is_complete(state)) {
        const uint64_t *allowed = by_constraint_state_allowed(state);
        seed = seed * UINT64_C(6364136223846793005) + 1;
        uint32_t id = (uint32_t)(seed >> 56);
        uint32_t tried = 0;
        while (tried < 256 && (allowed[id / 64] >> id % 64 & 1u) == 0) {
            id = (id + 1) % 256;
            tried++;
        }
        if (tried == 256) {
            if (!by_constraint_state_can_end(state)) {
                abort();
            }
            break;
        }
        if (by_constraint_state_accept(state, id, NULL) != BY_OK) {
            abort();
        }
        text[length++] = (char)id;
    }
    if (by_constraint_state_can_end(state) &&
        (by_constraint_matches(constraint, text, length, &matches, NULL) != BY_OK || !matches)) {
        abort();
    }
    by_constraint_state_close(&state);
    by_token_list_close(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_constraint *constraint;
    by_error error;
    if (size == 0) {
        return 0;
    }
    const char *form = (const char *)data + 1;
    by_status status = data[0] % 2 == 0
                           ? by_constraint_open_schema(&constraint, form, size - 1, NULL, &error)
                           : by_constraint_open_regex(&constraint, form, size - 1, NULL, &error);
    if (status == BY_OK) {
        write_text(constraint, by__hash64(data, size));
        by_constraint_close(&constraint);
    }
    return 0;
}
