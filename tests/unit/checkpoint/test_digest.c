/* Digests: the SHA-256 of tensors that the header promises, whatever files they are in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoint/storage.h"
#include "checkpoints.h"
#include "temporary.h"

static const float matrix[6] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 2.5f};
static const float scalar[1] = {4.0f};
static const uint16_t half[3] = {0x3f80, 0x3f81, 0x3f82};
static const float moments[6] = {-0.0f, -1.0f, -2.0f, -3.0f, -4.0f, -5.0f};

static const by_tensor_view model[] = {{"w", BY_F32, 2, {2, 3}, matrix},
                                       {"a.scalar", BY_F32, 0, {0}, scalar},
                                       {"half", BY_BF16, 1, {3}, half},
                                       {"empty", BY_F32, 2, {0, 4}, NULL}};
static const by_tensor_view optimizer[] = {{"m.w", BY_F32, 2, {2, 3}, moments}};

/* Computed by Python's hashlib. */
static const struct {
    const char *name;
    const char *dtype;
    const char *sha256;
} expected[] = {
    {"a.scalar", "F32", "c39eea8ae0090d4d1cc59dbb4055478ab250126bb94ea767d191ed698ce46158"},
    {"empty", "F32", "c1060780f681254ece54cdb7b94ad9d3e5d613afbe31087fb6c3890bf48b56d6"},
    {"half", "BF16", "ce0c932e8074ef8436acb3624f28e1645f63df30c60991df7acc4f0b4c7431a5"},
    {"w", "F32", "f6782246718c286d21c3a2c301460a29a100187b238f3435b465989e5e2940bf"},
    {"m.w", "F32", "3d43114b385d71162c3b6c3fa1ed58511586166e97519528d257ae008c15ab43"},
};
static const char model_sha256[] =
    "7f83b8a5bc3537d505ad990e2d4f2a5bdfe25d80411682844640db3d5fc3ca66";
static const char optimizer_sha256[] =
    "3d6bf167276af952d29a33f15d2bfb9e6e71d432038146826e0ca7678ba46516";
static const char all_sha256[] = "5fac37fe72b19f08d8f7b79a42a8e9e6199e11eb224fa6dd6efde440af214b39";

static by_digest digest_of(const char *path, int threads)
{
    by_digest digest;
    by_error error = {0};
    if (by_checkpoint_digest(&digest, path, threads, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return digest;
}

static void check_model(const by_digest *digest)
{
    assert_int_equal(digest->model_count, 4);
    assert_string_equal(digest->model, model_sha256);
    for (size_t i = 0; i < digest->count; i++) {
        assert_string_equal(digest->tensors[i].name, expected[i].name);
        assert_string_equal(digest->tensors[i].dtype, expected[i].dtype);
        assert_string_equal(digest->tensors[i].sha256, expected[i].sha256);
    }
}

static void a_checkpoint_has_the_promised_hashes(void **state)
{
    BY_UNUSED(state);
    static const uint64_t shard_bytes[] = {0, 30, 1};
    const by_tensor_view backwards[] = {model[3], model[2], model[1], model[0]};
    for (size_t i = 0; i < 6; i++) {
        char *root = temporary_make();
        char *path;
        by_error error = {0};
        const checkpoint_content c = {.model = i < 3 ? model : backwards,
                                      .model_count = 4,
                                      .optimizer = optimizer,
                                      .optimizer_count = 1,
                                      .shard_bytes = shard_bytes[i % 3]};
        assert_int_equal(checkpoint_write(root, 7, &c, &error), BY_OK);
        assert_int_equal(by__checkpoint_step_path(&path, root, 7, NULL), BY_OK);
        for (int k = 0; k < 2; k++) { /* the root, the checkpoint */
            by_digest digest = digest_of(k == 0 ? root : path, k == 0 ? 1 : 3);
            assert_string_equal(digest.path, path);
            assert_int_equal(digest.count, 5);
            check_model(&digest);
            assert_int_equal(digest.tensors[3].rank, 2);
            assert_int_equal(digest.tensors[3].shape[1], 3);
            assert_string_equal(digest.optimizer, optimizer_sha256);
            assert_string_equal(digest.all, all_sha256);
            by_digest_free(&digest);
        }
        free(path);
        temporary_remove(root);
    }
}

static void plain_weights_have_the_same(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    by_error error = {0};
    for (int shards = 0; shards < 2; shards++) {
        assert_int_equal(by_weights_write(directory, model, 4, shards == 0 ? 0 : 20, &error),
                         BY_OK);
        by_digest digest = digest_of(directory, 0);
        assert_int_equal(digest.count, 4);
        check_model(&digest);
        assert_string_equal(digest.optimizer, "");
        assert_string_equal(digest.all, model_sha256);
        by_digest_free(&digest);
    }
    temporary_remove(directory);
    /* Types that banyan does not compute with are hashed as well. */
    by_digest digest = digest_of(BY_SOURCE_DIR "/tests/parity/golden/foreign.safetensors", 2);
    assert_true(digest.count > 2);
    by_digest_free(&digest);
}

static void a_flipped_bit_is_an_error(void **state)
{
    BY_UNUSED(state);
    char *root = temporary_make();
    by_error error = {0};
    by_digest digest;
    const checkpoint_content c = {.model = model, .model_count = 4};
    assert_int_equal(checkpoint_write(root, 7, &c, &error), BY_OK);
    char *file = by__path_join(root, "step-00000007/model.safetensors");
    FILE *f = fopen(file, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    assert_int_equal(fputc(byte ^ 1, f), byte ^ 1);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(by_checkpoint_digest(&digest, root, 0, &error), BY_ESTATE);
    assert_non_null(strstr(error.message, "model.safetensors is corrupt"));
    char *path = by__path_join(root, "step-00000007");
    assert_int_equal(by_checkpoint_digest(&digest, path, 0, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "model.safetensors is corrupt"));
    assert_int_equal(by_checkpoint_digest(&digest, "/nonexistent", 0, &error), BY_EIO);
    free(path);
    free(file);
    temporary_remove(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_has_the_promised_hashes),
        cmocka_unit_test(plain_weights_have_the_same),
        cmocka_unit_test(a_flipped_bit_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
