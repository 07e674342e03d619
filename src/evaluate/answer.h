/* Answers in generated texts: what to take of a text, and whether it is the right answer, by the
 * filters and the exact_match of lm-evaluation-harness. */
#ifndef BY_EVALUATE_ANSWER_H
#define BY_EVALUATE_ANSWER_H

#include <jansson.h>

#include "base/base.h"
#include "text/pattern/pattern.h"

typedef enum by__evaluate_filter_kind {
    BY__EVALUATE_REGEX,  /* the select-th match of `pattern`, its group where it has one */
    BY__EVALUATE_BLANK,  /* without a blank in front */
    BY__EVALUATE_LOWER,  /* ASCII */
    BY__EVALUATE_UPPER,  /* ASCII */
    BY__EVALUATE_STRIP,  /* without white space at both ends */
    BY__EVALUATE_NUMBER, /* the last number: 1,234.50 is 1234.5 */
    BY__EVALUATE_FIRST   /* of several texts, of which there is one */
} by__evaluate_filter_kind;

typedef struct by__evaluate_filter {
    by__evaluate_filter_kind kind;
    by__pattern *pattern;
    int64_t select; /* of the matches; negative: from the last */
    char *fallback; /* where nothing matches */
} by__evaluate_filter;

/* A way to take an answer: filters one after another. */
typedef struct by__evaluate_way {
    char *metric; /* "exact_match", with the name of the way if there are several */
    by__evaluate_filter *filters;
    size_t count;
} by__evaluate_way;

#define BY__EVALUATE_WAYS 4

typedef struct by__evaluate_answers {
    by__evaluate_way ways[BY__EVALUATE_WAYS];
    size_t count; /* at least 1 */
    by__pattern **ignored;
    size_t ignored_count;
    bool ignores_case;
    bool ignores_punctuation;
} by__evaluate_answers;

/* Reads the keys filter_list and metric_list of a task. `where` begins messages. */
by_status by__evaluate_answers_open(by__evaluate_answers *out, const json_t *yaml,
                                    const char *where, by_error *error);
void by__evaluate_answers_close(by__evaluate_answers *answers);
/* Appends the answer that a way takes of a text. BY_EARG: a pattern takes too many steps. */
by_status by__evaluate_answer_take(by_string *out, const by__evaluate_way *way, const char *text,
                                   by_error *error);
/* Whether an answer equals a text, both without what is ignored. */
by_status by__evaluate_answer_equal(bool *equal, const by__evaluate_answers *answers,
                                    const char *answer, const char *target, by_error *error);

#endif
