/* Child processes: their exit codes, the signals that end them, and what they leave behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process/process.h"

/* Runs a script of the shell. */
static void start(by__process *process, char *script)
{
    char sh[] = "sh";
    char flag[] = "-c";
    char variable[] = "BY_TEST=set";
    char *words[] = {sh, flag, script, NULL};
    char *extra[] = {variable, NULL};
    const by__process_options options = {.words = words, .extra = extra, .input = -1};
    assert_int_equal(by__process_start(process, &options), 0);
    assert_true(process->running && process->code == -1);
}

/* Until it ends; `now` as for by__process_watch. */
static void await(by__process *process, double now)
{
    while (by__process_watch(process, now) != BY__PROCESS_ENDED) {
        usleep(1000);
    }
    assert_false(process->running);
}

static void test_codes(void **state)
{
    by__process process;
    (void)state;
    start(&process, (char[]){"test \"$BY_TEST\" = set && exit 7"});
    await(&process, 0.0);
    assert_int_equal(process.code, 7);
    start(&process, (char[]){"kill -KILL $$"});
    await(&process, 0.0);
    assert_int_equal(process.code, 128 + SIGKILL);
    assert_int_equal(by__process_watch(&process, HUGE_VAL), BY__PROCESS_NONE);
    char *words[] = {(char[]){"banyan-no-such-program"}, NULL};
    const by__process_options options = {.words = words, .input = -1};
    assert_int_equal(by__process_start(&process, &options), ENOENT);
    assert_false(process.running);
}

/* SIGTERM, and SIGKILL once its grace is over. */
static void test_stop(void **state)
{
    by__process process;
    siginfo_t info;
    (void)state;
    start(&process, (char[]){"exec sleep 1000"});
    by__process_stop(&process, 1000.0);
    await(&process, 0.0);
    assert_int_equal(process.code, 128 + SIGTERM);
    /* It stops once it ignores SIGTERM. */
    start(&process, (char[]){"trap '' TERM; kill -STOP $$; exec sleep 1000"});
    assert_int_equal(waitid(P_PID, (id_t)process.pid, &info, WSTOPPED), 0);
    by__process_stop(&process, 1000.0);
    assert_int_equal(by__process_watch(&process, by__now()), BY__PROCESS_NONE);
    assert_false(process.killed);
    await(&process, process.due + 1.0);
    assert_true(process.killed);
    assert_int_equal(process.code, 128 + SIGKILL);
}

/* What it has started dies with it, and writes nothing any more. */
static void test_group(void **state)
{
    by__process process;
    int ends[2];
    char byte;
    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    char *words[] = {(char[]){"sh"}, (char[]){"-c"},
                     (char[]){"(echo began; sleep 20; echo late) & wait"}, NULL};
    const by__process_options options = {.words = words, .input = -1, .output = ends[1]};
    assert_int_equal(by__process_start(&process, &options), 0);
    (void)close(ends[1]);
    for (size_t i = 0; i < sizeof "began"; i++) {
        assert_int_equal(read(ends[0], &byte, 1), 1);
    }
    by__process_kill(&process);
    await(&process, 0.0);
    assert_int_equal(read(ends[0], &byte, 1), 0);
    (void)close(ends[0]);
}

/* One that SIGKILL does not end, as its end is never reported here, is reported as left. */
static void test_left(void **state)
{
    by__process process;
    (void)state;
    start(&process, (char[]){"exit 0"});
    assert_int_equal(waitpid(process.pid, NULL, 0), process.pid);
    by__process_kill(&process);
    assert_int_equal(by__process_watch(&process, by__now()), BY__PROCESS_NONE);
    double due = process.due;
    assert_int_equal(by__process_watch(&process, due), BY__PROCESS_LEFT);
    assert_true(process.running && process.due >= due);
    assert_int_equal(by__process_watch(&process, by__now()), BY__PROCESS_NONE);
}

/* A process that leaves others behind, one of them in a session of its own, has none left. */
static void test_descendants(void **state)
{
    by__process process;
    (void)state;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
    start(&process, (char[]){"trap '' TERM; setsid sleep 1000 & (sleep 1000 &) ; exit 7"});
    await(&process, 0.0);
    assert_true(by__process_kill_descendants(600.0));
    assert_int_equal(kill(-process.pid, 0), -1);
}

static void test_back_off(void **state)
{
    (void)state;
    assert_true(by__process_back_off(0.1, 10.0, 1) == 0.1);
    assert_true(by__process_back_off(0.1, 10.0, 3) == 0.4);
    assert_true(by__process_back_off(0.1, 10.0, 1000000) == 10.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes),    cmocka_unit_test(test_stop),
        cmocka_unit_test(test_left),     cmocka_unit_test(test_descendants),
        cmocka_unit_test(test_back_off), cmocka_unit_test(test_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
