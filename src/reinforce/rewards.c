/* Rewards that are computed here: exact answers, numbers, regular expressions, length; or by a
 * command. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reinforce/reinforce.h"
#include "text/pattern/pattern.h"

#define BLANKS (BY__BLANKS | BY__WHITE_SPACE)

struct by__reinforce_rewards {
    double (*rate)(const by__reinforce_rewards *r, const by__reinforce_answered *a);
    by__reinforce_command *command; /* rates instead; NULL: none */
    double length;                  /* tokens that are best */
    by__pattern *pattern;
};

static bool same_trimmed(by_text a, by_text b)
{
    by__trim(&a.data, &a.length, BLANKS);
    by__trim(&b.data, &b.length, BLANKS);
    return a.length == b.length && memcmp(a.data, b.data, a.length) == 0;
}

static double rate_exact(const by__reinforce_rewards *r, const by__reinforce_answered *a)
{
    BY_UNUSED(r);
    return same_trimmed(a->completion, a->answer) ? 1.0 : 0.0;
}

static double rate_number(const by__reinforce_rewards *r, const by__reinforce_answered *a)
{
    double given;
    double right;
    BY_UNUSED(r);
    return by__task_prompt_number(a->answer, false, &right) &&
                   by__task_prompt_number(a->completion, true, &given) && given == right
               ? 1.0
               : 0.0;
}

static double rate_pattern(const by__reinforce_rewards *r, const by__reinforce_answered *a)
{
    by__pattern_match match = {0};
    /* A completion in which the search is given up is as one that does not match. */
    by_status status =
        by__pattern_next(r->pattern, a->completion.data, a->completion.length, &match, NULL);
    if (status != BY_OK || !match.found) {
        return 0.0;
    }
    if (by__pattern_groups(r->pattern) == 0) {
        return 1.0;
    }
    if (match.groups[1].end == SIZE_MAX) {
        return 0.0;
    }
    const by_text found = {a->completion.data + match.groups[1].begin,
                           match.groups[1].end - match.groups[1].begin};
    return same_trimmed(found, a->answer) ? 1.0 : 0.0;
}

static double rate_length(const by__reinforce_rewards *r, const by__reinforce_answered *a)
{
    return fmax(0.0, 1.0 - fabs((double)a->tokens - r->length) / r->length);
}

static by_status compile(by__reinforce_rewards *r, const char *pattern, by_error *error)
{
    by_status status = by__pattern_open(&r->pattern, pattern, strlen(pattern), error);
    status = status == BY_EFORMAT ? BY_ECONFIG : status;
    return status == BY_OK ? BY_OK : by_error_prefix(error, status, "task.reward_pattern");
}

by_status by__reinforce_rewards_open(by__reinforce_rewards **out,
                                     const by__task_reinforce_keys *keys, by_error *error)
{
    by__reinforce_rewards *r;
    BY_TRY(by__alloc((void **)&r, 1, sizeof *r, "rewards", error));
    r->length = (double)keys->reward_tokens;
    r->rate = strcmp(keys->reward, "number") == 0   ? rate_number
              : strcmp(keys->reward, "regex") == 0  ? rate_pattern
              : strcmp(keys->reward, "length") == 0 ? rate_length
                                                    : rate_exact;
    by_status status = BY_OK;
    if (strcmp(keys->reward, "command") == 0) {
        status = by__reinforce_command_open(&r->command, &keys->reward_command,
                                            keys->reward_timeout, error);
    } else if (r->rate == rate_pattern) {
        status = compile(r, keys->reward_pattern, error);
    }
    if (status != BY_OK) {
        by__reinforce_rewards_close(&r);
        return status;
    }
    *out = r;
    return BY_OK;
}

void by__reinforce_rewards_close(by__reinforce_rewards **rewards)
{
    if (*rewards != NULL) {
        by__pattern_close(&(*rewards)->pattern);
        by__reinforce_command_close(&(*rewards)->command);
        free(*rewards);
        *rewards = NULL;
    }
}

by_status by__reinforce_reward(by__reinforce_rewards *r, double *out,
                               const by__reinforce_answered *list, size_t count, by_error *error)
{
    if (r->command != NULL) {
        return by__reinforce_command_rate(r->command, out, list, count, error);
    }
    for (size_t i = 0; i < count; i++) {
        out[i] = r->rate(r, &list[i]);
    }
    return BY_OK;
}

by_status by__reinforce_rewards_finish(by__reinforce_rewards *r, by_error *error)
{
    return r->command == NULL ? BY_OK : by__reinforce_command_finish(r->command, error);
}
