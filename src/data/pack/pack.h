/* Packing: texts to a packed directory (banyan/pack.h).
 *
 * pack_run.c checks the options and runs the steps; pack_tokenizer.c opens or learns the
 * tokenizer; pack_encode.c encodes units of text on several threads (unit_run.h) and hands the
 * tokens in order to shard_writer.c; duplicates.c knows the documents that were there before;
 * pack_output.c owns the directory while it is unfinished; pack_cache.c names it by a hash of all
 * that decides its content.
 */
#ifndef BY_DATA_PACK_PACK_H
#define BY_DATA_PACK_PACK_H

#include "banyan/pack.h"
#include "data/formats/text_source.h"

/* Options with their defaults filled in, and the source, scanned and split. */
typedef struct by__pack {
    by_pack_options options;
    by__source source;
} by__pack;

/* Checks the options, lists, reads and splits the inputs. The caller closes it. */
by_status by__pack_open(by__pack *pack, const by_pack_options *options, by_error *error);
void by__pack_close(by__pack *pack);
/* Opens or learns the tokenizer that the options ask for (options.tokenizer is NULL). */
by_status by__pack_make_tokenizer(const by__pack *pack, by_tokenizer **out, by_error *error);
/* Passes a line on to options.note. */
void by__pack_note(const by__pack *pack, const char *format, ...) BY_PRINTF(2, 3);
/* Encodes all texts into `directory`, or into its train/ and valid/ (pack_encode.c). BY_EFORMAT: a
 * text is broken, or is not the one that was scanned. */
by_status by__pack_encode(const by__pack *pack, const by_tokenizer *tokenizer,
                          const char *directory, by_pack_result *result, by_error *error);
/* Packs into `output`, which appears by a rename. An empty result with BY_OK means that `output`
 * was there already, which is an error unless `wait`: then it also waits for another process that
 * is making it, else that is an error as well. */
by_status by__pack_write(const by__pack *pack, const by_tokenizer *tokenizer, const char *output,
                         bool wait, by_pack_result *result, by_error *error);

#endif
