#include <errno.h>
#include <math.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "banyan/infer.h"
#include "banyan/train.h"
#include "base/node_choice.h"

/* Windows between progress lines. */
#define PROGRESS 16

typedef struct predict_request {
    const char *file;
    const char *const *more; /* further files of images */
    size_t more_count;
    const char *out;   /* file for the predictions; NULL: standard output */
    const char *masks; /* folder for pictures that are predicted; NULL: they are left out */
    void *named;       /* tree of the names of those written, without ending */
    by_error failed;   /* to write one */
    const char *device;
    const char *yields; /* output of the model; NULL: what the task predicts */
    cli_node_choice nodes;
    bool best;
    bool anomaly; /* tells how odd the rows of series are */
    bool skip;    /* leaves out pictures that cannot be read */
    bool csv;
    bool has_header;
    bool tells;       /* shows on a terminal how much of a text was read */
    int64_t context;  /* tokens of a window */
    uint64_t windows; /* read since the last line */
} predict_request;

/* Prints a CSV cell (RFC 4180). */
static void print_cell(const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text != '\0'; text++) {
        if (*text == '"') {
            putchar('"');
        }
        putchar(*text);
    }
    putchar('"');
}

/* Prints [1,2], or of CSV 1,2. */
static void print_list(const by_field *field, bool csv)
{
    char text[32];
    fputs(csv ? "" : "[", stdout);
    for (size_t i = 0; i < field->list_count; i++) {
        double number = (double)field->list[i];
        fputs(i == 0 ? "" : ",", stdout);
        if (!csv || isfinite(number)) {
            fputs(cli_json_number(text, number, 9), stdout);
        }
    }
    fputs(csv ? "" : "]", stdout);
}

static void print_value(const by_field *field, bool csv)
{
    char text[32];
    if (field->list != NULL) {
        print_list(field, csv);
    } else if (field->text != NULL) {
        csv ? print_cell(field->text) : cli_print_json_string(field->text);
    } else if (field->is_whole) {
        printf("%.0f", field->number);
    } else if (!csv || isfinite(field->number)) { /* a missing number is an empty cell */
        fputs(cli_json_number(text, field->number, 9), stdout);
    }
}

/* The name of a field, or for a list NAME_0,NAME_1,... */
static void print_head(const by_field *field)
{
    if (field->list == NULL) {
        print_cell(field->name);
    }
    for (size_t i = 0; i < field->list_count; i++) {
        printf("%s%s_%zu", i == 0 ? "" : ",", field->name, i);
    }
}

/* ---- pictures ---- */

/* Example of which a picture is predicted. */
typedef struct mask_source {
    const char *file;   /* NULL: a row of an array */
    const char *sample; /* of a shard; NULL: none */
    double index;
} mask_source;

static mask_source find_source(const by_field *fields, size_t count)
{
    mask_source of = {.file = NULL};
    for (size_t i = 0; i < count; i++) {
        bool is_text = fields[i].text != NULL && fields[i].text[0] != '\0';
        if (is_text && strcmp(fields[i].name, "file") == 0) {
            of.file = fields[i].text;
        } else if (is_text && strcmp(fields[i].name, "sample") == 0) {
            of.sample = fields[i].text;
        } else if (strcmp(fields[i].name, "index") == 0) {
            of.index = fields[i].number;
        }
    }
    return of;
}

/* The path of a file within the folder that was named, or its name. */
static const char *path_within(const predict_request *r, const char *file)
{
    for (size_t i = 0; i <= r->more_count; i++) {
        const char *named = i == 0 ? r->file : r->more[i - 1];
        size_t n = strlen(named);
        if (strncmp(file, named, n) == 0 && (file[n] == '/' || (n > 0 && named[n - 1] == '/'))) {
            return file + n + strspn(file + n, "/");
        }
    }
    if (r->more_count > 0) { /* several files may have one name, in folders of theirs */
        return file + strspn(file, "./");
    }
    const char *slash = strrchr(file, '/');
    return slash == NULL ? file : slash + 1;
}

/* The stem of a picture's path; of a sample its name, behind the stem of its shard if there are
 * several shards; or the number of an example in an array. _ stands between folders. */
static void name_mask(char *out, size_t size, const predict_request *r, const mask_source *of)
{
    int start = snprintf(out, size, "%s/", r->masks);
    char *name = out + start;
    size -= (size_t)start;
    bool in_one = of->sample != NULL && r->more_count == 0 && strcmp(of->file, r->file) == 0;
    if (of->file == NULL) {
        (void)snprintf(name, size, "%06.0f", of->index);
    } else if (in_one) {
        (void)snprintf(name, size, "%s", of->sample);
    } else {
        const char *within = path_within(r, of->file);
        const char *slash = strrchr(within, '/');
        const char *dot = strrchr(slash == NULL ? within : slash, '.');
        int stem = dot == NULL ? (int)strlen(within) : (int)(dot - within);
        (void)snprintf(name, size, "%.*s%s%s", stem, within, of->sample == NULL ? "" : "_",
                       of->sample == NULL ? "" : of->sample);
    }
    for (char *c = name; *c != '\0'; c++) {
        *c = *c == '/' ? '_' : *c;
    }
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void free_names(void **tree)
{
    while (*tree != NULL) {
        char *name = *(char **)*tree;
        (void)tdelete(name, tree, compare_names);
        free(name);
    }
}

/* The path of a mask that no other picture has: where names are equal, as those of a.png and a.jpg,
 * the later one gets the number of its example, too. false: out of memory. */
static bool choose_mask(char *out, size_t size, predict_request *r, const mask_source *of)
{
    size_t kept = size - sizeof ".png";
    name_mask(out, kept, r, of);
    while (tfind(out, &r->named, compare_names) != NULL) {
        size_t length = strlen(out);
        if (snprintf(out + length, kept - length, "-%.0f", of->index) >= (int)(kept - length)) {
            break; /* no file has so long a name */
        }
    }
    char *name = strdup(out);
    char **found = name == NULL ? NULL : tsearch(name, &r->named, compare_names);
    if (found == NULL || *found != name) {
        free(name);
    }
    memcpy(out + strlen(out), ".png", sizeof ".png");
    return found != NULL;
}

/* Writes the picture of a prediction, and puts the name of its file in the place of it. Returns the
 * number of fields that are left. */
static size_t write_masks(predict_request *r, by_field *out, char *path, size_t size,
                          const by_field *fields, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        out[kept] = fields[i];
        if (fields[i].png == NULL) {
            kept++;
        } else if (r->masks != NULL) {
            const mask_source of = find_source(fields, count);
            errno = ENOMEM;
            FILE *file = choose_mask(path, size, r, &of) ? fopen(path, "wb") : NULL;
            bool good = file != NULL &&
                        fwrite(fields[i].png, 1, fields[i].png_size, file) == fields[i].png_size;
            good = (file == NULL || fclose(file) == 0) && good;
            if (!good && r->failed.status == BY_OK) {
                (void)by_error_set(&r->failed, BY_EIO, "cannot write %s: %s", path,
                                   strerror(errno));
            }
            out[kept++] = (by_field){.name = fields[i].name, .text = path};
        }
    }
    return kept;
}

static void print_csv(predict_request *r, const by_field *fields, size_t count)
{
    for (size_t i = 0; i < count && !r->has_header; i++) {
        fputs(i == 0 ? "" : ",", stdout);
        print_head(&fields[i]);
        fputs(i + 1 == count ? "\n" : "", stdout);
    }
    r->has_header = true;
    for (size_t i = 0; i < count; i++) {
        fputs(i == 0 ? "" : ",", stdout);
        print_value(&fields[i], true);
    }
    putchar('\n');
}

static void end_progress(predict_request *r)
{
    if (r->tells && r->windows > 1) {
        fprintf(stderr, "\r\033[K");
    }
    r->windows = 0;
}

/* Called before each batch; for a text, before each window, of which many may pass without
 * output. */
static bool next_batch(void *user)
{
    predict_request *r = user;
    if (r->failed.status != BY_OK) {
        return true;
    }
    if (r->tells && r->windows % PROGRESS == 1) {
        fprintf(stderr, "\r\033[Kread  %llu windows of %lld tokens", (unsigned long long)r->windows,
                (long long)r->context);
    }
    r->windows++;
    return cli_stop_requested(NULL);
}

/* A series of which there is no prediction: {"shop":"north","skipped":"3 rows, ..."}. */
static bool is_skipped(const by_field *fields, size_t count)
{
    return count == 2 && fields[1].text != NULL && strcmp(fields[1].name, "skipped") == 0;
}

static void print_line(void *user, const by_field *fields, size_t count)
{
    predict_request *r = user;
    by_field kept[16];
    char path[4096];
    end_progress(r);
    if (is_skipped(fields, count)) {
        fprintf(stderr, "warning: %s %s is skipped: it has %s\n", fields[0].name, fields[0].text,
                fields[1].text);
        if (r->csv) {
            return; /* it has no such column */
        }
    }
    if (count <= sizeof kept / sizeof kept[0]) {
        count = write_masks(r, kept, path, sizeof path, fields, count);
        fields = kept;
    }
    if (r->csv) {
        print_csv(r, fields, count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        fputs(i == 0 ? "{" : ",", stdout);
        cli_print_json_string(fields[i].name);
        putchar(':');
        print_value(&fields[i], false);
    }
    printf("}\n");
}

static bool reads_images(const by_config *config)
{
    return strcmp(by_model_reads(&config->model), "images") == 0;
}

static by_status set_skip(const predict_request *r, by_config *config, by_error *error)
{
    if (!r->skip) {
        return BY_OK;
    }
    return reads_images(config)
               ? by_config_set(config, "data.corrupt=skip", error)
               : by_error_set(error, BY_ECONFIG,
                              "--skip leaves out pictures; this model reads %s, whose predictions "
                              "are matched to the file by number: mend the file",
                              strcmp(by_model_reads(&config->model), "table") == 0 ? "rows"
                                                                                   : "text");
}

static by_status set_anomaly(const predict_request *r, by_config *config, by_error *error)
{
    if (!r->anomaly) {
        return BY_OK;
    }
    config->train.eval_batches = -1;
    return strcmp(config->task.kind, "forecast") == 0
               ? by_config_set(config, "task.anomaly=true", error)
               : by_error_set(error, BY_EARG, "--anomaly is of task.kind forecast, not %s",
                              config->task.kind);
}

/* Of many pictures that the model could read, one is damaged, which the message begins with; where
 * there is none, none can be left out. */
static void hint_skip(const predict_request *r, const by_config *config, by_status status,
                      by_error *error)
{
    char message[sizeof error->message];
    bool damaged = strstr(error->message, ", sample ") != NULL;
    for (size_t i = 0; i <= r->more_count && r->file != NULL; i++) {
        struct stat info;
        const char *named = i == 0 ? r->file : r->more[i - 1];
        bool many = r->more_count > 0 || (stat(named, &info) == 0 && S_ISDIR(info.st_mode));
        damaged = damaged || (many && strncmp(error->message, named, strlen(named)) == 0);
    }
    bool none = strstr(error->message, " has no picture (.png") != NULL;
    if (status != BY_OK && damaged && !none && !r->skip && reads_images(config)) {
        memcpy(message, error->message, sizeof message);
        (void)by_error_set(error, status, "%s (--skip leaves such pictures out)", message);
    }
}

static by_status predict(void *user, const by_pretrained *model, const char *run, by_error *error)
{
    predict_request *r = user;
    by_task_data *data = NULL;
    by_config *config;
    cli_spool spool = {.path = NULL};
    by_status status = cli_copy_config(&config, model, error);
    if (status != BY_OK) {
        return status;
    }
    status = set_skip(r, config, error);
    if (status == BY_OK) {
        status = set_anomaly(r, config, error);
    }
    by_task_request what = {.purpose = r->anomaly ? BY_TASK_EVALUATE : BY_TASK_PREDICT,
                            .path = r->file,
                            .more = r->more,
                            .more_count = r->more_count};
    if (status == BY_OK) {
        status = cli_choose_nodes(config, &what, &r->nodes, error);
    }
    if (status == BY_OK) {
        status = cli_open_task_data(&data, &spool, config, model, run, &what, error);
        hint_skip(r, config, status, error);
    }
    if (status == BY_OK) {
        status = by_task_complete(data, config, error);
    }
    if (status == BY_OK && r->masks != NULL && mkdir(r->masks, 0777) != 0 && errno != EEXIST) {
        status = by_error_set(error, BY_EIO, "cannot make %s: %s", r->masks, strerror(errno));
    }
    if (status == BY_OK) {
        status = cli_redirect(r->out, error);
    }
    if (status == BY_OK) {
        r->tells = isatty(STDERR_FILENO) != 0 && strcmp(data->task->examples, "tokens") == 0;
        r->context = config->model.context;
        const by_weights *weights = by_pretrained_weights(model);
        status = r->yields != NULL
                     ? by_predict_output(config, weights, data, r->yields, print_line, next_batch,
                                         r, error)
                     : by_predict(config, weights, data, print_line, next_batch, r, error);
        end_progress(r);
        if (r->failed.status != BY_OK) {
            status = by_error_set(error, r->failed.status, "%s", r->failed.message);
        }
        cli_tell_written(status == BY_OK ? r->out : NULL);
    }
    free_names(&r->named);
    by_task_close(&data);
    cli_spool_close(&spool);
    cli_node_choice_free(&r->nodes);
    by_config_close(&config);
    return status;
}

static int run(int argc, char **argv)
{
    predict_request r = {0};
    bool json = false;
    const cli_flag flags[] = {
        {"csv", CLI_SWITCH, &r.csv, NULL, "print CSV with a header instead of JSON lines"},
        {"out", CLI_STRING, &r.out, "FILE", "write the predictions to a file"},
        {"json", CLI_SWITCH, &json, NULL, "print JSON lines, which is the default"},
        {"masks", CLI_STRING, &r.masks, "DIR",
         "write the classes of the pixels of each image as a PNG with a palette to this folder"},
        {"yields", CLI_STRING, &r.yields, "NAME",
         "print the numbers of an output of a model of images or tables instead, such as features"},
        {"anomaly", CLI_SWITCH, &r.anomaly, NULL,
         "tell how odd each row of series is, from the error of its forecast by the rows before "
         "it"},
        {"skip", CLI_SWITCH, &r.skip, NULL,
         "leave out pictures that cannot be read, and name them, instead of failing"},
        {"nodes", CLI_STRING, &r.nodes.list, "N,N,...", CLI_NODES_HELP},
        {"graph", CLI_INPUT, &r.nodes.graph, "FILE", CLI_GRAPH_HELP},
        {"features", CLI_INPUT, &r.nodes.features, "FILE", CLI_NODE_FEATURES_HELP},
        {"device", CLI_STRING, &r.device, "NAME", CLI_DEVICE_HELP},
        {"best", CLI_SWITCH, &r.best, NULL, CLI_BEST_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_predict, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count == 1) {
        return cli_with_pretrained(&cli_predict, rest[0], r.device, r.best, false, NULL, predict,
                                   &r);
    }
    if (count < 2) {
        return cli_misuse(&cli_predict, "name one run directory and one file, or several images");
    }
    if (r.nodes.list != NULL) {
        return cli_misuse(&cli_predict, "choose one of --nodes and a file of nodes");
    }
    if (r.csv && json) {
        return cli_misuse(&cli_predict, "choose one of --csv and --json");
    }
    bool is_stream = count == 2 && strcmp(rest[1], "-") == 0;
    if (!is_stream && (code = cli_check_inputs(&cli_predict, rest + 1, count - 1)) >= 0) {
        return code;
    }
    r.file = rest[1];
    r.more = (const char *const *)rest + 2;
    r.more_count = (size_t)count - 2;
    return cli_with_pretrained(&cli_predict, rest[0], r.device, r.best, false, NULL, predict, &r);
}

const cli_command cli_predict = {
    .name = "predict",
    .summary = "predict for each image, table row or document of a file",
    .usage = "banyan predict RUN FILE... [--csv | --json] [--out FILE]\n"
             "                              [--yields NAME] [--masks DIR] [--skip] [--best]\n"
             "       banyan predict RUN [NODES] [--nodes N,N,...] [--graph FILE] [--features FILE]",
    .text =
        "Prints a prediction for each example of a file, one JSON line or CSV row each.\n"
        "\n"
        "examples:\n"
        "  banyan predict runs/mnist-vit t10k-images-idx3-ubyte.gz\n"
        "  banyan predict runs/pets new/ --csv --out pets.csv\n"
        "  banyan predict runs/housing-mlp new.csv --csv\n"
        "  banyan predict runs/shapes new/ --masks masks/\n"
        "  banyan predict runs/shakespeare-char play.txt\n"
        "  banyan predict runs/cora --nodes 17,2041\n"
        "  banyan predict runs/cora --graph grown.npz --csv\n"
        "\n"
        "FILE is of the kind that the run was trained on, without targets: images (IDX, npy or\n"
        "CIFAR, or JPEG, PNG and WebP files, folders and shards of them, as many as you name), a\n"
        "table, or text; - for standard input. Scaling, categories, class names and image resizing "
        "are\n"
        "taken from the checkpoint. Of several pictures, each prediction names its file, and\n"
        "of those in a shard the sample; index is its number in what you name, also with --skip.\n"
        "\n"
        "Of a model of a graph, all nodes are predicted, or those of --nodes or of a file with "
        "one\n"
        "number a line; --graph names another graph, which may have nodes that no training saw.\n"
        "\n"
        "Of a table of series, each is continued; one with fewer rows than the model reads is\n"
        "skipped, with a warning, and a line of JSON that says so.\n"
        "\n"
        "For text, each document gets the mean loss of its tokens. A document that is longer\n"
        "than the context is read in windows. To classify texts, see `banyan classify --help`.",
    .run = run};
