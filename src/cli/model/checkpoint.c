#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/checkpoint.h"
#include "banyan/train.h"
#include "base/cli.h"
#include "model/checkpoint.h"

/* Finds the checkpoints of a run, or uses `path` itself. Freed with free(). */
static by_status find(char **out, const char *path, by_error *error)
{
    char *run;
    if (by_run_find(&run, path, NULL) != BY_OK) {
        *out = strdup(path);
    } else {
        size_t length = strlen(run) + sizeof "/checkpoints";
        *out = malloc(length);
        if (*out != NULL) {
            (void)snprintf(*out, length, "%s/checkpoints", run);
        }
        free(run);
    }
    return *out != NULL ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: a path");
}

/* Prints a shape: "[768,3072]". */
static void print_shape(const by_tensor_digest *tensor)
{
    putchar('[');
    for (int i = 0; i < tensor->rank; i++) {
        printf("%s%" PRId64, i == 0 ? "" : ",", tensor->shape[i]);
    }
    putchar(']');
}

static void print_text(const by_digest *digest)
{
    for (size_t i = 0; i < digest->count; i++) {
        const by_tensor_digest *t = &digest->tensors[i];
        printf("%s\t%s\t", t->sha256, t->dtype);
        print_shape(t);
        printf("\t");
        cli_print_cell(t->name);
        printf("\n");
    }
    printf("%s\tmodel\n", digest->model);
    if (digest->optimizer[0] != '\0') {
        printf("%s\toptimizer\n", digest->optimizer);
    }
    printf("%s\tall\n", digest->all);
}

static void print_json(const by_digest *digest)
{
    printf("{\"path\":");
    cli_print_json_string(digest->path);
    printf(",\"all\":\"%s\",\"model\":\"%s\"", digest->all, digest->model);
    if (digest->optimizer[0] != '\0') {
        printf(",\"optimizer\":\"%s\"", digest->optimizer);
    }
    printf(",\"tensors\":[");
    for (size_t i = 0; i < digest->count; i++) {
        const by_tensor_digest *t = &digest->tensors[i];
        printf("%s{\"name\":", i == 0 ? "" : ",");
        cli_print_json_string(t->name);
        printf(",\"part\":\"%s\",\"dtype\":\"%s\",\"shape\":",
               i < digest->model_count ? "model" : "optimizer", t->dtype);
        print_shape(t);
        printf(",\"sha256\":\"%s\"}", t->sha256);
    }
    printf("]}\n");
}

static by_status print_digest(const char *path, bool json, by_error *error)
{
    char *found;
    by_digest digest;
    if (find(&found, path, error) != BY_OK) {
        return error->status;
    }
    by_status status = by_checkpoint_digest(&digest, found, 0, error);
    free(found);
    if (status == BY_OK) {
        if (json) {
            print_json(&digest);
        } else {
            print_text(&digest);
        }
        by_digest_free(&digest);
    }
    return status;
}

/* The flags, and the requested action. */
typedef struct checkpoint_request {
    bool json;
    bool dry_run;
    bool ema;
    int64_t keep;
    int64_t keep_best;
    int64_t keep_every;
    const char *adapter;
    char **paths;
    int code; /* exit code if nothing fails */
} checkpoint_request;

static by_status do_digest(checkpoint_request *r, by_error *error)
{
    return print_digest(r->paths[0], r->json, error);
}

/* Prints what was written to a directory. */
static by_status print_merged(const char *directory, bool json, by_error *error)
{
    by_weights *weights;
    by_status status = by_weights_open(&weights, directory, error);
    if (status != BY_OK) {
        return status;
    }
    size_t count = by_weights_count(weights);
    size_t total = 0;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        by_tensor_view view;
        size_t bytes = 0;
        status = by_weights_tensor(weights, by_weights_name(weights, i), &view, error);
        if (status == BY_OK) {
            status = by_tensor_size(&view, NULL, &bytes, error);
        }
        total += bytes;
    }
    by_weights_close(&weights);
    if (status == BY_OK && json) {
        printf("{\"output\":");
        cli_print_json_string(directory);
        printf(",\"tensors\":%zu,\"bytes\":%zu}\n", count, total);
    } else if (status == BY_OK) {
        printf("%s: %zu tensors, %.1f MB\n", directory, count, (double)total / 1e6);
    }
    return status;
}

static by_status do_merge(checkpoint_request *r, by_error *error)
{
    char *found;
    if (find(&found, r->paths[0], error) != BY_OK) {
        return error->status;
    }
    by_status status = by_checkpoint_merge(found, r->paths[1], 0, r->ema, r->adapter, error);
    free(found);
    return status == BY_OK ? print_merged(r->paths[1], r->json, error) : status;
}

static by_status list(checkpoint_request *r, bool verify, by_error *error)
{
    char *found;
    bool all_valid = true;
    if (find(&found, r->paths[0], error) != BY_OK) {
        return error->status;
    }
    by_status status = cli_checkpoint_list(found, verify, r->json, &all_valid, error);
    r->code = verify && !all_valid ? CLI_FAILED : CLI_DONE;
    free(found);
    return status;
}

static by_status do_list(checkpoint_request *r, by_error *error)
{
    return list(r, false, error);
}

static by_status do_verify(checkpoint_request *r, by_error *error)
{
    return list(r, true, error);
}

static by_status do_prune(checkpoint_request *r, by_error *error)
{
    char *found;
    const by_retention retention = {.keep = (size_t)r->keep,
                                    .keep_best = (size_t)r->keep_best,
                                    .keep_every = (uint64_t)r->keep_every,
                                    .last = UINT64_MAX,
                                    .verify = true,
                                    .is_dry_run = r->dry_run};
    if (find(&found, r->paths[0], error) != BY_OK) {
        return error->status;
    }
    by_status status = cli_checkpoint_prune(found, &retention, r->json, error);
    free(found);
    return status;
}

static by_status do_diff(checkpoint_request *r, by_error *error)
{
    char *first;
    char *second = NULL;
    bool differs = false;
    if (find(&first, r->paths[0], error) != BY_OK) {
        return error->status;
    }
    by_status status = find(&second, r->paths[1], error);
    if (status == BY_OK) {
        status = cli_checkpoint_diff(first, second, r->json, &differs, error);
    }
    r->code = differs ? CLI_FAILED : CLI_DONE;
    free(first);
    free(second);
    return status;
}

static const struct deed {
    const char *name;
    int paths;
    int inputs; /* of these, first */
    by_status (*run)(checkpoint_request *r, by_error *error);
} deeds[] = {{"ls", 1, 1, do_list},   {"verify", 1, 1, do_verify}, {"prune", 1, 1, do_prune},
             {"diff", 2, 2, do_diff}, {"digest", 1, 1, do_digest}, {"merge", 2, 1, do_merge}};

static int run(int argc, char **argv)
{
    checkpoint_request r = {.keep = 3};
    const cli_flag flags[] = {
        {"json", CLI_SWITCH, &r.json, NULL,
         "print one JSON line per checkpoint or tensor; for digest and merge, one in all"},
        {"keep", CLI_INTEGER_FROM(1), &r.keep, "N",
         "prune: keep the N newest checkpoints (default 3)"},
        {"keep-best", CLI_INTEGER_FROM(0), &r.keep_best, "N",
         "prune: keep also the N with the lowest validation loss (default 0)"},
        {"keep-every", CLI_INTEGER_FROM(0), &r.keep_every, "N",
         "prune: keep also those of steps that are multiples of N (default 0: none)"},
        {"ema", CLI_SWITCH, &r.ema, NULL,
         "merge: use the moving average of the weights (optimizer.ema)"},
        {"adapter", CLI_INPUT, &r.adapter, "DIR", "merge: " CLI_ADAPTER_HELP},
        {"dry-run", CLI_SWITCH, &r.dry_run, NULL,
         "prune: print what would be removed, and remove nothing"},
        {0}};
    char **rest;
    int count;
    by_error error = {0};
    int code = cli_parse(&cli_checkpoint, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++) {
        if (count == deeds[i].paths + 1 && strcmp(rest[0], deeds[i].name) == 0) {
            r.paths = rest + 1;
            code = cli_check_inputs(&cli_checkpoint, r.paths, deeds[i].inputs);
            if (code >= 0) {
                return code;
            }
            return deeds[i].run(&r, &error) == BY_OK ? r.code : cli_fail(&cli_checkpoint, &error);
        }
    }
    return cli_misuse(
        &cli_checkpoint,
        "name an action: ls, verify, prune or digest DIR, diff DIR DIR, or merge DIR OUT");
}

const cli_command cli_checkpoint = {
    .name = "checkpoint",
    .summary = "list, verify, prune, compare, hash and merge checkpoints",
    .usage = "banyan checkpoint ls | verify | prune | digest DIR\n"
             "       banyan checkpoint diff DIR DIR\n"
             "       banyan checkpoint merge DIR OUT [--ema] [--adapter DIR]",
    .text =
        "Lists, verifies, prunes, compares, hashes and merges checkpoints. DIR is a run (diff,\n"
        "digest and merge use its newest checkpoint) or a checkpoint; diff, digest and merge\n"
        "also take a model directory in Hugging Face form.\n"
        "\n"
        "examples:\n"
        "  banyan checkpoint ls runs/shakespeare\n"
        "  banyan checkpoint prune runs/shakespeare --keep 1 --keep-every 1000 --dry-run\n"
        "  banyan checkpoint diff runs/a runs/b\n"
        "  banyan checkpoint digest runs/shakespeare | tail -n 1\n"
        "  banyan checkpoint merge runs/shakespeare shakespeare-hf\n"
        "\n"
        "ls lists the checkpoints of a run: files, size, bytes that no other checkpoint shares,\n"
        "validation loss, and whether all files exist.\n"
        "\n"
        "verify does the same after comparing every checksum. Exit code 1: a checkpoint is not\n"
        "valid.\n"
        "\n"
        "prune removes all valid checkpoints except the newest --keep, the best one, those that\n"
        "--keep-best and --keep-every select, and those that these refer to. Only checkpoints\n"
        "with correct checksums count as newest.\n"
        "\n"
        "diff prints the largest |a - b| and the largest |a - b| / max(|a|, |b|) of each\n"
        "tensor. Exit code 1: something differs.\n"
        "\n"
        "digest prints the SHA-256 of each tensor, of the model, of the optimizer state, and of\n"
        "everything. The hashes do not depend on how tensors are divided among files or on how\n"
        "many ranks wrote them: equal hashes mean equal weights. include/banyan/checkpoint.h\n"
        "defines them; for a NumPy tensor in Python:\n"
        "\n"
        "  sha256(b'%s\\0%s\\0%s\\0' % (name, b'F32', b'768,3072') + tensor.tobytes())\n"
        "\n"
        "merge writes the model to a new directory OUT in Hugging Face form, with config.json\n"
        "and the tokenizer, which transformers loads. It is needed only for checkpoints that\n"
        "several ranks wrote in slices, and to merge LoRA adapters into the weights: those of\n"
        "the checkpoint, or those of --adapter. Each matrix becomes W + alpha / r B A, added in\n"
        "f32 and rounded once to the type of W; a result that is not finite is refused. To resume\n"
        "a run, no merge is needed: any number of ranks resumes from any checkpoint.",
    .run = run};
