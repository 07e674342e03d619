/* beam_tool MODEL BEAMS PENALTY END TOKENS STOPS: reads prompts, a line of ids each, and prints for
 * each one the hypotheses of a beam search as JSON, [[score, [id, ...]], ...]. END: 0, 1 or 2
 * (by_beam_end); STOPS: ids with commas between them, or "-". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/beam.h"

#define MOST 256

static size_t read_ids(int32_t *ids, char *text, const char *between)
{
    size_t count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, between, &rest); word != NULL && count < MOST;
         word = strtok_r(NULL, between, &rest)) {
        ids[count++] = (int32_t)strtol(word, NULL, 10);
    }
    return count;
}

static by_status search(by_beam *beam, by_beam_request *request, char *line, by_error *error)
{
    int32_t prompt[MOST];
    const by_hypothesis *found;
    int32_t count;
    request->prompt = prompt;
    request->prompt_count = read_ids(prompt, line, " \n");
    by_status status = by_beam_run(beam, request, &found, &count, error);
    for (int32_t i = 0; i < count && status == BY_OK; i++) {
        printf("%s[%.9g, [", i == 0 ? "[" : ", ", found[i].score);
        for (int64_t t = 0; t < found[i].count; t++) {
            printf("%s%d", t == 0 ? "" : ", ", (int)found[i].tokens[t]);
        }
        printf("]]%s", i + 1 == count ? "]\n" : "");
    }
    return status;
}

int main(int argc, char **argv)
{
    by_error error = {0};
    by_pretrained *model = NULL;
    by_beam *beam = NULL;
    int32_t stops[MOST];
    char line[4096];
    if (argc != 7) {
        return 2;
    }
    by_beam_options options = {.beams = (int32_t)strtol(argv[2], NULL, 10), .precision = "f32"};
    by_beam_request request = {.length_penalty = strtod(argv[3], NULL),
                               .end = (by_beam_end)strtol(argv[4], NULL, 10),
                               .tokens = strtol(argv[5], NULL, 10),
                               .stop = stops};
    request.stop_count = strcmp(argv[6], "-") == 0 ? 0 : read_ids(stops, argv[6], ",");
    by_status status = by_pretrained_open(&model, argv[1], false, &error);
    if (status == BY_OK) {
        status = by_beam_open(&beam, by_pretrained_config(model), by_pretrained_weights(model),
                              &options, &error);
    }
    while (status == BY_OK && fgets(line, sizeof line, stdin) != NULL) {
        status = search(beam, &request, line, &error);
    }
    if (status != BY_OK) {
        fprintf(stderr, "beam_tool: %s\n", error.message);
    }
    by_beam_close(&beam);
    by_pretrained_close(&model);
    return status == BY_OK ? 0 : 1;
}
