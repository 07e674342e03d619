#include "serve/worker/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* The number of the last refused call + 1; 0: none. A signal handler can only communicate in this
 * way. */
static volatile sig_atomic_t refused;

/* A refused call returns -EPERM, as if from the kernel. */
static void on_refused(int number, siginfo_t *info, void *context)
{
    ucontext_t *c = context;
    BY_UNUSED(number);
    refused = info->si_syscall + 1;
#if defined(__x86_64__)
    c->uc_mcontext.gregs[REG_RAX] = -EPERM;
#elif defined(__aarch64__)
    c->uc_mcontext.regs[0] = (unsigned long long)-EPERM;
#else
#error "where does this machine return the value of a system call?"
#endif
}

const char *by__sandbox_violation(void)
{
    static const struct {
        int number;
        const char *name;
    } names[] = {{SYS_execve, "execve"}, {SYS_execveat, "execveat"}, {SYS_clone, "clone"},
                 {SYS_socket, "socket"}, {SYS_bind, "bind"},         {SYS_openat, "openat"},
                 {SYS_ptrace, "ptrace"}, {SYS_kill, "kill"}};
    int number = refused - 1;
    if (number < 0) {
        return NULL;
    }
    refused = 0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        if (names[i].number == number) {
            return names[i].name;
        }
    }
    return "a system call";
}

/* ---- the filter ---- */

/* Calls that are refused whatever their arguments. Calls that an architecture lacks have negative
 * numbers here. */
static const int forbidden[] = {
    /* programs and processes */
    SCMP_SYS(execve), SCMP_SYS(execveat), SCMP_SYS(fork), SCMP_SYS(vfork), SCMP_SYS(ptrace),
    SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev), SCMP_SYS(pidfd_open),
    SCMP_SYS(pidfd_getfd), SCMP_SYS(pidfd_send_signal), SCMP_SYS(tkill),
    /* other machines, as a server */
    SCMP_SYS(bind), SCMP_SYS(listen), SCMP_SYS(accept), SCMP_SYS(accept4),
    /* the file system */
    SCMP_SYS(creat), SCMP_SYS(mkdir), SCMP_SYS(mkdirat), SCMP_SYS(rmdir), SCMP_SYS(unlink),
    SCMP_SYS(unlinkat), SCMP_SYS(rename), SCMP_SYS(renameat), SCMP_SYS(renameat2), SCMP_SYS(link),
    SCMP_SYS(linkat), SCMP_SYS(symlink), SCMP_SYS(symlinkat), SCMP_SYS(truncate), SCMP_SYS(mknod),
    SCMP_SYS(mknodat), SCMP_SYS(chmod), SCMP_SYS(fchmod), SCMP_SYS(fchmodat), SCMP_SYS(chown),
    SCMP_SYS(fchown), SCMP_SYS(lchown), SCMP_SYS(fchownat), SCMP_SYS(setxattr), SCMP_SYS(fsetxattr),
    SCMP_SYS(lsetxattr), SCMP_SYS(mount), SCMP_SYS(umount2), SCMP_SYS(pivot_root), SCMP_SYS(chroot),
    SCMP_SYS(open_by_handle_at), SCMP_SYS(open_tree), SCMP_SYS(move_mount), SCMP_SYS(fsopen),
    SCMP_SYS(fsconfig), SCMP_SYS(fsmount), SCMP_SYS(mount_setattr), SCMP_SYS(memfd_create),
    SCMP_SYS(removexattr), SCMP_SYS(fremovexattr), SCMP_SYS(lremovexattr), SCMP_SYS(utimensat),
    SCMP_SYS(utimes), SCMP_SYS(utime), SCMP_SYS(futimesat),
    /* objects that outlive a process */
    SCMP_SYS(shmget), SCMP_SYS(msgget), SCMP_SYS(semget), SCMP_SYS(mq_open), SCMP_SYS(mq_unlink),
    /* privileges, and the kernel */
    SCMP_SYS(setuid), SCMP_SYS(setgid), SCMP_SYS(setreuid), SCMP_SYS(setregid), SCMP_SYS(setresuid),
    SCMP_SYS(setresgid), SCMP_SYS(setgroups), SCMP_SYS(setfsuid), SCMP_SYS(setfsgid),
    SCMP_SYS(setrlimit), SCMP_SYS(process_madvise), SCMP_SYS(process_mrelease), SCMP_SYS(capset),
    SCMP_SYS(setns), SCMP_SYS(unshare), SCMP_SYS(bpf), SCMP_SYS(perf_event_open),
    SCMP_SYS(userfaultfd), SCMP_SYS(keyctl), SCMP_SYS(add_key), SCMP_SYS(request_key),
    SCMP_SYS(kexec_load), SCMP_SYS(kexec_file_load), SCMP_SYS(init_module), SCMP_SYS(finit_module),
    SCMP_SYS(delete_module), SCMP_SYS(reboot), SCMP_SYS(swapon), SCMP_SYS(swapoff), SCMP_SYS(iopl),
    SCMP_SYS(ioperm), SCMP_SYS(sethostname), SCMP_SYS(setdomainname), SCMP_SYS(settimeofday),
    SCMP_SYS(clock_settime), SCMP_SYS(quotactl), SCMP_SYS(syslog), SCMP_SYS(acct)};

/* io_uring runs calls that no filter sees. Its three calls fail as on a kernel without it, on which
 * libraries then do without: libuv from 1.49 on would make a ring for each event loop. */
static int add_ring_rules(scmp_filter_ctx filter)
{
    static const int rings[] = {SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter),
                                SCMP_SYS(io_uring_register)};
    int code = 0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rings) && code == 0; i++) {
        code = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), rings[i], 0);
    }
    return code;
}

/* Refuses a call if its argument at `index` equals `value` in the bits of `mask`. */
static int refuse_masked(scmp_filter_ctx filter, int call, unsigned index, uint64_t mask,
                         uint64_t value)
{
    return seccomp_rule_add(filter, SCMP_ACT_TRAP, call, 1,
                            SCMP_CMP(index, SCMP_CMP_MASKED_EQ, mask, value));
}

static int add_file_rules(scmp_filter_ctx filter)
{
    static const struct {
        uint64_t mask;
        uint64_t value;
    } writes[] = {
        {O_ACCMODE, O_WRONLY}, {O_ACCMODE, O_RDWR}, {O_CREAT, O_CREAT}, {O_TRUNC, O_TRUNC}};
    int code = 0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(writes) && code == 0; i++) {
#ifdef SYS_open
        code = refuse_masked(filter, SCMP_SYS(open), 1, writes[i].mask, writes[i].value);
#endif
        if (code == 0) {
            code = refuse_masked(filter, SCMP_SYS(openat), 2, writes[i].mask, writes[i].value);
        }
    }
    /* Its flags are behind a pointer, which a filter cannot follow: it is reported as not
     * implemented. */
    return code == 0 ? seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(openat2), 0)
                     : code;
}

static int add_process_rules(scmp_filter_ctx filter)
{
    uint64_t self = (uint64_t)getpid();
    /* Threads may be created; clone3 hides its flags, and the C library then falls back to
     * clone. */
    int code = refuse_masked(filter, SCMP_SYS(clone), 0, CLONE_THREAD, 0);
    code = code != 0 ? code : seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    /* Signals may be sent to this process only, */
    static const int signals[] = {SCMP_SYS(kill), SCMP_SYS(tgkill), SCMP_SYS(rt_sigqueueinfo),
                                  SCMP_SYS(rt_tgsigqueueinfo)};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(signals) && code == 0; i++) {
        code =
            seccomp_rule_add(filter, SCMP_ACT_TRAP, signals[i], 1, SCMP_A0_32(SCMP_CMP_NE, self));
    }
    /* also not through a file descriptor that signals any process of the user. */
    static const struct {
        int call;
        uint64_t command;
    } owners[] = {{SCMP_SYS(fcntl), F_SETOWN},
                  {SCMP_SYS(fcntl), F_SETOWN_EX},
                  {SCMP_SYS(fcntl), F_SETSIG},
                  {SCMP_SYS(ioctl), FIOSETOWN},
                  {SCMP_SYS(ioctl), SIOCSPGRP}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(owners) && code == 0; i++) {
        code = seccomp_rule_add(filter, SCMP_ACT_TRAP, owners[i].call, 1,
                                SCMP_A1_32(SCMP_CMP_EQ, owners[i].command));
    }
    /* A new thread reads limits; setting those of another process could end it. */
    return code != 0 ? code
                     : seccomp_rule_add(filter, SCMP_ACT_TRAP, SCMP_SYS(prlimit64), 1,
                                        SCMP_A2_64(SCMP_CMP_NE, 0));
}

/* Allows local sockets, and internet sockets if `network`; the C library lists interfaces through a
 * netlink socket before it resolves names. A rule compares an argument once, so each refused family
 * has its own rule. */
static int add_socket_rules(scmp_filter_ctx filter, bool network)
{
    int code = seccomp_rule_add(filter, SCMP_ACT_TRAP, SCMP_SYS(socket), 1,
                                SCMP_A0_32(SCMP_CMP_GT, network ? AF_NETLINK : AF_UNIX));
    for (unsigned family = 0; family < AF_NETLINK && code == 0; family++) {
        bool allowed = family == AF_UNIX || family == AF_INET || family == AF_INET6;
        if (!allowed && (network || family < AF_UNIX)) {
            code = seccomp_rule_add(filter, SCMP_ACT_TRAP, SCMP_SYS(socket), 1,
                                    SCMP_A0_32(SCMP_CMP_EQ, family));
        }
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

by_status by__sandbox_prepare(by_error *error)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (filter == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a sandbox");
    }
    return load(filter, add_ring_rules(filter), error);
}

by_status by__sandbox_enter(bool network, by_error *error)
{
    struct sigaction action = {.sa_sigaction = on_refused, .sa_flags = SA_SIGINFO | SA_RESTART};
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (filter == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a sandbox");
    }
    int code = sigaction(SIGSYS, &action, NULL) == 0 ? 0 : -errno;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(forbidden) && code == 0; i++) {
        code = seccomp_rule_add(filter, SCMP_ACT_TRAP, forbidden[i], 0);
    }
    code = code != 0 ? code : add_ring_rules(filter);
    code = code != 0 ? code : add_file_rules(filter);
    code = code != 0 ? code : add_process_rules(filter);
    code = code != 0 ? code : add_socket_rules(filter, network);
    return load(filter, code, error);
}
