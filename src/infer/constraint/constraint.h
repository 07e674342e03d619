/* constraint: a compiled form (constraint.c), the tokens of a vocabulary (token_list.c) and where a
 * sequence stands in the form (constraint_state.c). */
#ifndef BY_INFER_CONSTRAINT_CONSTRAINT_H
#define BY_INFER_CONSTRAINT_CONSTRAINT_H

#include "infer/constraint/byte_language.h"

struct by_constraint {
    by__automata automata;
};

/* Tokens over this many bytes may not be chosen. */
#define BY__MAX_TOKEN_BYTES 255

struct by_token_list {
    uint32_t vocab;
    uint32_t count;
    uint32_t *ids;   /* [count] sorted by bytes */
    uint32_t *first; /* [count + 1] where the bytes of the k-th begin */
    uint8_t *bytes;
    uint8_t *shared; /* [count] bytes that the k-th has in common with the one before */
    uint32_t *place; /* [vocab] k of a token, BY__NO_PLACE */
};
#define BY__NO_PLACE UINT32_MAX

/* Whether a token of the list may follow (constraint_state.c). */
bool by__constraint_state_goes_on(by_constraint_state *state);

/* ---- following a text (walk.c) ---- */

/* The most ways to read a text that are followed at a time, and entries of the stacks behind them.
 * Ways over that are dropped, which only forbids texts. */
#define BY__MAX_WAYS   256
#define BY__MAX_FRAMES 8192

/* Where a reading is: a state, and the stack of states to come back to: frame 0 is empty. */
typedef struct by__way {
    int32_t state;
    int32_t frame;
} by__way;

typedef struct by__frame {
    int32_t back;
    int32_t below;
    int32_t depth;
    uint64_t hash; /* of the whole stack */
} by__frame;

typedef struct by__frames {
    by__frame *list;
    int32_t *slots; /* hash table of frames by (back, below); 2 * BY__MAX_FRAMES */
    int32_t count;
} by__frames;

by_status by__frames_open(by__frames *frames, by_error *error);
void by__frames_close(by__frames *frames);
void by__frames_clear(by__frames *frames);
void by__frames_copy(by__frames *to, const by__frames *from);
/* The ways at the beginning of a text; returns their number. `out` has BY__MAX_WAYS. */
int by__walk_begin(const by__automata *a, by__frames *frames, by__way *out);
/* The ways after one byte more. */
int by__walk_byte(const by__automata *a, by__frames *frames, const by__way *ways, int count,
                  uint8_t byte, by__way *out);
/* Whether the text may end. */
bool by__walk_can_end(const by__automata *a, const by__way *ways, int count);
/* Keeps of the frames what `ways` need; `spare` is another set of frames, exchanged with it. */
void by__frames_compact(by__frames *frames, by__frames *spare, by__way *ways, int count);

#endif
