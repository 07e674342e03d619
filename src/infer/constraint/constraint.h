/* The parts of a constraint: the compiled automata (constraint.c), the tokens of a vocabulary
 * (token_list.c), and the position of a sequence in the automata (constraint_state.c). */
#ifndef BY_INFER_CONSTRAINT_CONSTRAINT_H
#define BY_INFER_CONSTRAINT_CONSTRAINT_H

#include "infer/constraint/byte_language.h"

struct by_constraint {
    by__automata automata;
};

/* Longer tokens are never allowed. */
#define BY__MAX_TOKEN_BYTES 255

struct by_token_list {
    uint32_t vocab;
    uint32_t count;
    uint32_t *ids;   /* [count], sorted by the tokens' bytes */
    uint32_t *first; /* [count + 1]: where the bytes of the k-th token start */
    uint8_t *bytes;
    uint8_t *shared; /* [count]: length of the k-th token's common prefix with the one before */
    uint32_t *place; /* [vocab]: k of each token, or BY__NO_PLACE */
};
#define BY__NO_PLACE UINT32_MAX

/* Returns true if any token of the list may follow (constraint_state.c). */
bool by__constraint_state_goes_on(by_constraint_state *state);

/* ---- following a text (walk.c) ---- */

/* Maximum number of parses that are followed at the same time, and of entries of their stacks.
 * Parses beyond that are dropped, which can only forbid texts. */
#define BY__MAX_WAYS   256
#define BY__MAX_FRAMES 8192

/* The position of a parse: a state, and the stack of states to return to. Frame 0 is the empty
 * stack. */
typedef struct by__way {
    int32_t state;
    int32_t frame;
} by__way;

typedef struct by__frame {
    int32_t back;
    int32_t below;
    int32_t depth;
    uint64_t hash; /* hash of the whole stack */
} by__frame;

typedef struct by__frames {
    by__frame *list;
    int32_t *slots; /* hash table of frames by (back, below), 2 * BY__MAX_FRAMES entries */
    int32_t count;
} by__frames;

by_status by__frames_open(by__frames *frames, by_error *error);
void by__frames_close(by__frames *frames);
void by__frames_clear(by__frames *frames);
void by__frames_copy(by__frames *to, const by__frames *from);
/* Computes the ways at the start of a text and returns their number. `out` has BY__MAX_WAYS
 * entries. */
int by__walk_begin(const by__automata *a, by__frames *frames, by__way *out);
/* Computes the ways after one more byte. */
int by__walk_byte(const by__automata *a, by__frames *frames, const by__way *ways, int count,
                  uint8_t byte, by__way *out);
/* Returns true if the text may end here. */
bool by__walk_can_end(const by__automata *a, const by__way *ways, int count);
/* Keeps only the frames that `ways` need; `spare` is a second set of frames that is swapped in. */
void by__frames_compact(by__frames *frames, by__frames *spare, by__way *ways, int count);

#endif
