#include "serve/worker/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

/* Numbers that older headers lack; all architectures share them. */
#define CLONE3         435
#define CLOSE_RANGE    436
#define OPENAT2        437
#define FACCESSAT2     439
#define EPOLL_PWAIT2   441
#define FUTEX_WAITV    449
#define FUTEX_WAKE2    454
#define FUTEX_WAIT2    455
#define FUTEX_REQUEUE2 456
#define SHADOW_STACK   453
#define MSEAL          462
/* The newest call of which it is known what it does (Linux 6.17): later ones are not there. */
#define NEWEST 469

/* ---- refused calls ---- */

/* The number of the last refused call + 1; 0: none. A signal handler can only communicate in this
 * way. */
static volatile sig_atomic_t refused;

/* What malloc (heaps and arenas) and libuv (a file to close when there are too many) look up late,
 * and do without. */
static bool is_harmless(int number, const char *path)
{
    static const char *const paths[] = {"/proc/sys/vm/overcommit_memory",
                                        "/sys/devices/system/cpu/online",
                                        "/proc/stat",
                                        "/proc/cpuinfo",
                                        "/dev/null",
                                        "/"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(paths) && number == SYS_openat; i++) {
        if (strcmp(path, paths[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* A refused call returns an error as if from the kernel. */
static void on_refused(int number, siginfo_t *info, void *context)
{
    ucontext_t *c = context;
    int call = info->si_syscall;
    long code = call > NEWEST ? -ENOSYS : -EPERM;
    BY_UNUSED(number);
#if defined(__x86_64__)
    const char *path = (const char *)c->uc_mcontext.gregs[REG_RSI];
    c->uc_mcontext.gregs[REG_RAX] = code;
#elif defined(__aarch64__)
    const char *path = (const char *)c->uc_mcontext.regs[1];
    c->uc_mcontext.regs[0] = (unsigned long long)code;
#else
#error "where does this machine return the value of a system call?"
#endif
    if (call <= NEWEST && !is_harmless(call, path)) {
        refused = call + 1;
    }
}

bool by__worker_sandbox_violation(char name[BY__SANDBOX_CALL])
{
    int number = refused - 1;
    if (number < 0) {
        return false;
    }
    refused = 0;
    char *known = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, number);
    if (known != NULL) {
        (void)snprintf(name, BY__SANDBOX_CALL, "%s", known);
    } else {
        (void)snprintf(name, BY__SANDBOX_CALL, "system call %d", number);
    }
    free(known);
    return true;
}

/* ---- the list ---- */

/* Calls that are allowed whatever their arguments: they act on this process, or on what it has
 * open. Calls that an architecture lacks have negative numbers here. */
static const int plain[] = {
    /* memory */
    SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(mincore),
    /* threads */
    SCMP_SYS(futex), SCMP_SYS(sched_yield), SCMP_SYS(sched_getaffinity), SCMP_SYS(getcpu),
    SCMP_SYS(sched_getparam), SCMP_SYS(sched_getscheduler), SCMP_SYS(set_robust_list),
    SCMP_SYS(set_tid_address), SCMP_SYS(rseq), SCMP_SYS(gettid), SCMP_SYS(membarrier),
    SCMP_SYS(exit), SCMP_SYS(exit_group), SCMP_SYS(restart_syscall),
    /* signals */
    SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigpending), SCMP_SYS(rt_sigtimedwait), SCMP_SYS(rt_sigsuspend),
    SCMP_SYS(sigaltstack), SCMP_SYS(pause),
    /* time */
    SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres), SCMP_SYS(clock_nanosleep), SCMP_SYS(nanosleep),
    SCMP_SYS(gettimeofday), SCMP_SYS(time), SCMP_SYS(times), SCMP_SYS(getrusage),
    /* what is open */
    SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(readv), SCMP_SYS(writev), SCMP_SYS(pread64),
    SCMP_SYS(pwrite64), SCMP_SYS(lseek), SCMP_SYS(ftruncate), SCMP_SYS(fstat), SCMP_SYS(flock),
    SCMP_SYS(close), SCMP_SYS(dup), SCMP_SYS(dup2), SCMP_SYS(dup3), SCMP_SYS(pipe), SCMP_SYS(pipe2),
    SCMP_SYS(eventfd2), SCMP_SYS(epoll_create1), SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait), SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(select), SCMP_SYS(pselect6),
    SCMP_SYS(recvmsg), SCMP_SYS(recvfrom), SCMP_SYS(shutdown), SCMP_SYS(getsockopt),
    SCMP_SYS(getsockname), SCMP_SYS(getpeername),
    /* facts about this process and the machine */
    SCMP_SYS(getpid), SCMP_SYS(getppid), SCMP_SYS(getuid), SCMP_SYS(geteuid), SCMP_SYS(getgid),
    SCMP_SYS(getegid), SCMP_SYS(getrlimit), SCMP_SYS(uname), SCMP_SYS(sysinfo),
    SCMP_SYS(getrandom)};

/* Calls that a library tries before an older one that does, or that it does without. */
static const int absent[] = {
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(io_uring_enter),
    SCMP_SYS(io_uring_register),
    CLONE3, /* its flags are behind a pointer, which a filter cannot follow */
    OPENAT2,
    CLOSE_RANGE,
    FACCESSAT2,
    EPOLL_PWAIT2,
    FUTEX_WAITV,
    FUTEX_WAKE2,
    FUTEX_WAIT2,
    FUTEX_REQUEUE2,
    SHADOW_STACK,
    MSEAL};

#define MOST_TERMS 3
#define INT        UINT64_C(0xffffffff)
#define ALL        UINT64_MAX

/* The argument `index` has `value` in the bits of `mask`; mask 0: always so. */
typedef struct term {
    unsigned index;
    uint64_t mask;
    uint64_t value;
} term;

/* A call that is allowed if all terms hold. A call with several rules is allowed by any of them. */
typedef struct rule {
    int call;
    term terms[MOST_TERMS];
} rule;

/* What the C library gives a thread, and may give it. */
#define THREAD (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)
#define THREAD_TOO                                                                                 \
    (CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID |              \
     CLONE_DETACHED)
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif
/* Advice that punches holes into files or makes memory bad is not here. */
#define ADVICE(value)                                                                              \
    {                                                                                              \
        SCMP_SYS(madvise),                                                                         \
        {                                                                                          \
            {                                                                                      \
                2, INT, value                                                                      \
            }                                                                                      \
        }                                                                                          \
    }
#define OPTION(level, name)                                                                        \
    {                                                                                              \
        SCMP_SYS(setsockopt),                                                                      \
        {                                                                                          \
            {1, INT, level},                                                                       \
            {                                                                                      \
                2, INT, name                                                                       \
            }                                                                                      \
        }                                                                                          \
    }

static const rule rules[] = {
    /* No new code: memory that is executable is the program's and its libraries'. */
    {SCMP_SYS(mmap), {{2, PROT_EXEC, 0}}},
    {SCMP_SYS(mprotect), {{2, PROT_EXEC, 0}}},
    ADVICE(MADV_NORMAL),
    ADVICE(MADV_RANDOM),
    ADVICE(MADV_SEQUENTIAL),
    ADVICE(MADV_WILLNEED),
    ADVICE(MADV_DONTNEED),
    ADVICE(MADV_FREE),
    ADVICE(MADV_HUGEPAGE),
    ADVICE(MADV_NOHUGEPAGE),
    ADVICE(MADV_DONTDUMP),
    ADVICE(22), /* MADV_POPULATE_READ, and MADV_POPULATE_WRITE */
    ADVICE(23),
    ADVICE(102), /* MADV_GUARD_INSTALL, and MADV_GUARD_REMOVE: stacks of threads */
    ADVICE(103),
    {SCMP_SYS(clone), {{0, ~(uint64_t)THREAD_TOO, THREAD}}},
    {SCMP_SYS(sched_setaffinity), {{0, INT, 0}}},
    {SCMP_SYS(prctl), {{0, INT, PR_SET_NAME}}},
    {SCMP_SYS(prctl), {{0, INT, PR_GET_NAME}}},
    {SCMP_SYS(prctl), {{0, INT, PR_SET_VMA}}},
    {SCMP_SYS(arch_prctl), {{0, INT, 0x1022}}}, /* ARCH_GET_XCOMP_PERM, and ARCH_REQ_XCOMP_PERM */
    {SCMP_SYS(arch_prctl), {{0, INT, 0x1023}}},
    {SCMP_SYS(prlimit64), {{0, INT, 0}, {2, ALL, 0}}},
    {SCMP_SYS(fcntl), {{1, INT, F_GETFD}}},
    {SCMP_SYS(fcntl), {{1, INT, F_SETFD}}},
    {SCMP_SYS(fcntl), {{1, INT, F_GETFL}}},
    {SCMP_SYS(fcntl), {{1, INT, F_SETFL}}},
    {SCMP_SYS(fcntl), {{1, INT, F_DUPFD_CLOEXEC}}},
    {SCMP_SYS(ioctl), {{1, INT, FIONBIO}}},
    {SCMP_SYS(ioctl), {{1, INT, FIONREAD}}},
    {SCMP_SYS(ioctl), {{1, INT, FIOCLEX}}},
    {SCMP_SYS(ioctl), {{1, INT, TCGETS}}},
    /* The state of an open file; with a path it would be that of any. */
    {SCMP_SYS(newfstatat), {{3, AT_EMPTY_PATH, AT_EMPTY_PATH}}},
    /* A connection has its address: none is given, and none is opened by the first data. */
    {SCMP_SYS(sendto), {{3, MSG_FASTOPEN, 0}, {4, ALL, 0}}},
    {SCMP_SYS(sendmsg), {{2, MSG_FASTOPEN, 0}}},
    OPTION(SOL_SOCKET, SO_REUSEADDR),
    OPTION(SOL_SOCKET, SO_KEEPALIVE),
    OPTION(SOL_SOCKET, SO_RCVTIMEO),
    OPTION(SOL_SOCKET, SO_SNDTIMEO),
    OPTION(IPPROTO_TCP, TCP_NODELAY),
    OPTION(IPPROTO_TCP, TCP_KEEPIDLE),
    OPTION(IPPROTO_TCP, TCP_KEEPINTVL),
    OPTION(IPPROTO_TCP, TCP_KEEPCNT),
    OPTION(IPPROTO_TCP, TCP_USER_TIMEOUT)};

#define TYPE ((uint64_t)0xf) /* of a socket, beside its flags */

/* With Redis: connections by TCP. */
static const rule network[] = {{SCMP_SYS(socket), {{0, INT, AF_INET}, {1, TYPE, SOCK_STREAM}}},
                               {SCMP_SYS(socket), {{0, INT, AF_INET6}, {1, TYPE, SOCK_STREAM}}},
                               {SCMP_SYS(connect), {{0, 0, 0}}}};

/* Landlock says which files. */
static const rule opening[] = {{SCMP_SYS(openat), {{2, O_CREAT | O_TRUNC, 0}}}};

/* ---- the filter ---- */

static int allow(scmp_filter_ctx filter, const rule *list, size_t count)
{
    int code = 0;
    for (size_t i = 0; i < count && code == 0; i++) {
        struct scmp_arg_cmp terms[MOST_TERMS];
        unsigned used = 0;
        for (size_t k = 0; k < MOST_TERMS; k++) {
            const term *t = &list[i].terms[k];
            if (t->mask != 0) {
                terms[used++] =
                    (struct scmp_arg_cmp){t->index, SCMP_CMP_MASKED_EQ, t->mask, t->value};
            }
        }
        /* negative: this architecture lacks the call */
        code = list[i].call < 0
                   ? 0
                   : seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, list[i].call, used, terms);
    }
    return code;
}

/* io_uring runs calls that no filter sees. libuv from 1.49 on would make a ring for each event
 * loop. */
static int add_absent(scmp_filter_ctx filter, size_t count)
{
    int code = 0;
    for (size_t i = 0; i < count && code == 0; i++) {
        code = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), absent[i], 0);
    }
    return code;
}

/* Signals may be sent to this process only. */
static int add_signals(scmp_filter_ctx filter)
{
    static const int calls[] = {SCMP_SYS(kill), SCMP_SYS(tgkill), SCMP_SYS(rt_sigqueueinfo),
                                SCMP_SYS(rt_tgsigqueueinfo)};
    int code = 0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(calls) && code == 0; i++) {
        const rule self = {calls[i], {{0, INT, (uint64_t)getpid()}}};
        code = allow(filter, &self, 1);
    }
    return code;
}

/* Loads a filter for all threads and frees it; code: what adding its rules returned. */
static by_status load(scmp_filter_ctx filter, int code, by_error *error)
{
    code = code != 0 ? code : seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    code = code != 0 ? code : seccomp_load(filter);
    seccomp_release(filter);
    return code == 0 ? BY_OK
                     : by_error_set(error, BY_ESTATE,
                                    "cannot set up the sandbox of the worker (%s): run it where "
                                    "seccomp is allowed, or add --no-sandbox",
                                    uv_strerror(code));
}

/* A worker of root is none in what it could still do. It cannot fail. */
static void drop_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
    (void)syscall(SYS_capset, &header, none);
}

by_status by__worker_sandbox_prepare(const by__worker_sandbox *sandbox, int *version,
                                     by_error *error)
{
    const by__worker_landlock files = {.port = sandbox->port, .devices = sandbox->devices};
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (filter == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a sandbox");
    }
    /* Reads the file of the time zone, for templates that tell the time. */
    tzset();
    BY_TRY(load(filter, add_absent(filter, 3), error));
    BY_TRY(by__worker_landlock_enter(version, &files, error));
    if (sandbox->devices != NULL && *version == 0) {
        return by_error_set(error, BY_ESTATE,
                            "the sandbox of a worker on this device needs Landlock (Linux 5.13), "
                            "which this kernel lacks or has disabled: add --no-sandbox");
    }
    drop_capabilities();
    return BY_OK;
}

by_status by__worker_sandbox_enter(const by__worker_sandbox *sandbox, by_error *error)
{
    struct sigaction action = {.sa_sigaction = on_refused, .sa_flags = SA_SIGINFO | SA_RESTART};
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_TRAP);
    if (filter == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a sandbox");
    }
    int code = sigaction(SIGSYS, &action, NULL) == 0 ? 0 : -errno;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(plain) && code == 0; i++) {
        code = seccomp_rule_add(filter, SCMP_ACT_ALLOW, plain[i], 0);
    }
    code = code != 0 ? code : allow(filter, rules, BY_ARRAY_LENGTH(rules));
    code = code != 0 ? code : add_signals(filter);
    code = code != 0 ? code : add_absent(filter, BY_ARRAY_LENGTH(absent));
    /* GNU OpenMP pins a new thread if it is told to, and ends the process if it cannot. A filter
     * does not know which threads are those of this process: the call is left out. */
    const struct scmp_arg_cmp other = {0, SCMP_CMP_NE, 0, 0};
    code = code != 0 ? code
                     : seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(0),
                                              SCMP_SYS(sched_setaffinity), 1, &other);
    if (code == 0 && sandbox->port != 0) {
        code = allow(filter, network, BY_ARRAY_LENGTH(network));
    }
    if (code == 0 && sandbox->devices != NULL) {
        code = allow(filter, opening, BY_ARRAY_LENGTH(opening));
    }
    /* A tree of comparisons instead of a chain, where the library can. */
    (void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    return load(filter, code, error);
}
