/* A training step asks nothing of the system: no memory, no files, no clock. After two steps a
 * filter is laid over all threads of the process (seccomp(2)) under which every system call is
 * refused and counted, but for those with which threads wait for each other. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "trainer/state/trainer.h"

#define CONTEXT 64
#define BATCH   8

typedef struct counts {
    _Atomic int refused;
    _Atomic int last; /* number of the last call that was refused */
} counts;

static counts *shared; /* by the child that is measured and the parent that checks */

static void refused(int signal, siginfo_t *info, void *context)
{
    BY_UNUSED(signal);
    BY_UNUSED(context);
    shared->refused++;
    shared->last = info->si_syscall;
}

static bool refuse_calls(void)
{
    static const unsigned allowed[] = {SYS_futex, SYS_sched_yield, SYS_rt_sigreturn,
                                       SYS_exit_group};
    struct sock_filter filter[2 * BY_ARRAY_LENGTH(allowed) + 2];
    unsigned short n = 0;
    filter[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < BY_ARRAY_LENGTH(allowed); i++) {
        filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
        filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    struct sock_fprog program = {.len = n, .filter = filter};
    struct sigaction action = {.sa_sigaction = refused, .sa_flags = SA_SIGINFO};
    return sigaction(SIGSYS, &action, NULL) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

/* In the child. Exit status 0: measured. */
static int measure(const char *const *settings, size_t count, bool call)
{
    static int32_t tokens[BATCH * CONTEXT];
    by_error error = {0};
    by_config *config;
    by_trainer *trainer;
    by_step_result result;
    if (by_config_default(&config, &error) != BY_OK) {
        return 1;
    }
    for (size_t i = 0; i < count; i++) {
        if (by_config_set(config, settings[i], &error) != BY_OK) {
            return 2;
        }
    }
    if (by_config_resolve(config, &error) != BY_OK ||
        by_trainer_open(&trainer, config, NULL, &error) != BY_OK ||
        by_trainer_allocate(trainer, &error) != BY_OK ||
        by_trainer_initialize(trainer, &error) != BY_OK) {
        return 3;
    }
    for (int i = 0; i < BATCH * CONTEXT; i++) {
        tokens[i] = i * 7 % 31;
    }
    by_array arrays[2];
    by_batch batch = by_batch_of_tokens(arrays, tokens, tokens, BATCH, CONTEXT);
    for (int step = 0; step < 5; step++) {
        if (step == 2 && !refuse_calls()) {
            return 4;
        }
        if (by_trainer_step(trainer, &batch, &result, &error) != BY_OK) {
            return 5;
        }
    }
    if (call) {
        (void)syscall(SYS_getppid);
    }
    return 0;
}

/* Calls refused during three steps with these settings. */
static int count_calls(const char *const *settings, size_t count, bool call)
{
    int status = 0;
    *shared = (counts){0};
    pid_t child = fork();
    if (child == 0) {
        /* Not _exit: sanitizers look for leaks there, with system calls. */
        (void)syscall(SYS_exit_group, measure(settings, count, call));
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    if (shared->refused > 0) {
        print_message("%d calls refused, the last of them number %d\n", shared->refused,
                      shared->last);
    }
    return shared->refused;
}

#define COMMON                                                                                     \
    "model.layers=2", "model.heads=2", "model.width=64", "model.context=64", "model.vocab=31",     \
        "train.batch=8", "train.threads=2"

static void test_step(void **state)
{
    BY_UNUSED(state);
    static const char *const gpt2[] = {COMMON, "model.kind=gpt2", "model.dropout=0.1"};
    static const char *const llama[] = {COMMON, "model.kind=llama", "precision.compute=bf16",
                                        "train.micro_batch=2", "memory.recompute=block"};
    assert_int_equal(count_calls(gpt2, BY_ARRAY_LENGTH(gpt2), false), 0);
    assert_int_equal(count_calls(llama, BY_ARRAY_LENGTH(llama), false), 0);
}

/* That the filter sees a call when there is one. */
static void test_filter(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {COMMON, "model.kind=gpt2"};
    assert_int_equal(count_calls(settings, BY_ARRAY_LENGTH(settings), true), 1);
    assert_int_equal(shared->last, SYS_getppid);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_step),
                                              cmocka_unit_test(test_filter)};
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
