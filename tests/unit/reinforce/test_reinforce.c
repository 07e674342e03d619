/* Weights of tokens are the gradient of the published objectives, by finite differences in float64;
 * rewards; and a command that rates, answers badly, is late or dies. */
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "reinforce/reinforce.h"
#include "runner.h"
#include "temporary.h"

/* ---- the objective ---- */

enum { GROUP = 4, COUNT = 12, MOST = 7 };

typedef struct sampled {
    by__reinforce_completion list[COUNT];
    double own[COUNT][MOST];   /* log-probabilities of the weights that sampled */
    double start[COUNT][MOST]; /* at the start of the run */
} sampled;

static sampled make_sampled(void)
{
    sampled s = {0};
    for (size_t i = 0; i < COUNT; i++) {
        s.list[i].tokens = 1 + (int64_t)(i * 5 % MOST);
        /* the second group got one reward, so it teaches nothing */
        s.list[i].reward = i / GROUP == 1 ? 0.25 : 3.0 * random_unit(1, 2, i);
        for (size_t t = 0; t < MOST; t++) {
            s.own[i][t] = -0.1 - 3.0 * random_unit(1, 3, i * MOST + t);
            s.start[i][t] = s.own[i][t] + random_unit(1, 4, i * MOST + t) - 0.5;
        }
    }
    return s;
}

/* GRPO's objective (Shao et al. 2024, equation 3) at log-probabilities `now`, with ratios, clipping
 * and the divergence, averaged as each paper does it. */
static double objective(const sampled *s, double now[COUNT][MOST], const by__reinforce_objective *o)
{
    double total = 0.0;
    double tokens = 0.0;
    double sequences = 0.0;
    for (size_t i = 0; i < COUNT; i++) {
        const by__reinforce_completion *group = &s->list[i / GROUP * GROUP];
        double mean = 0.0;
        double squares = 0.0;
        double sum = 0.0;
        for (size_t k = 0; k < GROUP; k++) {
            mean += group[k].reward / GROUP;
        }
        for (size_t k = 0; k < GROUP; k++) {
            squares += pow(group[k].reward - mean, 2.0);
        }
        if (squares < 1e-20) {
            continue;
        }
        double advantage = s->list[i].reward - mean;
        advantage /= o->deviation ? sqrt(squares / (GROUP - 1)) + 1e-4 : 1.0;
        for (int64_t t = 0; t < s->list[i].tokens; t++) {
            double ratio = exp(now[i][t] - s->own[i][t]);
            double clipped = fmin(fmax(ratio, 0.8), 1.2);
            double to_start = s->start[i][t] - now[i][t];
            sum += fmin(ratio * advantage, clipped * advantage);
            sum -= o->kl * (exp(to_start) - to_start - 1.0);
        }
        double n = (double)s->list[i].tokens;
        total += o->normalize == BY__REINFORCE_TOKENS      ? sum
                 : o->normalize == BY__REINFORCE_SEQUENCES ? sum / n
                                                           : sum / (double)o->max_tokens;
        tokens += n;
        sequences += 1.0;
    }
    return total / (o->normalize == BY__REINFORCE_TOKENS ? tokens : sequences);
}

static void check_objective(const by__reinforce_objective *o)
{
    const double step = 1e-6;
    double advantages[COUNT];
    double scales[COUNT];
    double now[COUNT][MOST];
    const sampled s = make_sampled();
    double divisor = by__reinforce_weigh(advantages, scales, s.list, COUNT, o);
    memcpy(now, s.own, sizeof now);
    for (size_t i = 0; i < COUNT; i++) {
        for (int64_t t = 0; t < s.list[i].tokens; t++) {
            now[i][t] = s.own[i][t] + step;
            double above = objective(&s, now, o);
            now[i][t] = s.own[i][t] - step;
            double below = objective(&s, now, o);
            now[i][t] = s.own[i][t];
            double weight =
                by__reinforce_token_weight(advantages[i], o->kl, s.own[i][t], s.start[i][t]);
            double found = scales[i] * weight / divisor;
            assert_true(fabs(found - (above - below) / (2.0 * step)) < 1e-8);
        }
    }
}

static void test_gradient(void **state)
{
    BY_UNUSED(state);
    for (int normalize = 0; normalize < 3; normalize++) {
        for (int kind = 0; kind < 4; kind++) {
            by__reinforce_objective o = {
                .group = GROUP, .max_tokens = 9, .deviation = kind % 2 != 0};
            o.kl = kind / 2 == 0 ? 0.0 : 0.3;
            o.normalize = normalize == 0   ? BY__REINFORCE_TOKENS
                          : normalize == 1 ? BY__REINFORCE_SEQUENCES
                                           : BY__REINFORCE_CONSTANT;
            check_objective(&o);
        }
    }
}

static void test_report(void **state)
{
    by__reinforce_completion list[8] = {0};
    double advantages[8];
    double scales[8];
    const by__reinforce_objective o = {.group = 4, .max_tokens = 4, .passes = 1.0};
    BY_UNUSED(state);
    for (size_t i = 0; i < 8; i++) {
        list[i] = (by__reinforce_completion){
            .reward = i == 2 ? 1.0 : 0.0, .tokens = 1 + (int64_t)i, .cut = i == 0, .kl = 0.5};
    }
    by_rollout_report r = by__reinforce_report(list, 8, &o);
    assert_true(r.completions == 8 && r.steps == 1 && r.group == 4);
    assert_true(fabs(r.reward - 0.125) < 1e-12 && fabs(r.pass - 0.5) < 1e-12);
    assert_true(fabs(r.flat - 0.5) < 1e-12 && fabs(r.tokens - 4.5) < 1e-12);
    assert_true(fabs(r.cut - 0.125) < 1e-12 && fabs(r.kl - 4.0 / 36.0) < 1e-12);
    /* no group has variance: no weight, and a divisor that can divide */
    list[2].reward = 0.0;
    assert_true(by__reinforce_weigh(advantages, scales, list, 8, &o) == 1.0);
    assert_true(advantages[2] == 0.0 && scales[2] == 0.0);
    assert_true(by__reinforce_divergence(-1.0, -1.0) == 0.0);
    assert_true(by__reinforce_divergence(-1.0, -3.0) > 0.0);
}

/* ---- rewards ---- */

/* The reward of a completion, by settings of which `reward` is the kind. */
static double rate(const char *reward, const char *pattern, const char *answer,
                   const char *completion, int64_t tokens)
{
    by_error error = {0};
    by__reinforce_rewards *rewards;
    double out = NAN;
    char kind[32];
    char text[128];
    (void)snprintf(kind, sizeof kind, "%s", reward);
    (void)snprintf(text, sizeof text, "%s", pattern);
    const by__task_reinforce_keys keys = {
        .reward = kind, .reward_pattern = text, .reward_tokens = 10};
    const by__reinforce_answered a = {.answer = {answer, strlen(answer)},
                                      .completion = {completion, strlen(completion)},
                                      .tokens = tokens};
    check_ok(by__reinforce_rewards_open(&rewards, &keys, &error), &error);
    check_ok(by__reinforce_reward(rewards, &out, &a, 1, &error), &error);
    by__reinforce_rewards_close(&rewards);
    return out;
}

static void test_rewards(void **state)
{
    BY_UNUSED(state);
    assert_true(rate("exact", "", "12", " 12\n", 1) == 1.0);
    assert_true(rate("exact", "", "12", "1 2", 1) == 0.0);
    assert_true(rate("exact", "", "", "", 1) == 1.0);
    assert_true(rate("number", "", "so\n#### 1,234", "first #### 3, then #### 1234.", 1) == 1.0);
    assert_true(rate("number", "", "72", "#### $72.00", 1) == 1.0);
    assert_true(rate("number", "", "72", "it is 72", 1) == 0.0);
    assert_true(rate("number", "", "72", "#### many", 1) == 0.0);
    assert_true(rate("number", "", "none", "#### 0", 1) == 0.0);
    assert_true(rate("regex", "^[0-9]+$", "", "123", 1) == 1.0);
    assert_true(rate("regex", "^[0-9]+$", "", "12x", 1) == 0.0);
    assert_true(rate("regex", "<a>(.*)</a>", "7", "well <a> 7 </a>", 1) == 1.0);
    assert_true(rate("regex", "<a>(.*)</a>", "8", "well <a> 7 </a>", 1) == 0.0);
    assert_true(rate("regex", "x|(y)", "", "x", 1) == 0.0);
    assert_true(fabs(rate("length", "", "", "", 7) - 0.7) < 1e-12);
    assert_true(rate("length", "", "", "", 99) == 0.0);
    by_error error = {0};
    by__reinforce_rewards *rewards;
    char kind[] = "regex";
    char open[] = "(";
    const by__task_reinforce_keys keys = {.reward = kind, .reward_pattern = open};
    assert_int_equal(by__reinforce_rewards_open(&rewards, &keys, &error), BY_ECONFIG);
    assert_non_null(strstr(error.message, "task.reward_pattern"));
}

/* ---- a command ---- */

enum { LINES = 3000 };

static by__reinforce_command *open_script(const char *script, double timeout)
{
    static char name[] = "sh"; /* borrowed, as all of these */
    static char option[] = "-c";
    static char *words[3];
    static const by_string_list program = {words, 3};
    by_error error = {0};
    by__reinforce_command *command;
    words[0] = name;
    words[1] = option;
    words[2] = (char *)(uintptr_t)script;
    check_ok(by__reinforce_command_open(&command, &program, timeout, &error), &error);
    return command;
}

/* So many completions. */
static const by__reinforce_answered *completions(size_t count)
{
    static by__reinforce_answered list[LINES];
    for (size_t i = 0; i < count; i++) {
        list[i] = (by__reinforce_answered){.line = {"{\"a\":1}", 7},
                                           .is_object = i % 2 == 0,
                                           .answer = {"\"x\"", 3},
                                           .completion = {"some\ntext", 9}};
    }
    return list;
}

/* What a script of the shell answers to so many completions; expects `status` and a part of the
 * message. */
static void ask(const char *script, double timeout, size_t count, by_status status,
                const char *message)
{
    static double out[LINES];
    by_error error = {0};
    const by__reinforce_answered *list = completions(count);
    by__reinforce_command *command = open_script(script, timeout);
    for (int round = 0; round < 2; round++) {
        by_status found = by__reinforce_command_rate(command, out, list, count, &error);
        if (found != status) {
            fail_msg("%s: status %d: %s", script, found, error.message);
        }
        if (status != BY_OK) {
            if (strstr(error.message, message) == NULL) {
                fail_msg("%s: %s", script, error.message);
            }
            break;
        }
        for (size_t i = 0; i < count; i++) {
            assert_true(out[i] == (i % 2 == 0 ? 0.5 : -2.0));
        }
    }
    by__reinforce_command_close(&command);
}

/* The time includes the start of the shell, so it grows until there was time for an answer. */
static void ask_late(void)
{
    double out[4];
    by_error error = {0};
    char wanted[64] = "";
    for (int i = 0; i < 13; i++) {
        double timeout = ldexp(0.2, i);
        by__reinforce_command *command = open_script("read -r l; echo 1; cat >/dev/null", timeout);
        assert_int_equal(by__reinforce_command_rate(command, out, completions(4), 4, &error),
                         BY_EIO);
        by__reinforce_command_close(&command);
        (void)snprintf(wanted, sizeof wanted, "gave 1 of 4 answers in %g s", timeout);
        if (strstr(error.message, "gave 0 of 4 answers") == NULL) {
            break;
        }
    }
    assert_non_null(strstr(error.message, wanted));
}

/* Objects are told from lines of text. */
#define RATE                                                                                       \
    "while read -r l; do case $l in *'\"item\":{\"a\":1}}') echo 0.5;; *) echo -2;; esac; done"

static void test_command(void **state)
{
    BY_UNUSED(state);
    ask(RATE, 60.0, LINES, BY_OK, "");
    ask("exec 2>&-; " RATE, 60.0, 4, BY_OK, "");
    ask("read -r l; echo 1; echo broken >&2; exit 3", 60.0, 4, BY_EIO,
        "sh ended with code 3 after 1 of 4 answers: broken");
    ask("kill -KILL $$", 60.0, 4, BY_EIO, "sh was ended by signal 9 after 0 of 4 answers");
    ask("read -r l; echo 1; echo good; cat >/dev/null", 60.0, 4, BY_EFORMAT,
        "answer 2 of sh is \"good\"");
    ask("read -r l; echo nan; cat >/dev/null", 60.0, 1, BY_EFORMAT, "answer 1 of sh is \"nan\"");
    ask("read -r l; printf '1\\n2\\n3\\n'; cat >/dev/null", 60.0, 2, BY_EFORMAT,
        "more than the 2 lines");
    ask_late();
    by_error error = {0};
    by__reinforce_command *command;
    char *words[] = {(char[]){"banyan-no-such-program"}};
    const by_string_list program = {words, 1};
    assert_int_equal(by__reinforce_command_open(&command, &program, 1.0, &error), BY_ECONFIG);
    assert_non_null(strstr(error.message, "banyan-no-such-program"));
}

/* ---- a command that prints a number too many ---- */

/* Waits until a script has made this file. */
static void await_file(const char *name)
{
    while (access(name, F_OK) != 0) {
        (void)poll(NULL, 0, 1);
    }
    assert_int_equal(unlink(name), 0);
}

static void make_file(const char *name)
{
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

static void expect_refusal(by__reinforce_command *command, const char *message)
{
    double out[4];
    by_error error = {0};
    assert_int_equal(by__reinforce_command_rate(command, out, completions(4), 4, &error),
                     BY_EFORMAT);
    if (strstr(error.message, message) == NULL) {
        fail_msg("%s", error.message);
    }
    by__reinforce_command_close(&command);
}

/* A script that prints a banner, then an answer for each line; the first step's last one when the
 * file "go" is there, so that it is still due when the step has its answers. */
static by__reinforce_command *open_shifted(void)
{
    double out[4];
    by_error error = {0};
    by__reinforce_command *command =
        open_script("n=0; while read -r l; do n=$((n + 1)); [ $n = 1 ] && echo 7; "
                    "while [ $n = 4 ] && ! [ -e go ]; do sleep 0.01; done; echo $n; "
                    "[ $n = 4 ] && : >done; done",
                    60.0);
    check_ok(by__reinforce_command_rate(command, out, completions(4), 4, &error), &error);
    assert_true(out[0] == 7.0 && out[1] == 1.0 && out[3] == 3.0);
    return command;
}

static void test_banner(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    char *directory = temporary_make(); /* for the files of the scripts */
    assert_non_null(directory);
    assert_int_equal(chdir(directory), 0);
    by__reinforce_command *command =
        open_script("echo 7; : >done; while read -r l; do echo 1; done", 60.0);
    await_file("done");
    expect_refusal(command, "sh printed \"7\" before it was asked anything");

    command = open_shifted();
    make_file("go");
    await_file("done");
    expect_refusal(command, "sh printed \"4\" behind its last answer");
    assert_int_equal(unlink("go"), 0);

    /* The same with no step behind the first: found however late the answer comes. */
    command = open_shifted();
    make_file("go");
    assert_int_equal(by__reinforce_command_finish(command, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "sh printed \"4\" behind its last answer"));
    by__reinforce_command_close(&command);
    assert_int_equal(chdir("/"), 0);
    temporary_remove(directory);
}

static void test_finish(void **state)
{
    double out[4];
    by_error error = {0};
    BY_UNUSED(state);
    by__reinforce_command *command = open_script(RATE "; echo bye", 60.0);
    for (int round = 0; round < 3; round++) { /* a step behind its end starts it again */
        check_ok(by__reinforce_command_rate(command, out, completions(4), 4, &error), &error);
        assert_true(out[0] == 0.5 && out[3] == -2.0);
        check_ok(by__reinforce_command_finish(command, &error), &error);
        check_ok(by__reinforce_command_finish(command, &error), &error);
    }
    by__reinforce_command_close(&command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient), cmocka_unit_test(test_report),
        cmocka_unit_test(test_rewards),  cmocka_unit_test(test_command),
        cmocka_unit_test(test_banner),   cmocka_unit_test(test_finish)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
