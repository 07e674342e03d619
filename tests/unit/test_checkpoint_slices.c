/* Checkpoints that several writers make together: the bytes are those of one writer, a writer that
 * is missing leaves nothing, and what is referenced is kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/storage.h"
#include "checkpoints.h"
#include "temporary.h"

enum { ROWS = 12, COLUMNS = 10, WRITERS = 3, TENSORS = 5 };

static float matrix[ROWS * COLUMNS];
static float vector[ROWS];
static uint16_t half[COLUMNS];
static const float scalar[1] = {4.0f};

static by_tensor_view model[] = {{"z.matrix", BY_F32, 2, {ROWS, COLUMNS}, matrix},
                                 {"a.vector", BY_F32, 1, {ROWS}, vector},
                                 {"scalar", BY_F32, 0, {0}, scalar},
                                 {"half", BY_BF16, 1, {COLUMNS}, half}};
static by_tensor_view optimizer[] = {{"m.z.matrix", BY_F32, 2, {ROWS, COLUMNS}, matrix}};

static int fill(void **state)
{
    BY_UNUSED(state);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        matrix[i] = (float)i + 0.5f;
    }
    for (int i = 0; i < ROWS; i++) {
        vector[i] = -(float)i;
    }
    for (int i = 0; i < COLUMNS; i++) {
        half[i] = (uint16_t)(0x3f80 + i);
    }
    return 0;
}

static checkpoint_content content(uint64_t shard_bytes)
{
    static const by_checkpoint_file files[] = {{"config.json", "{}", 2, NULL}};
    static const by_checkpoint_value values[] = {{"seed", BY_VALUE_U64, {.u64 = 7}}};
    return (checkpoint_content){.model = model,
                                .model_count = 4,
                                .optimizer = optimizer,
                                .optimizer_count = 1,
                                .values = values,
                                .value_count = 1,
                                .files = files,
                                .file_count = 1,
                                .shard_bytes = shard_bytes};
}

static const by_tensor_view *tensor_at(size_t i)
{
    return i < 4 ? &model[i] : &optimizer[0];
}

static by_checkpoint_layout layout_of(const checkpoint_content *c, int writers)
{
    by_checkpoint_layout layout = checkpoint_layout(c);
    layout.writers = writers;
    return layout;
}

/* Copies a box of a matrix, which is then dense. */
static void cut(float *out, const by_tensor_slice *s)
{
    for (int64_t row = 0; row < s->shape[0]; row++) {
        for (int64_t column = 0; column < s->shape[1]; column++) {
            *out++ = matrix[(s->offset[0] + row) * COLUMNS + s->offset[1] + column];
        }
    }
}

/* Writer `rank` of three: columns of the first matrix as boxes, the second as flat ranges of
 * uneven length, the others whole by one writer each. */
static by_status add_part(by_checkpoint_writer *w, int rank, by_error *error)
{
    float box[ROWS * COLUMNS];
    static const int64_t columns[WRITERS + 1] = {0, 1, 7, COLUMNS};
    static const int64_t flat[WRITERS + 1] = {0, 50, 51, ROWS * COLUMNS};
    by_tensor_slice columns_of = {.offset = {0, columns[rank]},
                                  .shape = {ROWS, columns[rank + 1] - columns[rank]}};
    by_tensor_slice range = {
        .flat = true, .offset = {flat[rank]}, .shape = {flat[rank + 1] - flat[rank]}};
    cut(box, &columns_of);
    BY_TRY(by_checkpoint_add(w, 4, &range, matrix + flat[rank], error));
    BY_TRY(by_checkpoint_add(w, 0, &columns_of, box, error));
    by_tensor_slice whole = by_tensor_whole(tensor_at(1 + (size_t)rank));
    return by_checkpoint_add(w, 1 + (size_t)rank, &whole, tensor_at(1 + (size_t)rank)->data, error);
}

static void check(by_status status, const by_error *error)
{
    if (status != BY_OK) {
        fail_msg("%s", error->message);
    }
}

/* Both checkpoints have the same files with the same bytes. */
static void assert_same(const char *one, const char *other, uint64_t step)
{
    char **names[2];
    size_t count[2];
    char *directory[2];
    assert_int_equal(by__step_path(&directory[0], one, step, NULL), BY_OK);
    assert_int_equal(by__step_path(&directory[1], other, step, NULL), BY_OK);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(by__list_dir(&names[k], &count[k], directory[k], NULL), BY_OK);
    }
    assert_int_equal(count[0], count[1]);
    for (size_t i = 0; i < count[0]; i++) {
        char hash[2][33];
        assert_string_equal(names[0][i], names[1][i]);
        for (int k = 0; k < 2; k++) {
            char *path = by__path_join(directory[k], names[k][i]);
            assert_int_equal(by__hash_file_hex(hash[k], path, NULL), BY_OK);
            free(path);
        }
        assert_string_equal(hash[0], hash[1]);
    }
    for (int k = 0; k < 2; k++) {
        by__names_free(names[k], count[k]);
        free(directory[k]);
    }
}

/* A process that joins as `rank`, does its part and finishes; with `dies`, it is killed before. */
static pid_t start_writer(const char *root, const checkpoint_content *c, int rank, bool dies)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        by_checkpoint_writer *w;
        by_checkpoint_layout layout = layout_of(c, WRITERS);
        if (by_checkpoint_join(&w, root, 5, &layout, rank, NULL) != BY_OK ||
            add_part(w, rank, NULL) != BY_OK) {
            _exit(1);
        }
        if (dies) {
            (void)kill(getpid(), SIGKILL);
        }
        _exit(by_checkpoint_finish(&w, NULL) == BY_OK ? 0 : 2);
    }
    return child;
}

static by_status save_together(const char *root, const checkpoint_content *c, int dying,
                               by_error *error)
{
    by_checkpoint_writer *w;
    by_checkpoint_layout layout = layout_of(c, WRITERS);
    pid_t children[WRITERS];
    BY_TRY(by_checkpoint_begin(&w, root, 5, &layout, error));
    for (int rank = 1; rank < WRITERS; rank++) {
        children[rank] = start_writer(root, c, rank, rank == dying);
    }
    check(add_part(w, 0, error), error);
    for (int rank = 1; rank < WRITERS; rank++) {
        int code;
        assert_int_equal(waitpid(children[rank], &code, 0), children[rank]);
        assert_true(rank == dying ? WIFSIGNALED(code) : WIFEXITED(code) && WEXITSTATUS(code) == 0);
    }
    return by_checkpoint_commit(&w, c->values, c->value_count, c->files, c->file_count, error);
}

static void several_processes_write_the_bytes_of_one(void **state)
{
    BY_UNUSED(state);
    static const uint64_t shard_bytes[] = {0, 500};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(shard_bytes); i++) {
        char *one = temporary_make();
        char *several = temporary_make();
        checkpoint_content c = content(shard_bytes[i]);
        by_error error = {0};
        check(checkpoint_write(one, 5, &c, &error), &error);
        check(save_together(several, &c, -1, &error), &error);
        assert_same(one, several, 5);
        check(save_together(several, &c, -1, &error), &error); /* over the one that is there */
        assert_same(one, several, 5);
        temporary_remove(one);
        temporary_remove(several);
    }
}

static void a_writer_that_dies_leaves_no_checkpoint(void **state)
{
    BY_UNUSED(state);
    char *root = temporary_make();
    char *path = NULL;
    char **names;
    size_t count;
    checkpoint_content c = content(0);
    by_error error = {0};
    check(checkpoint_write(root, 4, &c, &error), &error);
    assert_int_equal(save_together(root, &c, 2, &error), BY_ESTATE);
    assert_non_null(strstr(error.message, "step 5 was not saved, earlier checkpoints are intact"));
    assert_non_null(strstr(error.message, "writer 2 of 3 did not finish its part"));
    check(by_checkpoint_latest(root, &path, NULL, &error), &error);
    assert_non_null(strstr(path, "step-00000004"));
    assert_int_equal(by__list_dir(&names, &count, root, NULL), BY_OK);
    assert_int_equal(count, 2); /* .lock and step-00000004 */
    by__names_free(names, count);
    free(path);
    /* The writer that began dies: the next one removes what it left. */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        by_checkpoint_writer *w;
        by_checkpoint_layout layout = layout_of(&c, WRITERS);
        if (by_checkpoint_begin(&w, root, 5, &layout, NULL) == BY_OK) {
            (void)add_part(w, 0, NULL);
        }
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    check(by_checkpoint_latest(root, &path, NULL, &error), &error);
    assert_non_null(strstr(path, "step-00000004"));
    free(path);
    check(save_together(root, &c, -1, &error), &error);
    check(by_checkpoint_latest(root, &path, NULL, &error), &error);
    assert_non_null(strstr(path, "step-00000005"));
    free(path);
    temporary_remove(root);
}

typedef struct part {
    by_checkpoint_writer *writer;
    int rank;
    by_status status;
} part;

static void *run_part(void *argument)
{
    part *p = argument;
    p->status = add_part(p->writer, p->rank, NULL);
    return NULL;
}

static void threads_and_any_order_give_the_same_bytes(void **state)
{
    BY_UNUSED(state);
    char *one = temporary_make();
    char *other = temporary_make();
    checkpoint_content c = content(500);
    by_checkpoint_layout layout = layout_of(&c, 1);
    by_checkpoint_writer *w;
    by_error error = {0};
    check(checkpoint_write(one, 5, &c, &error), &error);
    /* One process, three threads. */
    pthread_t threads[WRITERS];
    part parts[WRITERS];
    check(by_checkpoint_begin(&w, other, 5, &layout, &error), &error);
    for (int i = 0; i < WRITERS; i++) {
        parts[i] = (part){w, i, BY_OK};
        assert_int_equal(pthread_create(&threads[i], NULL, run_part, &parts[i]), 0);
    }
    for (int i = 0; i < WRITERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(parts[i].status, BY_OK);
    }
    check(by_checkpoint_commit(&w, c.values, 1, c.files, 1, &error), &error);
    assert_same(one, other, 5);
    /* Whole tensors from the last to the first, and each in two halves: a file that was begun in
     * order and goes on out of order. */
    for (int halves = 0; halves < 2; halves++) {
        check(by_checkpoint_begin(&w, other, 5, &layout, &error), &error);
        for (size_t i = 0; i < TENSORS; i++) {
            size_t tensor = halves == 1 ? by_checkpoint_order(w, i) : TENSORS - 1 - i;
            const by_tensor_view *view = tensor_at(tensor);
            size_t elements;
            check(by_tensor_size(view, &elements, NULL, &error), &error);
            int64_t cut_at = halves == 1 ? (int64_t)elements / 3 : 0;
            by_tensor_slice rest = {
                .flat = true, .offset = {cut_at}, .shape = {(int64_t)elements - cut_at}};
            by_tensor_slice begin = {.flat = true, .shape = {cut_at}};
            if (tensor == 0) { /* the rest first */
                check(by_checkpoint_add(w, tensor, &rest,
                                        (const char *)view->data +
                                            (size_t)cut_at * by_dtype_size(view->dtype),
                                        &error),
                      &error);
            }
            check(by_checkpoint_add(w, tensor, &begin, view->data, &error), &error);
            if (tensor != 0) {
                check(by_checkpoint_add(w, tensor, &rest,
                                        (const char *)view->data +
                                            (size_t)cut_at * by_dtype_size(view->dtype),
                                        &error),
                      &error);
            }
        }
        check(by_checkpoint_commit(&w, c.values, 1, c.files, 1, &error), &error);
        assert_same(one, other, 5);
    }
    temporary_remove(one);
    temporary_remove(other);
}

/* Adds slices of one tensor and commits; the others are whole. */
static by_status save_slices(const char *root, size_t tensor, const by_tensor_slice *slices,
                             size_t count, by_error *error)
{
    checkpoint_content c = content(0);
    by_checkpoint_layout layout = layout_of(&c, 1);
    by_checkpoint_writer *w;
    BY_TRY(by_checkpoint_begin(&w, root, 5, &layout, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < TENSORS && status == BY_OK; i++) {
        by_tensor_slice whole = by_tensor_whole(tensor_at(i));
        if (i != tensor) {
            status = by_checkpoint_add(w, i, &whole, tensor_at(i)->data, error);
        }
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = by_checkpoint_add(w, tensor, &slices[i], matrix, error);
    }
    if (status != BY_OK) {
        by_error late = {0};
        assert_int_equal(by_checkpoint_commit(&w, NULL, 0, NULL, 0, &late), BY_ESTATE);
        assert_non_null(strstr(late.message, "a slice was not written"));
        assert_null(w);
        return status;
    }
    return by_checkpoint_commit(&w, NULL, 0, NULL, 0, error);
}

static void parts_must_make_up_the_whole(void **state)
{
    BY_UNUSED(state);
    static const struct {
        by_tensor_slice slices[2];
        size_t count;
        by_status status;
        const char *message;
    } cases[] = {
        {{{0}}, 0, BY_ESTATE, "tensor 'z.matrix': a part is missing"},
        {{{.shape = {ROWS, 4}}}, 1, BY_ESTATE, "tensor 'z.matrix': a part is missing"},
        {{{.shape = {ROWS, 4}}, {.offset = {0, 3}, .shape = {ROWS, 7}}},
         2,
         BY_ESTATE,
         "tensor 'z.matrix': slices overlap"},
        {{{.flat = true, .shape = {60}}, {.flat = true, .offset = {61}, .shape = {59}}},
         2,
         BY_ESTATE,
         "a part is missing"},
        {{{.flat = true, .shape = {60}}, {.flat = true, .offset = {59}, .shape = {61}}},
         2,
         BY_ESTATE,
         "slices overlap"},
        {{{.flat = true, .shape = {60}}, {.offset = {5, 0}, .shape = {7, COLUMNS}}},
         2,
         BY_ESTATE,
         "slices overlap"},
        {{{.flat = true, .shape = {60}}, {.offset = {6, 0}, .shape = {6, COLUMNS}}}, 2, BY_OK, ""},
        {{{.flat = true, .shape = {60}}, {.offset = {6, 0}, .shape = {6, 5}}},
         2,
         BY_EARG,
         "both by ranges and by boxes"},
        {{{.flat = true, .shape = {121}}}, 1, BY_EARG, "elements 0 + 121 are not within its 120"},
        {{{.flat = true, .offset = {-1}, .shape = {1}}}, 1, BY_EARG, "elements -1 + 1 are not"},
        {{{.offset = {0, 4}, .shape = {ROWS, 7}}},
         1,
         BY_EARG,
         "4 + 7 along axis 1 is not within its 10"},
        {{{.offset = {0, 4}, .shape = {ROWS, INT64_MAX}}}, 1, BY_EARG, "along axis 1"},
    };
    char *root = temporary_make();
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_error error = {0};
        assert_int_equal(save_slices(root, 0, cases[i].slices, cases[i].count, &error),
                         cases[i].status);
        if (strstr(error.message, cases[i].message) == NULL) {
            fail_msg("case %zu: '%s' is not in '%s'", i, cases[i].message, error.message);
        }
    }
    temporary_remove(root);
}

static void roles_are_checked(void **state)
{
    BY_UNUSED(state);
    char *root = temporary_make();
    checkpoint_content c = content(0);
    by_checkpoint_layout layout = layout_of(&c, 2);
    by_checkpoint_writer *first;
    by_checkpoint_writer *second;
    by_error error = {0};
    assert_int_equal(by_checkpoint_join(&second, root, 5, &layout, 1, &error), BY_ESTATE);
    assert_non_null(strstr(error.message, "no process has begun"));
    assert_int_equal(by_checkpoint_join(&second, root, 5, &layout, 0, &error), BY_EARG);
    assert_int_equal(by_checkpoint_join(&second, root, 5, &layout, 2, &error), BY_EARG);
    check(by_checkpoint_begin(&first, root, 5, &layout, &error), &error);
    assert_int_equal(by_checkpoint_begin(&second, root, 6, &layout, &error), BY_ESTATE);
    assert_non_null(strstr(error.message, "another process is writing checkpoints"));
    check(by_checkpoint_join(&second, root, 5, &layout, 1, &error), &error);
    assert_int_equal(by_checkpoint_commit(&second, NULL, 0, NULL, 0, &error), BY_ESTATE);
    assert_null(second);
    assert_int_equal(by_checkpoint_finish(&first, &error), BY_ESTATE);
    assert_null(first);
    by_checkpoint_abandon(&first);
    temporary_remove(root);
}

/* ---- references ---- */

static by_status save_referring(const char *root, uint64_t step, uint64_t from, int writers,
                                by_error *error)
{
    checkpoint_content c = content(0);
    by_checkpoint_layout layout = layout_of(&c, writers);
    by_checkpoint_writer *w;
    by_tensor_slice whole = by_tensor_whole(&optimizer[0]);
    BY_TRY(by_checkpoint_begin(&w, root, step, &layout, error));
    by_status status = by_checkpoint_reference(w, "model.safetensors", from, error);
    if (status == BY_OK) {
        status = by_checkpoint_reference(w, "config.json", from, error);
    }
    if (status == BY_OK) {
        status = by_checkpoint_add(w, 4, &whole, matrix, error);
    }
    if (status != BY_OK) {
        by_checkpoint_abandon(&w);
        return status;
    }
    return by_checkpoint_commit(&w, NULL, 0, NULL, 0, error);
}

static bool has_step(const char *root, uint64_t step)
{
    char *path;
    assert_int_equal(by__step_path(&path, root, step, NULL), BY_OK);
    bool found = by__path_exists(path);
    free(path);
    return found;
}

static void references_are_read_and_kept(void **state)
{
    BY_UNUSED(state);
    char *root = temporary_make();
    checkpoint_content c = content(0);
    by_checkpoint *checkpoint;
    by_tensor_view view;
    by_error error = {0};
    check(checkpoint_write(root, 1, &c, &error), &error);
    check(save_referring(root, 2, 1, 1, &error), &error);
    check(save_referring(root, 3, 2, 1, &error), &error); /* of a reference: to step 1 */
    char *link = by__path_join(root, "step-00000003/model.safetensors");
    char target[100] = "";
    assert_true(readlink(link, target, sizeof target - 1) > 0);
    assert_string_equal(target, "../step-00000001/model.safetensors");
    check(checkpoint_write(root, 4, &c, &error), &error);
    check(save_referring(root, 5, 3, 1, &error), &error);
    check(by_checkpoint_prune(root, 1, &error), &error);
    assert_true(has_step(root, 1) && has_step(root, 5));
    assert_false(has_step(root, 2) || has_step(root, 3) || has_step(root, 4));
    check(by_checkpoint_open(&checkpoint, root, true, &error), &error);
    assert_int_equal(by_checkpoint_step(checkpoint), 5);
    check(by_weights_tensor(by_checkpoint_model(checkpoint), "a.vector", &view, &error), &error);
    assert_memory_equal(view.data, vector, sizeof vector);
    by_checkpoint_close(&checkpoint);
    /* What is referenced is checked like the rest. */
    char *source = by__path_join(root, "step-00000001/model.safetensors");
    assert_int_equal(unlink(source), 0);
    char *newest = by__path_join(root, "step-00000005");
    assert_int_equal(by_checkpoint_open(&checkpoint, newest, false, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "model.safetensors is missing, the manifest says that it "
                                          "is the one of step-00000001"));
    free(newest);
    free(source);
    free(link);
    temporary_remove(root);
}

static void bad_references_are_refused(void **state)
{
    BY_UNUSED(state);
    char *root = temporary_make();
    checkpoint_content c = content(0);
    by_checkpoint_layout layout = layout_of(&c, 1);
    by_checkpoint_writer *w;
    by_error error = {0};
    check(checkpoint_write(root, 1, &c, &error), &error);
    check(by_checkpoint_begin(&w, root, 2, &layout, &error), &error);
    assert_int_equal(by_checkpoint_reference(w, "model.safetensors", 2, &error), BY_EARG);
    assert_int_equal(by_checkpoint_reference(w, "model.safetensors", 7, &error), BY_EFORMAT);
    assert_int_equal(by_checkpoint_reference(w, "manifest.json", 1, &error), BY_EARG);
    assert_int_equal(by_checkpoint_reference(w, "../x", 1, &error), BY_EARG);
    assert_int_equal(by_checkpoint_reference(w, "other.txt", 1, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "has no file 'other.txt' to refer to"));
    by_checkpoint_abandon(&w);
    /* Other tensors than this checkpoint has. */
    model[1].name = "b.vector";
    check(by_checkpoint_begin(&w, root, 2, &layout, &error), &error);
    model[1].name = "a.vector";
    assert_int_equal(by_checkpoint_reference(w, "model.safetensors", 1, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "holds other tensors than this checkpoint's"));
    by_checkpoint_abandon(&w);
    /* A writer never writes through the link into the older checkpoint. */
    layout.writers = 2;
    by_checkpoint_writer *second;
    char before[33];
    char after[33];
    by_tensor_slice whole = by_tensor_whole(&model[1]);
    char *source = by__path_join(root, "step-00000001/model.safetensors");
    check(by__hash_file_hex(before, source, &error), &error);
    check(by_checkpoint_begin(&w, root, 2, &layout, &error), &error);
    check(by_checkpoint_reference(w, "model.safetensors", 1, &error), &error);
    check(by_checkpoint_join(&second, root, 2, &layout, 1, &error), &error);
    assert_int_equal(by_checkpoint_add(second, 1, &whole, matrix, &error), BY_EIO);
    by_checkpoint_abandon(&second);
    by_checkpoint_abandon(&w);
    check(by__hash_file_hex(after, source, &error), &error);
    assert_string_equal(before, after);
    free(source);
    temporary_remove(root);
}

/* ---- reading slices ---- */

static void slices_are_read_as_f32(void **state)
{
    BY_UNUSED(state);
    char *root = temporary_make();
    checkpoint_content c = content(0);
    by_checkpoint *checkpoint;
    float out[ROWS * COLUMNS];
    float expected[ROWS * COLUMNS];
    by_error error = {0};
    check(checkpoint_write(root, 1, &c, &error), &error);
    check(by_checkpoint_open(&checkpoint, root, true, &error), &error);
    const by_weights *w = by_checkpoint_model(checkpoint);
    for (int64_t row = 0; row <= ROWS; row += 3) {
        for (int64_t column = 0; column <= COLUMNS; column += 2) {
            by_tensor_slice s = {.offset = {row, column}, .shape = {ROWS - row, COLUMNS - column}};
            size_t count = (size_t)((ROWS - row) * (COLUMNS - column));
            cut(expected, &s);
            check(by_weights_read_f32(w, "z.matrix", &s, out, count, &error), &error);
            assert_memory_equal(out, expected, count * sizeof *out);
        }
    }
    by_tensor_slice flat = {.flat = true, .offset = {17}, .shape = {33}};
    check(by_weights_read_f32(w, "z.matrix", &flat, out, 33, &error), &error);
    assert_memory_equal(out, matrix + 17, 33 * sizeof *out);
    flat = (by_tensor_slice){.offset = {2}, .shape = {3}};
    check(by_weights_read_f32(w, "half", &flat, out, 3, &error), &error);
    assert_true(out[0] == 1.0f + 2.0f / 128.0f && out[2] == 1.0f + 4.0f / 128.0f);
    flat = (by_tensor_slice){0};
    check(by_weights_read_f32(w, "scalar", &flat, out, 1, &error), &error);
    assert_true(out[0] == 4.0f);
    flat = (by_tensor_slice){.offset = {8}, .shape = {3}};
    assert_int_equal(by_weights_read_f32(w, "half", &flat, out, 3, &error), BY_EARG);
    assert_int_equal(
        by_weights_read_f32(w, "half", &(by_tensor_slice){.shape = {3}}, out, 4, &error), BY_EARG);
    assert_int_equal(by_weights_read_f32(w, "halt", &flat, out, 3, &error), BY_EFORMAT);
    by_checkpoint_close(&checkpoint);
    temporary_remove(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_processes_write_the_bytes_of_one),
        cmocka_unit_test(a_writer_that_dies_leaves_no_checkpoint),
        cmocka_unit_test(threads_and_any_order_give_the_same_bytes),
        cmocka_unit_test(parts_must_make_up_the_whole),
        cmocka_unit_test(roles_are_checked),
        cmocka_unit_test(references_are_read_and_kept),
        cmocka_unit_test(bad_references_are_refused),
        cmocka_unit_test(slices_are_read_as_f32),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
