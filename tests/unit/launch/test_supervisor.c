/* The supervisor's parts: messages, host files, the launch line, what follows a failure, and which
 * rank is at fault. Whole jobs are in tests/fault. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/supervisor.h"

/* ---- messages ---- */

static void assert_round_trip(const by__launch_message *m)
{
    char line[BY__MESSAGE_LINE];
    by__launch_message back;
    size_t length = by__launch_message_format(line, m);
    assert_int_equal(line[length - 1], '\n');
    assert_true(by__launch_message_parse(&back, line, length - 1));
    assert_int_equal(back.kind, m->kind);
    assert_int_equal(back.rank, m->rank);
    assert_int_equal(back.ranks, m->ranks);
    assert_int_equal(back.pid, m->pid);
    assert_int_equal(back.count, m->count);
    assert_int_equal(back.number, m->number);
    assert_int_equal(back.step, m->step);
    assert_int_equal(back.stopping, m->stopping);
    assert_int_equal(back.code, m->code);
    assert_int_equal(back.malformed, m->malformed);
    assert_string_equal(back.token, m->token);
    assert_string_equal(back.host, m->host);
    assert_string_equal(back.phase, m->phase);
    assert_string_equal(back.text, m->text);
    assert_string_equal(back.path, m->path);
}

static void test_messages(void **state)
{
    (void)state;
    assert_round_trip(&(by__launch_message){.kind = BY__MESSAGE_HELLO,
                                            .token = "0123",
                                            .rank = 3,
                                            .ranks = 4,
                                            .pid = 77,
                                            .host = "n1"});
    assert_round_trip(&(by__launch_message){.kind = BY__MESSAGE_BEAT,
                                            .count = UINT64_MAX,
                                            .step = INT64_MAX,
                                            .number = 9,
                                            .stopping = true,
                                            .phase = "save",
                                            .text = "all-reduce 8 \"h.3\""});
    assert_round_trip(&(by__launch_message){.kind = BY__MESSAGE_RUN, .path = "runs/a b"});
    assert_round_trip(&(by__launch_message){.kind = BY__MESSAGE_SAVED, .step = 10});
    assert_round_trip(&(by__launch_message){.kind = BY__MESSAGE_END, .code = 137, .text = ""});
    assert_round_trip(&(by__launch_message){
        .kind = BY__MESSAGE_END, .code = 1, .malformed = true, .text = "wrong"});
    /* A text cannot forge a second message or field. */
    by__launch_message forged = {.kind = BY__MESSAGE_END, .code = 1, .text = "a\tb\nsaved\t9"};
    char line[BY__MESSAGE_LINE];
    size_t length = by__launch_message_format(line, &forged);
    assert_ptr_equal(memchr(line, '\n', length), line + length - 1);
    assert_true(by__launch_message_parse(&forged, line, length - 1));
    assert_string_equal(forged.text, "a b saved 9");
}

static void test_messages_refused(void **state)
{
    static const char *const wrong[] = {
        "",
        "hello",
        "hello\tt\t4\t4\t1\th",  /* rank 4 of 4 */
        "hello\tt\t-1\t4\t1\th", /* a negative number */
        "hello\tt\t0\t4\t1\th\tmore",
        "hello\t0123456789012345678901234567890123\t0\t1\t1\th", /* a longer token than any */
        "beat\t1\t2\t3\t2\tp\tt",                                /* stopping is 0 or 1 */
        "beat\t99999999999999999999\t2\t3\t0\tp\tt",
        "saved\t9223372036854775808",
        "end\t256\t0\tx",
        "end\t1\t2\tx", /* malformed is 0 or 1 */
        "end\t1\tx",
        "END\t1\t0\tx",
    };
    by__launch_message m;
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(wrong); i++) {
        if (by__launch_message_parse(&m, wrong[i], strlen(wrong[i]))) {
            fail_msg("accepted: %s", wrong[i]);
        }
    }
    assert_false(by__launch_message_parse(&m, "run\ta\0b", 7));
}

static void test_contact(void **state)
{
    char text[256];
    by__launch_contact back;
    const by__launch_contact contact = {.token = "abcd",
                                        .port = 65535,
                                        .silence_ms = 60000,
                                        .grace_ms = 30000,
                                        .addresses = {"10.0.0.1", "127.0.0.1"},
                                        .address_count = 2};
    (void)state;
    assert_true(by__launch_contact_format(text, sizeof text, &contact) < sizeof text);
    assert_true(by__launch_contact_parse(&back, text));
    assert_memory_equal(&back, &contact, sizeof back);
    assert_false(by__launch_contact_parse(&back, ""));
    assert_false(by__launch_contact_parse(&back, "abcd;65536;1;1;10.0.0.1"));
    assert_false(by__launch_contact_parse(&back, "abcd;1;1;1;"));
    assert_false(by__launch_contact_parse(&back, "abcd;1;0;1;10.0.0.1"));
}

/* ---- host files ---- */

static by_status parse_hosts(by_host_list *out, const char *text, by_error *error)
{
    return by__launch_hosts_parse(out, "hosts", text, strlen(text), error);
}

static void test_host_file(void **state)
{
    by_host_list hosts;
    by_error error = {0};
    (void)state;
    assert_int_equal(parse_hosts(&hosts,
                                 "# the cluster\n\n n1 slots=4 # big\nn2.lan\t max-slots=9\nn1 "
                                 "slots=2",
                                 &error),
                     BY_OK);
    assert_int_equal(hosts.count, 2);
    assert_string_equal(hosts.items[0].name, "n1");
    assert_int_equal(hosts.items[0].slots, 6);
    assert_string_equal(hosts.items[1].name, "n2.lan");
    assert_int_equal(hosts.items[1].slots, 1);
    by_hosts_free(&hosts);
    assert_int_equal(parse_hosts(&hosts, "a\nb slots=0\n", &error), BY_ECONFIG);
    assert_string_equal(error.message, "hosts:2: 'slots=0' is not 'slots=N' with N from 1 to 4096");
    assert_int_equal(parse_hosts(&hosts, "a;reboot\n", &error), BY_ECONFIG);
    assert_int_equal(parse_hosts(&hosts, "-oProxyCommand=x\n", &error), BY_ECONFIG);
    assert_int_equal(parse_hosts(&hosts, "# none\n", &error), BY_ECONFIG);
    assert_int_equal(by_hosts_read(&hosts, "/nonexistent", &error), BY_ECONFIG);
}

/* ---- the launch line ---- */

static void assert_line(const by_launch_options *options, const by_launch_facts *facts,
                        const char *wanted)
{
    by_launch_line line;
    by_error error = {0};
    char *text;
    if (by_launch_line_make(&line, options, facts, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(by_launch_line_print(&text, &line, NULL), BY_OK);
    assert_string_equal(text, wanted);
    free(text);
    by_launch_line_free(&line);
}

static void test_launch_line(void **state)
{
    char train[] = "train";
    char name[] = "it's.yaml";
    char *command[] = {train, name};
    by_host hosts[] = {{"n1", 4}, {"n2", 4}};
    by_launch_facts facts = {.cores = 8, .single_copy = true};
    by_launch_options o = {.ranks = 1, .program = "banyan", .command = command, .command_count = 2};
    (void)state;
    assert_line(&o, &facts, "OMP_NUM_THREADS=8 banyan train 'it'\\''s.yaml'");
    o.command_count = 1;
    o.ranks = 4;
    assert_line(&o, &facts,
                "OMP_NUM_THREADS=2 mpirun -n 4 --map-by slot:PE=2 --bind-to core "
                "-x OMP_NUM_THREADS banyan train");
    /* More ranks than cores; a container that forbids reading other processes; root. */
    facts = (by_launch_facts){.cores = 2, .root = true};
    assert_line(&o, &facts,
                "OMP_NUM_THREADS=1 mpirun -n 4 --bind-to none --oversubscribe --mca "
                "mpi_yield_when_idle 1 --mca btl_vader_single_copy_mechanism none "
                "--allow-run-as-root -x OMP_NUM_THREADS banyan train");
    /* A bundle's mpirun, on a host without ssh. */
    facts = (by_launch_facts){.cores = 8,
                              .single_copy = true,
                              .no_shell = true,
                              .mpirun = "/b/lib/banyan/mpi/bin/mpirun"};
    assert_line(&o, &facts,
                "OMP_NUM_THREADS=2 /b/lib/banyan/mpi/bin/mpirun -n 4 --map-by slot:PE=2 --bind-to "
                "core --mca plm isolated -x OMP_NUM_THREADS banyan train");
    /* Two hosts, six ranks: four on the first; a quota is time on any core, so nothing is bound. */
    facts =
        (by_launch_facts){.cores = 8, .quota = true, .single_copy = true, .network = "10.0.0.0/24"};
    o.ranks = 6;
    o.hosts = (by_host_list){hosts, 2};
    o.watched = true;
    assert_line(&o, &facts,
                "OMP_NUM_THREADS=2 mpirun -n 6 --host n1:4,n2:2 --bind-to none --mca "
                "btl_tcp_if_include 10.0.0.0/24 --mca oob_tcp_if_include 10.0.0.0/24 "
                "-x OMP_NUM_THREADS --mca orte_abort_on_non_zero_status 0 --mca "
                "state_base_error_non_zero_exit 0 -x BANYAN_SUPERVISOR "
                "banyan train");
    o.ranks = 9;
    by_launch_line line;
    by_error error = {0};
    assert_int_equal(by_launch_line_make(&line, &o, &facts, &error), BY_ECONFIG);
    assert_non_null(strstr(error.message, "9 ranks are requested, but the hosts have 8 slots"));
}

/* ---- what follows ---- */

static void test_policy(void **state)
{
    const by__launch_policy policy = {.max_restarts = 4, .host_faults = 3, .back_off = 1.0};
    by__launch_history h = {.saved = -1};
    (void)state;
    assert_false(by__launch_policy_decide(&h, &policy, BY_EXIT_CONFIG, -1).restart);
    assert_false(by__launch_policy_decide(&h, &policy, BY_EXIT_SAVED, 10).restart);
    assert_false(by__launch_policy_decide(&h, &policy, BY_EXIT_INTERRUPTED, -1).restart);
    by__launch_decision d = by__launch_policy_decide(&h, &policy, 139, 10);
    assert_true(d.restart && !d.older);
    assert_true(d.delay == 1.0);
    assert_true(by__launch_policy_decide(&h, &policy, BY_EXIT_HANG, -1).delay == 2.0);
    /* Three failures behind step 10: an older checkpoint. That step 10 is written again then is no
     * progress. */
    d = by__launch_policy_decide(&h, &policy, BY_EXIT_FAILED, -1);
    assert_true(d.restart && d.older);
    assert_true(by__launch_policy_decide(&h, &policy, BY_EXIT_FAILED, 10).delay == 8.0);
    assert_false(by__launch_policy_decide(&h, &policy, BY_EXIT_FAILED, 10).restart);
    /* A checkpoint that is newer than all before resets the limit and the pause. */
    d = by__launch_policy_decide(&h, &policy, BY_EXIT_FAILED, 11);
    assert_true(d.restart && !d.older);
    assert_true(d.delay == 1.0);
    /* The pause has a limit. */
    const by__launch_policy patient = {.max_restarts = 1000, .back_off = 1.0};
    for (int i = 0; i < 20; i++) {
        d = by__launch_policy_decide(&h, &patient, BY_EXIT_FAILED, -1);
    }
    assert_true(d.delay == BY__BACK_OFF_MAX);
}

/* ---- the watch ---- */

static void open_watch(by__launch_watch *w, int ranks)
{
    assert_int_equal(by__launch_watch_open(w, true, 60.0, 10.0, NULL), BY_OK);
    assert_int_equal(by__launch_watch_reset(w, ranks, NULL), BY_OK);
}

/* A rank that says what a test wants it to. */
static int connect_to(const by__launch_watch *w)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)w->contact.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void say(int fd, by__launch_message m)
{
    char line[BY__MESSAGE_LINE];
    size_t n = by__launch_message_format(line, &m);
    assert_int_equal(write(fd, line, n), n);
}

/* Rounds of at most 10 ms, after which a test fails that would not end. */
enum { ROUNDS = 100000 };

static void hear(by__launch_watch *w, bool (*done)(const by__launch_watch *))
{
    for (int i = 0; i < ROUNDS && !done(w); i++) {
        by__launch_watch_receive(w, 0.01);
    }
    assert_true(done(w));
}

static int enter(by__launch_watch *w, int rank)
{
    int fd = connect_to(w);
    by__launch_message hello = {
        .kind = BY__MESSAGE_HELLO, .rank = rank, .ranks = w->count, .host = "n1"};
    memcpy(hello.token, w->contact.token, sizeof hello.token);
    say(fd, hello);
    return fd;
}

static bool both_run(const by__launch_watch *w)
{
    return by__launch_watch_number(w, BY__RANK_RUNNING) == 2;
}
static bool second_has_come_far(const by__launch_watch *w)
{
    return w->ranks[0].number == 8 && w->ranks[1].number == 7;
}
static bool one_is_lost(const by__launch_watch *w)
{
    return by__launch_watch_number(w, BY__RANK_LOST) == 1;
}
/* A rank waits at its end until its connection is closed. */
static bool both_have_ended(const by__launch_watch *w)
{
    return by__launch_watch_number(w, BY__RANK_ENDED) == 2 && w->connection_count == 0;
}

static void beat(int fd, uint64_t count, uint64_t number, const char *text)
{
    by__launch_message m = {.kind = BY__MESSAGE_BEAT,
                            .count = count,
                            .step = 12,
                            .number = number,
                            .phase = "gradients"};
    (void)snprintf(m.text, sizeof m.text, "%s", text);
    say(fd, m);
}

/* The rank that the others wait for is named, not the one that is seen first. */
static void test_stuck_rank(void **state)
{
    by__launch_watch w;
    (void)state;
    open_watch(&w, 2);
    int fds[2] = {enter(&w, 0), enter(&w, 1)};
    hear(&w, both_run);
    beat(fds[0], 5, 8, "all-reduce 8 \"h.4\"");
    beat(fds[1], 4, 7, "all-reduce 7 \"h.3\"");
    hear(&w, second_has_come_far);
    by__launch_watch_check(&w, by__now(), 600.0, 60.0);
    assert_int_equal(w.fault.code, 0);
    by__launch_watch_check(&w, w.ranks[1].advanced + 700.0, 600.0, 6000.0);
    assert_int_equal(w.fault.code, BY_EXIT_HANG);
    assert_int_equal(w.fault.rank, 1);
    assert_non_null(strstr(w.fault.text,
                           "rank 1 (host n1) has made no progress for 700 s: step 12, "
                           "gradients; last collective: all-reduce 7 \"h.3\""));
    close(fds[0]);
    close(fds[1]);
    by__launch_watch_close(&w);
}

static void test_silent_and_absent_ranks(void **state)
{
    by__launch_watch w;
    (void)state;
    open_watch(&w, 2);
    int fd = enter(&w, 1);
    for (int i = 0; i < ROUNDS && by__launch_watch_number(&w, BY__RANK_RUNNING) < 1; i++) {
        by__launch_watch_receive(&w, 0.01);
    }
    by__launch_watch_check(&w, w.ranks[1].last_message_at + 61.0, 600.0, 60.0);
    assert_int_equal(w.fault.rank, 1);
    assert_non_null(strstr(w.fault.text, "was not heard of for 61 s"));
    w.fault.code = 0;
    by__launch_watch_check(&w, by__now() + 601.0, 600.0, 6000.0);
    assert_int_equal(w.fault.rank, 0);
    assert_non_null(strstr(w.fault.text, "did not start within 600 s"));
    close(fd);
    by__launch_watch_close(&w);
}

static void test_lost_rank(void **state)
{
    by__launch_watch w;
    (void)state;
    open_watch(&w, 2);
    int fds[2] = {enter(&w, 0), enter(&w, 1)};
    hear(&w, both_run);
    close(fds[1]);
    hear(&w, one_is_lost);
    assert_int_equal(w.fault.code, BY__CRASH);
    assert_int_equal(w.fault.rank, 1);
    /* What follows from the first fault does not replace it. */
    say(fds[0],
        (by__launch_message){.kind = BY__MESSAGE_END, .code = BY_EXIT_FAILED, .text = "later"});
    close(fds[0]);
    for (int i = 0; i < ROUNDS && by__launch_watch_number(&w, BY__RANK_ENDED) < 1; i++) {
        by__launch_watch_receive(&w, 0.01);
    }
    assert_int_equal(w.fault.rank, 1);
    by__launch_watch_close(&w);
}

static bool is_closed(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

/* Neither another job's rank nor a stray connection counts. */
static void test_strangers(void **state)
{
    by__launch_watch w;
    bool closed[3] = {false};
    (void)state;
    open_watch(&w, 2);
    int wrong_token = connect_to(&w);
    say(wrong_token, (by__launch_message){.kind = BY__MESSAGE_HELLO, .token = "0", .ranks = 2});
    int no_hello = connect_to(&w);
    say(no_hello, (by__launch_message){.kind = BY__MESSAGE_SAVED, .step = 5});
    int twice[2] = {enter(&w, 0), enter(&w, 0)};
    for (int i = 0; i < ROUNDS && !(closed[0] && closed[1] && closed[2]); i++) {
        by__launch_watch_receive(&w, 0.01);
        closed[0] = closed[0] || is_closed(wrong_token);
        closed[1] = closed[1] || is_closed(no_hello);
        closed[2] = closed[2] || is_closed(twice[0]) || is_closed(twice[1]);
    }
    assert_true(closed[0] && closed[1] && closed[2]);
    assert_int_equal(by__launch_watch_number(&w, BY__RANK_RUNNING), 1);
    assert_int_equal(w.saved, -1);
    assert_int_equal(w.fault.code, 0);
    close(wrong_token);
    close(no_hello);
    close(twice[0]);
    close(twice[1]);
    by__launch_watch_close(&w);
}

typedef struct beating {
    by__launch_contact contact;
    int grace_ms[2];
    by_heartbeat *beats[2];
    atomic_int abandoned[2];
} beating;

static void on_abandoned(void *user)
{
    (void)atomic_fetch_add((atomic_int *)user, 1);
}

/* Opening waits for an answer, so the watch listens meanwhile. */
static void *open_beats(void *user)
{
    beating *b = user;
    for (int i = 0; i < 2; i++) {
        const by_heartbeat_options options = {
            .rank = i, .ranks = 2, .abandoned = on_abandoned, .user = &b->abandoned[i]};
        by_error error = {0};
        char text[512];
        b->contact.grace_ms = b->grace_ms[i];
        (void)by__launch_contact_format(text, sizeof text, &b->contact);
        (void)setenv(BY__SUPERVISOR, text, 1);
        if (by_heartbeat_open(&b->beats[i], &options, &error) != BY_OK) {
            print_message("%s\n", error.message);
        }
    }
    return NULL;
}

static void *close_beats(void *user)
{
    beating *b = user;
    by_heartbeat_stopping(b->beats[0]);
    by_heartbeat_close(&b->beats[0], BY_EXIT_SAVED, NULL);
    by_heartbeat_close(&b->beats[1], BY_EXIT_FAILED,
                       &(by_error){.status = BY_EFORMAT, .message = "no disk"});
    return NULL;
}

static void last_collective(void *user, uint64_t *number, char *text, size_t size)
{
    *number = *(const uint64_t *)user;
    (void)snprintf(text, size, "broadcast");
}

/* The rank's side against the supervisor's. */
static void test_heartbeats(void **state)
{
    by__launch_watch w;
    pthread_t thread;
    beating b = {.grace_ms = {10000, 10000}};
    uint64_t number = 42;
    (void)state;
    open_watch(&w, 2);
    b.contact = w.contact;
    assert_int_equal(pthread_create(&thread, NULL, open_beats, &b), 0);
    hear(&w, both_run);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_non_null(b.beats[1]);
    by_heartbeat_progress(b.beats[0], 7, "save");
    by_heartbeat_run(b.beats[0], "runs/tiny");
    by_heartbeat_saved(b.beats[0], 7);
    by_heartbeat_watch(b.beats[1], last_collective, &number);
    for (int i = 0; i < ROUNDS && (w.ranks[1].number != 42 || w.saved != 7 || w.ranks[0].step != 7);
         i++) {
        by__launch_watch_receive(&w, 0.01);
    }
    assert_int_equal(w.saved, 7);
    assert_string_equal(w.run, "runs/tiny");
    assert_string_equal(w.ranks[0].phase, "save");
    assert_string_equal(w.ranks[1].text, "broadcast");
    assert_false(by_heartbeat_stop(b.beats[0]));
    by__launch_watch_stop(&w);
    for (int i = 0; i < ROUNDS && !by_heartbeat_stop(b.beats[1]); i++) {
        by__launch_watch_receive(&w, 0.01);
    }
    assert_true(by_heartbeat_stop(b.beats[1]));
    assert_int_equal(pthread_create(&thread, NULL, close_beats, &b), 0);
    hear(&w, both_have_ended);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(w.ranks[0].stopping);
    assert_int_equal(w.ranks[0].code, BY_EXIT_SAVED);
    assert_int_equal(w.fault.rank, 1);
    assert_true(w.fault.malformed);
    assert_non_null(strstr(w.fault.text, "ended with 1 (failed): no disk"));
    by__launch_watch_close(&w);
    assert_int_equal(unsetenv(BY__SUPERVISOR), 0);
}

/* A supervisor that goes away means: save and end. A rank that does not is told so when its grace
 * is over: that of rank 0 outlasts the test. */
static void test_abandoned(void **state)
{
    by__launch_watch w;
    pthread_t thread;
    beating b = {.grace_ms = {1000000, 100}};
    by_heartbeat *none;
    const by_heartbeat_options options = {.ranks = 1};
    (void)state;
    open_watch(&w, 2);
    b.contact = w.contact;
    assert_int_equal(pthread_create(&thread, NULL, open_beats, &b), 0);
    hear(&w, both_run);
    assert_int_equal(pthread_join(thread, NULL), 0);
    by__launch_watch_close(&w);
    while (!by_heartbeat_stop(b.beats[0])) {
        usleep(10000);
    }
    by_heartbeat_close(&b.beats[0], 0, NULL);
    while (atomic_load(&b.abandoned[1]) == 0) {
        usleep(10000);
    }
    by_heartbeat_close(&b.beats[1], 0, NULL);
    assert_int_equal(atomic_load(&b.abandoned[0]), 0);
    assert_int_equal(atomic_load(&b.abandoned[1]), 1);

    assert_int_equal(by_heartbeat_open(&none, &options, NULL), BY_EPEER);
    assert_null(none);
    assert_int_equal(unsetenv(BY__SUPERVISOR), 0);
    assert_int_equal(by_heartbeat_open(&none, &options, NULL), BY_OK);
    assert_null(none);
    by_heartbeat_progress(none, 1, "none");
    assert_false(by_heartbeat_stop(none));
}

/* ---- the whole ---- */

static void test_missing_program(void **state)
{
    const by_supervisor_options job = {.launch = {.ranks = 1, .program = "banyan-no-such-program"}};
    by_error error = {0};
    int code;
    (void)state;
    assert_int_equal(by_supervise(&job, &code, &error), BY_EIO);
    assert_non_null(strstr(error.message, "cannot run banyan-no-such-program: No such file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),        cmocka_unit_test(test_messages_refused),
        cmocka_unit_test(test_contact),         cmocka_unit_test(test_host_file),
        cmocka_unit_test(test_launch_line),     cmocka_unit_test(test_policy),
        cmocka_unit_test(test_stuck_rank),      cmocka_unit_test(test_silent_and_absent_ranks),
        cmocka_unit_test(test_lost_rank),       cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_heartbeats),      cmocka_unit_test(test_abandoned),
        cmocka_unit_test(test_missing_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
