/* Communicators with ranks as threads: every collective against a plain reference that evaluates
 * the expression of the sum tree, in all dtypes, with odd and empty slices; calls that disagree,
 * ranks that are late and ranks that fail; splits and meshes. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/half.h"
#include "comm/comm.h"
#include "comm_cases.h"

#define PAIRS 20000

static void run(int ranks, by_status (*rank_main)(by_comm *, void *, by_error *), void *user)
{
    by_error error = {.message = ""};
    by_comm_options options = {.timeout = 60};
    by_status status = by_comm_run_threads(ranks, &options, rank_main, user, &error);
    if (status != BY_OK) {
        fail_msg("%d ranks: %s", ranks, error.message);
    }
}

static void collectives(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 5, 8};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(sizes); i++) {
        run(sizes[i], comm_cases_all, NULL);
    }
}

static void self(void **state)
{
    (void)state;
    by_comm *comm = NULL;
    by_error error = {.message = ""};
    by_comm_options options = {.backend = "self"};
    assert_int_equal(by_comm_open(&comm, &options, &error), BY_OK);
    assert_string_equal(by_comm_backend(comm), "self");
    assert_int_equal(by_comm_size(comm), 1);
    if (comm_cases_all(comm, NULL, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    by_comm_close(&comm);
    assert_null(comm);
    by_comm_close(&comm);
    options.backend = "pigeon";
    assert_int_equal(by_comm_open(&comm, &options, &error), BY_EARG);
    assert_non_null(strstr(error.message, "pigeon"));
}

/* ---- failures ---- */

static by_status expect_error(int ranks, double timeout,
                              by_status (*rank_main)(by_comm *, void *, by_error *), void *user,
                              by_error *error)
{
    by_comm_options options = {.timeout = timeout};
    memset(error, 0, sizeof *error);
    return by_comm_run_threads(ranks, &options, rank_main, user, error);
}

static void expect_text(const by_error *error, const char *text)
{
    if (strstr(error->message, text) == NULL) {
        fail_msg("\"%s\" is not in: %s", text, error->message);
    }
}

/* What one rank does otherwise than the others. */
typedef enum oddity { KIND, COUNT, DTYPE, WHAT, ROOT, SENT, SLICES, ENDS } oddity;

static by_status disagree(by_comm *comm, void *user, by_error *error)
{
    oddity odd = *(oddity *)user;
    bool mine = by_comm_rank(comm) == by_comm_size(comm) - 1;
    static const size_t even[] = {2000, 2000, 2000};
    static const size_t uneven[] = {1000, 3000, 2000};
    float *data = calloc(6000, sizeof *data);
    float *in = calloc(6000, sizeof *in);
    by_status status;
    if (mine && odd == ENDS) {
        free(data);
        free(in);
        return BY_OK;
    }
    if (mine && odd == KIND) {
        status = by_comm_broadcast(comm, data, 4000, BY_F32, 0, "loss", error);
    } else if (odd == ROOT) {
        status = by_comm_broadcast(comm, data, 4000, BY_F32, mine, "loss", error);
    } else if (odd == SENT) {
        status = by_comm_broadcast(comm, data, mine ? 3999 : 4000, BY_F32, 0, "loss", error);
    } else if (odd == SLICES) {
        status = by_comm_all_gather(comm, in, data, mine ? uneven : even, BY_F32, "loss", error);
    } else {
        status = by_comm_all_reduce(comm, data, mine && odd == COUNT ? 3999 : 4000,
                                    mine && odd == DTYPE ? BY_BF16 : BY_F32,
                                    mine && odd == WHAT ? "norm" : "loss", error);
    }
    free(data);
    free(in);
    return status;
}

static void disagreement(void **state)
{
    (void)state;
    by_error error;
    oddity odd;
    odd = KIND;
    assert_int_equal(expect_error(3, 60, disagree, &odd, &error), BY_EPEER);
    expect_text(&error, "rank 0 (");
    expect_text(&error, "calls all-reduce \"loss\" (f32, 16000 bytes)");
    expect_text(&error, "rank 2 (");
    expect_text(&error, "calls broadcast \"loss\" (f32, 16000 bytes)");
    odd = COUNT;
    assert_int_equal(expect_error(3, 60, disagree, &odd, &error), BY_EPEER);
    expect_text(&error, "16000 bytes");
    expect_text(&error, "15996 bytes");
    odd = SENT;
    assert_int_equal(expect_error(3, 60, disagree, &odd, &error), BY_EPEER);
    expect_text(&error, "15996 bytes");
    odd = DTYPE;
    assert_int_equal(expect_error(3, 60, disagree, &odd, &error), BY_EPEER);
    expect_text(&error, "bf16");
    odd = WHAT;
    assert_int_equal(expect_error(3, 60, disagree, &odd, &error), BY_EPEER);
    expect_text(&error, "\"norm\"");
    odd = ROOT;
    assert_int_equal(expect_error(3, 60, disagree, &odd, &error), BY_EPEER);
    expect_text(&error, "root ranks differ");
    odd = SLICES;
    assert_int_equal(expect_error(3, 60, disagree, &odd, &error), BY_EPEER);
    expect_text(&error, "sizes of their slices");
    odd = ENDS;
    assert_int_equal(expect_error(3, 60, disagree, &odd, &error), BY_EPEER);
    expect_text(&error, "rank 2 (");
    expect_text(&error, "calls close");
}

static by_status wrong_counts(by_comm *comm, void *user, by_error *error)
{
    size_t send[] = {3, 4};
    size_t receive[] = {3, 4};
    float in[8] = {0};
    float out[8] = {0};
    (void)user;
    receive[0] = by_comm_rank(comm) == 0 ? 3 : 2;
    receive[1] = 4;
    return by_comm_all_to_all(comm, in, send, out, receive, BY_F32, "experts", error);
}

static by_status wrong_message(by_comm *comm, void *user, by_error *error)
{
    float data[8] = {0};
    (void)user;
    if (by_comm_rank(comm) == 0) {
        return by_comm_send(comm, data, 8, BY_F32, 1, 5, "activation", error);
    }
    return by_comm_receive(comm, data, 7, BY_F32, 0, 5, "hidden", error);
}

static void pair_disagreement(void **state)
{
    (void)state;
    by_error error;
    assert_int_equal(expect_error(2, 60, wrong_counts, NULL, &error), BY_EPEER);
    expect_text(&error, "rank 0 (");
    expect_text(&error, "sends 4 elements to rank 1 (");
    expect_text(&error, "expects 2");
    assert_int_equal(expect_error(2, 60, wrong_message, NULL, &error), BY_EPEER);
    expect_text(&error, "\"activation\" (f32, 32 bytes)");
    expect_text(&error, "\"hidden\" (f32, 28 bytes)");
}

/* Sends message 2 i into the first slot of a ring, and 2 i + 1 into the last. */
static void *send_pairs(void *user)
{
    by__comm_send_ring *ring = user;
    for (uint64_t i = 0; i < PAIRS; i++) {
        while (atomic_load(&ring->slots[0].state) != 0 ||
               atomic_load(&ring->slots[BY__COMM_RING - 1].state) != 0) {
            (void)sched_yield();
        }
        for (uint64_t k = 0; k < 2; k++) {
            by__comm_send_slot *slot = &ring->slots[k * (BY__COMM_RING - 1)];
            slot->order = 2 * i + k;
            atomic_store_explicit(&slot->state, 1, memory_order_release);
            (void)atomic_fetch_add(&ring->changes, 1);
        }
    }
    return NULL;
}

/* Both messages of a pair may be sent while the ring is read: the first stays the first. */
static void sends_keep_their_order(void **state)
{
    (void)state;
    pthread_t sender;
    cpu_set_t allowed;
    cpu_set_t all; /* a core for each, also where the program was given one */
    memset(&all, 0xff, sizeof all);
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    (void)sched_setaffinity(0, sizeof all, &all);
    by__comm_send_ring *ring = aligned_alloc(BY_CACHE_LINE, sizeof *ring);
    assert_non_null(ring);
    memset(ring, 0, sizeof *ring);
    assert_int_equal(pthread_create(&sender, NULL, send_pairs, ring), 0);
    uint64_t out_of_order = 0;
    for (uint64_t i = 0; i < 2 * (uint64_t)PAIRS; i++) {
        by__comm_send_slot *slot;
        uint32_t seen;
        while ((slot = by__comm_first_sent(ring, 0, &seen)) == NULL) {
            (void)sched_yield();
        }
        out_of_order += slot->order != i;
        atomic_store_explicit(&slot->state, 0, memory_order_release);
    }
    assert_int_equal(pthread_join(sender, NULL), 0);
    (void)sched_setaffinity(0, sizeof allowed, &allowed);
    free(ring);
    assert_int_equal(out_of_order, 0);
}

/* Returns true if a rank waits in the collective that follows this rank's last one. */
static bool waits_ahead(const by_comm *comm, int rank)
{
    by__comm_slot *slot = by__comm_slot_of(comm, comm->members[rank].near);
    return atomic_load(&slot->phase) == comm->phase + 1;
}

/* Rank 2 never comes to the second collective. The others say so and go. The timeout is short only
 * where nobody else can be late. */
static by_status late(by_comm *comm, void *user, by_error *error)
{
    float x = 1.0f;
    atomic_bool *reduced = user; /* by rank 2 */
    BY_TRY(by_comm_all_reduce(comm, &x, 1, BY_F32, "loss of step 3", error));
    if (by_comm_rank(comm) == 2) {
        atomic_store(reduced, true);
        while (!by__comm_job_failed(comm->job)) {
            (void)usleep(1000);
        }
    } else if (by_comm_rank(comm) == 0) {
        while (!(atomic_load(reduced) && waits_ahead(comm, 1) && waits_ahead(comm, 3)) &&
               !by__comm_job_failed(comm->job)) {
            (void)usleep(1000);
        }
        comm->job->timeout = 0.2;
    }
    return by_comm_barrier(comm, "end of step 3", error);
}

static void late_rank(void **state)
{
    (void)state;
    by_error error;
    atomic_bool reduced = false;
    assert_int_equal(expect_error(4, 60, late, &reduced, &error), BY_EPEER);
    expect_text(&error, "rank 2 (");
    expect_text(&error, "did not come to barrier \"end of step 3\"");
    expect_text(&error, "the last thing that it did: all-reduce \"loss of step 3\"");
}

/* A receive whose send never comes, of a rank that waits elsewhere. */
static by_status stuck(by_comm *comm, void *user, by_error *error)
{
    float x;
    (void)user;
    if (by_comm_rank(comm) == 0) {
        while (!waits_ahead(comm, 1) && !by__comm_job_failed(comm->job)) {
            (void)usleep(1000);
        }
        comm->job->timeout = 0.2;
        return by_comm_receive(comm, &x, 1, BY_F32, 1, 0, "activation", error);
    }
    return by_comm_barrier(comm, "end", error);
}

static void stuck_rank(void **state)
{
    (void)state;
    by_error error;
    assert_int_equal(expect_error(2, 60, stuck, NULL, &error), BY_EPEER);
    expect_text(&error, "rank 1 (");
    expect_text(&error, "did not come to receive \"activation\"");
    expect_text(&error, "it waits in barrier \"end\"");
}

/* The rank given by user fails; the others wait for it, on communicators of their own too. */
static by_status fails(by_comm *comm, void *user, by_error *error)
{
    float x[2000] = {0};
    by_comm *part = NULL;
    BY_TRY(by_comm_split(&part, comm, by_comm_rank(comm) / 2, 0, error));
    if (by_comm_rank(comm) == *(int *)user) {
        by_comm_close(&part);
        return by_error_set(error, BY_EIO, "disk /data is full");
    }
    by_status status = BY_OK;
    for (int i = 0; i < 1000000 && status == BY_OK; i++) {
        status = by_comm_all_reduce(part, x, 2000, BY_F32, "x", error);
    }
    if (status == BY_EPEER && strstr(error->message, "disk /data is full") == NULL &&
        strstr(error->message, "close") == NULL) {
        (void)by_error_set(error, BY_ESTATE, "not told why");
        status = BY_ESTATE;
    }
    by_comm_close(&part);
    return status;
}

static void failing_rank(void **state)
{
    (void)state;
    by_error error;
    for (int rank = 0; rank < 4; rank += 3) {
        by_status status = expect_error(5, 60, fails, &rank, &error);
        if (status != BY_EIO) {
            /* Its neighbour may have found that it closes first. */
            expect_text(&error, "close");
        }
    }
}

static by_status fails_at_once(by_comm *comm, void *user, by_error *error)
{
    float x = 0.0f;
    (void)user;
    if (by_comm_rank(comm) == 1) {
        return by_error_set(error, BY_EIO, "disk /data is full");
    }
    by_status status = by_comm_barrier(comm, "start", error);
    if (status != BY_EPEER || strstr(error->message, "rank 1 (") == NULL ||
        strstr(error->message, "disk /data is full") == NULL || by_comm_failure(comm) != BY_EIO) {
        return by_error_set(error, BY_ESTATE, "not told why");
    }
    /* Again: nothing is repaired. */
    return by_comm_all_reduce(comm, &x, 1, BY_F32, "x", error);
}

static void reported_failure(void **state)
{
    (void)state;
    by_error error;
    assert_int_equal(expect_error(4, 60, fails_at_once, NULL, &error), BY_EIO);
    assert_string_equal(error.message, "disk /data is full");
}

static by_status bad_arguments(by_comm *comm, void *user, by_error *error)
{
    unsigned char data[16] = {0};
    (void)user;
    if (by_comm_rank(comm) == 0) {
        return by_comm_all_reduce(comm, data, 16, BY_U8, "bytes", error);
    }
    return by_comm_barrier(comm, "start", error);
}

static void refused_arguments(void **state)
{
    (void)state;
    by_error error;
    assert_int_equal(expect_error(2, 60, bad_arguments, NULL, &error), BY_EARG);
    expect_text(&error, "sums of u8");
    assert_int_equal(expect_error(0, 60, bad_arguments, NULL, &error), BY_EARG);
}

/* ---- mesh ---- */

static by_status mesh_of_six(by_comm *comm, void *user, by_error *error)
{
    const int *sizes = user;
    by_mesh *mesh;
    BY_TRY(by_mesh_open(&mesh, comm, sizes, error));
    by_status status = comm_cases_mesh(comm, mesh, error);
    by_mesh_close(&mesh);
    return status;
}

static void meshes(void **state)
{
    (void)state;
    int shapes[][BY_MESH_AXES] = {{1, 1, 1, 1, 1, 1}, {1, 4, 1, 1, 1, 1}, {2, 1, 1, 1, 1, 2},
                                  {1, 2, 3, 1, 1, 1}, {2, 2, 1, 1, 1, 2}, {1, 2, 1, 1, 1, 3},
                                  {3, 1, 1, 2, 1, 1}, {1, 1, 2, 2, 2, 1}, {2, 1, 1, 1, 3, 2},
                                  {1, 5, 1, 1, 1, 1}, {2, 2, 2, 1, 1, 1}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(shapes); i++) {
        int ranks = 1;
        for (int a = 0; a < BY_MESH_AXES; a++) {
            ranks *= shapes[i][a];
        }
        run(ranks, mesh_of_six, shapes[i]);
    }
    by_error error;
    assert_int_equal(expect_error(3, 60, mesh_of_six, shapes[1], &error), BY_EARG);
    expect_text(&error, "1 x 4 x 1 x 1 x 1 x 1");
    expect_text(&error, "3 ranks");
    shapes[1][1] = 0;
    assert_int_equal(expect_error(3, 60, mesh_of_six, shapes[1], &error), BY_EARG);
    expect_text(&error, "axis data");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(self),
        cmocka_unit_test(collectives),
        cmocka_unit_test(disagreement),
        cmocka_unit_test(pair_disagreement),
        cmocka_unit_test(sends_keep_their_order),
        cmocka_unit_test(late_rank),
        cmocka_unit_test(stuck_rank),
        cmocka_unit_test(failing_rank),
        cmocka_unit_test(reported_failure),
        cmocka_unit_test(refused_arguments),
        cmocka_unit_test(meshes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
