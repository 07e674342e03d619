/* Checkpoints that several writers make together: they hold what those of one writer do, a writer
 * that is missing leaves nothing, and what is referenced is kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
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
    static const by_checkpoint_file files[] = {{"config.json", "{}", 2, NULL, NULL}};
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
static const by_checkpoint_part *parts_of(int rank)
{
    static const by_checkpoint_part parts[WRITERS][3] = {
        {{4, {.flat = true, .shape = {50}}}, {0, {.shape = {ROWS, 1}}}, {1, {.shape = {ROWS}}}},
        {{4, {.flat = true, .offset = {50}, .shape = {1}}},
         {0, {.offset = {0, 1}, .shape = {ROWS, 6}}},
         {2, {0}}},
        {{4, {.flat = true, .offset = {51}, .shape = {ROWS * COLUMNS - 51}}},
         {0, {.offset = {0, 7}, .shape = {ROWS, COLUMNS - 7}}},
         {3, {.shape = {COLUMNS}}}}};
    return parts[rank];
}

/* Adds part `i` of a writer: by its number where several write, else as a slice. */
static by_status add_part(by_checkpoint_writer *w, int rank, size_t i, bool alone, by_error *error)
{
    float box[ROWS * COLUMNS];
    const by_checkpoint_part *part = &parts_of(rank)[i];
    const void *data = tensor_at(part->tensor)->data;
    if (part->tensor == 0) {
        cut(box, &part->slice);
        data = box;
    } else if (part->slice.flat) {
        data = matrix + part->slice.offset[0];
    }
    return alone ? by_checkpoint_add(w, part->tensor, &part->slice, data, error)
                 : by_checkpoint_add_part(w, i, data, error);
}

/* All parts of a writer; with `in_order`, as the file has them. */
static by_status add_parts(by_checkpoint_writer *w, int rank, bool alone, bool in_order,
                           by_error *error)
{
    for (size_t i = 0; i < 3; i++) {
        size_t k = in_order ? by_checkpoint_order(w, i) : i;
        BY_TRY(add_part(w, rank, k, alone, error));
    }
    return BY_OK;
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
    assert_int_equal(by__checkpoint_step_path(&directory[0], one, step, NULL), BY_OK);
    assert_int_equal(by__checkpoint_step_path(&directory[1], other, step, NULL), BY_OK);
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

static by_checkpoint_layout layout_of_writer(const checkpoint_content *c, int rank)
{
    by_checkpoint_layout layout = layout_of(c, WRITERS);
    layout.parts = parts_of(rank);
    layout.part_count = 3;
    return layout;
}

/* A process that joins as `rank`, does its part and finishes; with `dies`, it is killed before. */
static pid_t start_writer(const char *root, const checkpoint_content *c, int rank, uint64_t token,
                          bool dies)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        by_checkpoint_writer *w;
        by_checkpoint_layout layout = layout_of_writer(c, rank);
        if (by_checkpoint_join(&w, root, 5, &layout, rank, token, NULL) != BY_OK ||
            add_parts(w, rank, false, rank == 1, NULL) != BY_OK) {
            _exit(1);
        }
        if (dies) {
            (void)kill(getpid(), SIGKILL);
        }
        _exit(by_checkpoint_finish(&w, NULL) == BY_OK ? 0 : 2);
    }
    return child;
}

/* `spoil` is called with the unfinished directory before the commit. */
static by_status save_with(const char *root, const checkpoint_content *c, int dying,
                           void (*spoil)(const char *directory), by_error *error)
{
    by_checkpoint_writer *w;
    by_checkpoint_layout layout = layout_of_writer(c, 0);
    pid_t children[WRITERS];
    BY_TRY(by_checkpoint_begin(&w, root, 5, &layout, error));
    for (int rank = 1; rank < WRITERS; rank++) {
        children[rank] = start_writer(root, c, rank, by_checkpoint_token(w), rank == dying);
    }
    check(add_parts(w, 0, false, true, error), error);
    for (int rank = 1; rank < WRITERS; rank++) {
        int code;
        assert_int_equal(waitpid(children[rank], &code, 0), children[rank]);
        assert_true(rank == dying ? WIFSIGNALED(code) : WIFEXITED(code) && WEXITSTATUS(code) == 0);
    }
    if (spoil != NULL) {
        char directory[4096];
        (void)snprintf(directory, sizeof directory, "%s/step-00000005.tmp-%016llx", root,
                       (unsigned long long)by_checkpoint_token(w));
        spoil(directory);
    }
    return by_checkpoint_commit(&w, c->values, c->value_count, c->files, c->file_count, error);
}

static by_status save_together(const char *root, const checkpoint_content *c, int dying,
                               by_error *error)
{
    return save_with(root, c, dying, NULL, error);
}

static void several_processes_write_what_one_does(void **state)
{
    BY_UNUSED(state);
    char *one = temporary_make();
    char *several = temporary_make();
    checkpoint_content c = content(0);
    by_error error = {0};
    by_digest expected;
    check(checkpoint_write(one, 5, &c, &error), &error);
    check(by_checkpoint_digest(&expected, one, 1, &error), &error);
    for (int i = 0; i < 2; i++) { /* the second time over the one that is there */
        by_checkpoint *checkpoint;
        by_tensor_view view;
        by_digest digest;
        check(save_together(several, &c, -1, &error), &error);
        check(by_checkpoint_digest(&digest, several, 2, &error), &error);
        assert_string_equal(digest.all, expected.all);
        assert_string_equal(digest.model, expected.model);
        by_digest_free(&digest);
        check(by_checkpoint_open(&checkpoint, several, true, &error), &error);
        for (size_t k = 0; k < TENSORS; k++) {
            size_t bytes;
            const by_tensor_view *tensor = tensor_at(k);
            const by_weights *weights =
                k < 4 ? by_checkpoint_model(checkpoint) : by_checkpoint_optimizer(checkpoint);
            check(by_weights_tensor(weights, tensor->name, &view, &error), &error);
            check(by_tensor_size(tensor, NULL, &bytes, &error), &error);
            assert_memory_equal(view.data, tensor->data, bytes);
        }
        by_checkpoint_close(&checkpoint);
    }
    by_digest_free(&expected);
    /* Each writer has files of its own, and nothing else is left. */
    static const char *const files[] = {"config.json",
                                        "manifest.json",
                                        "model-00001-of-00003.safetensors",
                                        "model-00002-of-00003.safetensors",
                                        "model-00003-of-00003.safetensors",
                                        "model.slices.json",
                                        "optimizer-00001-of-00003.safetensors",
                                        "optimizer-00002-of-00003.safetensors",
                                        "optimizer-00003-of-00003.safetensors",
                                        "optimizer.slices.json",
                                        "state.json"};
    char *path = by__path_join(several, "step-00000005");
    char **names;
    size_t count;
    assert_int_equal(by__list_dir(&names, &count, path, NULL), BY_OK);
    assert_int_equal(count, BY_ARRAY_LENGTH(files));
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(names[i], files[i]);
    }
    by__names_free(names, count);
    free(path);
    temporary_remove(one);
    temporary_remove(several);
}

/* ---- what may go wrong before the commit ---- */

static void cut_a_part(const char *directory)
{
    char *path = by__path_join(directory, "model-00002-of-00003.safetensors");
    assert_int_equal(truncate(path, 100), 0);
    free(path);
}

static void flip(const char *directory, const char *name)
{
    char *path = by__path_join(directory, name);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, 0, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 4, f), byte ^ 4);
    assert_int_equal(fclose(f), 0);
    free(path);
}

static void flip_slices(const char *directory)
{
    flip(directory, "slices-1");
}

static void flip_files(const char *directory)
{
    flip(directory, "files-2");
}

/* A writer's list is there under the name of another. */
static void swap_writers(const char *directory)
{
    char *one = by__path_join(directory, "files-1");
    char *two = by__path_join(directory, "files-2");
    assert_int_equal(unlink(two), 0);
    assert_int_equal(link(one, two), 0);
    free(one);
    free(two);
}

/* A bit that flips in any file, or one that is cut short, after the commit. */
static void any_spoiled_file_is_found(void **state)
{
    BY_UNUSED(state);
    char *root = temporary_make();
    char *path = by__path_join(root, "step-00000005");
    checkpoint_content c = content(0);
    by_error error = {0};
    char **names;
    size_t count;
    check(save_together(root, &c, -1, &error), &error);
    assert_int_equal(by__list_dir(&names, &count, path, NULL), BY_OK);
    for (size_t i = 0; i < 2 * count; i++) {
        by_checkpoint *checkpoint;
        char *file = by__path_join(path, names[i / 2]);
        if (i % 2 == 0) {
            flip(path, names[i / 2]);
        } else {
            assert_int_equal(truncate(file, 5), 0);
        }
        assert_int_equal(by_checkpoint_open(&checkpoint, path, true, &error), BY_EFORMAT);
        if (strstr(error.message, names[i / 2]) == NULL) {
            fail_msg("'%s' does not name %s", error.message, names[i / 2]);
        }
        if (i % 2 == 0) {
            flip(path, names[i / 2]);
        } else {
            check(save_together(root, &c, -1, &error), &error);
        }
        free(file);
    }
    by__names_free(names, count);
    free(path);
    temporary_remove(root);
}

static void a_spoiled_part_is_not_committed(void **state)
{
    BY_UNUSED(state);
    static const struct {
        void (*spoil)(const char *directory);
        const char *message;
    } cases[] = {
        {cut_a_part, "model-00002-of-00003.safetensors has 100 bytes"},
        {flip_slices, "slices-1 is corrupt"},
        {flip_files, "files-2: the first line must hold"},
        {swap_writers, "slices-1 is missing"},
    };
    char *root = temporary_make();
    checkpoint_content c = content(0);
    by_error error = {0};
    char **names;
    size_t count;
    check(checkpoint_write(root, 4, &c, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        assert_int_equal(save_with(root, &c, -1, cases[i].spoil, &error), BY_EFORMAT);
        if (strstr(error.message, cases[i].message) == NULL) {
            fail_msg("'%s' is not in '%s'", cases[i].message, error.message);
        }
        assert_non_null(strstr(error.message, "earlier checkpoints are intact"));
        assert_int_equal(by__list_dir(&names, &count, root, NULL), BY_OK);
        assert_int_equal(count, 2); /* .lock and step-00000004 */
        by__names_free(names, count);
    }
    temporary_remove(root);
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
        by_checkpoint_layout layout = layout_of_writer(&c, 0);
        if (by_checkpoint_begin(&w, root, 5, &layout, NULL) == BY_OK) {
            (void)add_parts(w, 0, false, true, NULL);
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
    p->status = add_parts(p->writer, p->rank, true, false, NULL);
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
    by_checkpoint_layout layout = layout_of_writer(&c, 1);
    by_checkpoint_writer *first;
    by_checkpoint_writer *second;
    by_error error = {0};
    assert_int_equal(by_checkpoint_join(&second, root, 5, &layout, 1, 7, &error), BY_ESTATE);
    assert_non_null(strstr(error.message, "no process has begun"));
    assert_int_equal(by_checkpoint_join(&second, root, 5, &layout, 0, 7, &error), BY_EARG);
    assert_int_equal(by_checkpoint_join(&second, root, 5, &layout, 3, 7, &error), BY_EARG);
    check(by_checkpoint_begin(&first, root, 5, &layout, &error), &error);
    assert_int_equal(by_checkpoint_begin(&second, root, 6, &layout, &error), BY_ESTATE);
    assert_non_null(strstr(error.message, "another process is writing checkpoints"));
    /* What is left of an earlier attempt does not come in between. */
    uint64_t token = by_checkpoint_token(first);
    assert_int_equal(by_checkpoint_join(&second, root, 5, &layout, 1, token + 1, &error),
                     BY_ESTATE);
    check(by_checkpoint_join(&second, root, 5, &layout, 1, token, &error), &error);
    assert_int_equal(by_checkpoint_commit(&second, NULL, 0, NULL, 0, &error), BY_ESTATE);
    assert_null(second);
    assert_int_equal(by_checkpoint_finish(&first, &error), BY_ESTATE);
    assert_null(first);
    by_checkpoint_abandon(&first);
    temporary_remove(root);
}

static void wrong_parts_are_refused(void **state)
{
    BY_UNUSED(state);
    static const struct {
        by_checkpoint_part part;
        int writers;
        const char *message;
    } cases[] = {
        {{5, {.shape = {1}}}, 2, "part 0: tensor 5 of 5"},
        {{1, {.flat = true, .offset = {3}}}, 2, "tensor 'a.vector': part 0 is empty"},
        {{1, {.offset = {3}, .shape = {ROWS}}}, 2, "3 + 12 along axis 0"},
        {{1, {.shape = {ROWS}}}, 1, "one writer alone writes all"},
    };
    char *root = temporary_make();
    checkpoint_content c = content(0);
    by_checkpoint_writer *w;
    by_error error = {0};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_checkpoint_layout layout = layout_of(&c, cases[i].writers);
        layout.parts = &cases[i].part;
        layout.part_count = 1;
        assert_int_equal(by_checkpoint_begin(&w, root, 5, &layout, &error), BY_EARG);
        if (strstr(error.message, cases[i].message) == NULL) {
            fail_msg("'%s' is not in '%s'", cases[i].message, error.message);
        }
    }
    by_checkpoint_layout layout = layout_of_writer(&c, 0);
    by_tensor_slice whole = by_tensor_whole(&model[1]);
    check(by_checkpoint_begin(&w, root, 5, &layout, &error), &error);
    assert_int_equal(by_checkpoint_add(w, 1, &whole, vector, &error), BY_EARG);
    assert_non_null(strstr(error.message, "one of 3 writers adds its parts, not slices"));
    assert_int_equal(by_checkpoint_add_part(w, 3, vector, &error), BY_EARG);
    assert_non_null(strstr(error.message, "part 3 of 3"));
    by_checkpoint_abandon(&w);
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
    assert_int_equal(by__checkpoint_step_path(&path, root, step, NULL), BY_OK);
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
    assert_non_null(strstr(
        error.message,
        "model.safetensors is missing; the manifest says that it is shared with step-00000001"));
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
    /* Nothing is added to what is referenced. */
    by_tensor_slice whole = by_tensor_whole(&model[1]);
    check(by_checkpoint_begin(&w, root, 2, &layout, &error), &error);
    check(by_checkpoint_reference(w, "model.safetensors", 1, &error), &error);
    assert_int_equal(by_checkpoint_add(w, 1, &whole, matrix, &error), BY_ESTATE);
    assert_non_null(strstr(error.message, "model.safetensors is whole already"));
    by_checkpoint_abandon(&w);
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
        cmocka_unit_test(several_processes_write_what_one_does),
        cmocka_unit_test(a_spoiled_part_is_not_committed),
        cmocka_unit_test(any_spoiled_file_is_found),
        cmocka_unit_test(a_writer_that_dies_leaves_no_checkpoint),
        cmocka_unit_test(threads_and_any_order_give_the_same_bytes),
        cmocka_unit_test(parts_must_make_up_the_whole),
        cmocka_unit_test(roles_are_checked),
        cmocka_unit_test(wrong_parts_are_refused),
        cmocka_unit_test(references_are_read_and_kept),
        cmocka_unit_test(bad_references_are_refused),
        cmocka_unit_test(slices_are_read_as_f32),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
