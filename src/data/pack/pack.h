/* data/pack: converts texts to a packed directory (banyan/pack.h).
 *
 * pack_run.c checks the options and runs the steps; pack_tokenizer.c opens or trains the tokenizer;
 * pack_encode.c encodes units of text on several threads (unit_run.h) and passes the tokens in
 * order to shard_writer.c; duplicates.c detects duplicate documents; pack_output.c owns the
 * directory until it is finished; pack_ranks.c shares the units among ranks, which keep what they
 * encode in pieces (pack_pieces.h), and join them (pack_join.h); pack_cache.c names it by a hash
 * of everything that determines its content.
 *
 * Types: by__data_pack, the checked options and the source; by__data_shard_writer, the directory
 * being written; by__data_unit_job, work on units of text. by__data_pack borrows the caller's
 * options and owns its source.
 *
 * Never put here: readers of packed directories (dataset.c), tokenizers, the choice of what a run
 * trains on.
 */
#ifndef BY_DATA_PACK_PACK_H
#define BY_DATA_PACK_PACK_H

#include "banyan/pack.h"
#include "data/corpus/text_source.h"

/* Options with defaults filled in, and the source, scanned and split. */
typedef struct by__data_pack {
    by_pack_options options;
    by__data_source source;
    const char *pieces; /* directory of what the ranks have encoded; NULL: there is one rank */
    /* Waits for a piece; false: it will not come. NULL: all are there. */
    bool (*await_piece)(void *context, uint64_t piece);
    void *await_context;
} by__data_pack;

/* Checks the options; lists, reads and splits the inputs. The caller closes it. */
by_status by__data_pack_open(by__data_pack *pack, const by_pack_options *options, by_error *error);
void by__data_pack_close(by__data_pack *pack);
/* Opens or trains the tokenizer that the options specify (options.tokenizer is NULL). */
by_status by__data_pack_make_tokenizer(const by__data_pack *pack, by_tokenizer **out,
                                       by_error *error);
/* Formats a line for options.note (pack_note.c). */
void by__data_pack_note(const by__data_pack *pack, const char *format, ...) BY_PRINTF(2, 3);
/* Encodes all texts into `directory`, or into its train/ and valid/ (pack_encode.c). BY_EFORMAT: a
 * text is invalid, or has changed since the scan. */
by_status by__data_pack_encode(const by__data_pack *pack, const by_tokenizer *tokenizer,
                               const char *directory, by_pack_result *result, by_error *error);
/* The same for conversations (pack_conversations.c). */
by_status by__data_pack_encode_chat(const by__data_pack *pack, const by_tokenizer *tokenizer,
                                    const char *directory, by_pack_result *result, by_error *error);
/* Encodes the units of this rank that pack->pieces does not have yet (pack_encode.c). */
by_status by__data_pack_encode_share(const by__data_pack *pack, const by_tokenizer *tokenizer,
                                     by_error *error);
/* Whether pack->pieces has those of all ranks. by__data_pack_encode joins them; BY_ESTOPPED: one
 * will not come. */
by_status by__data_pack_has_pieces(const by__data_pack *pack, const by_tokenizer *tokenizer,
                                   bool *out, by_error *error);
/* Computes a hash of everything that determines the result (pack_cache.c). `tokenizer` is NULL if
 * it is made of the texts. */
by_status by__data_pack_key(char key[33], const by__data_pack *pack, const by_tokenizer *tokenizer,
                            by_error *error);
/* The tokenizer if it does not depend on the texts: given or opened (then *own); else NULL. */
by_status by__data_pack_find_tokenizer(const by_pack_options *options,
                                       const by_tokenizer **tokenizer, by_tokenizer **own,
                                       by_error *error);
/* Locks OUTPUT.partial, which is made unless it is there, and waits for others that have it; *fd is
 * -1 if OUTPUT exists (pack_output.c). The lock ends when *fd is closed. */
by_status by__data_pack_lock(const by__data_pack *pack, const char *partial, const char *output,
                             int *fd, by_error *error);
/* Makes OUTPUT without trailing slashes, and OUTPUT.partial. */
by_status by__data_pack_names(char **clean, char **partial, const char *output, by_error *error);
/* Removes everything in a locked OUTPUT.partial, which this program must have made. */
by_status by__data_pack_clear(int fd, const char *partial, by_error *error);
/* Encodes into `partial`, which `fd` has locked, and renames it to `output`. */
by_status by__data_pack_write_locked(const by__data_pack *pack, const by_tokenizer *tokenizer,
                                     int fd, const char *partial, const char *output,
                                     by_pack_result *result, by_error *error);
/* Packs on several ranks that share a file system (pack_ranks.c). */
by_status by__data_pack_ranks(by__data_pack *pack, by_pack_result *result, by_error *error);
/* Packs into `output`, which appears by a rename. With `wait`, an existing `output`, or one that
 * another process is just making, which is waited for, gives an empty result and BY_OK; without it
 * both are errors. */
by_status by__data_pack_write(const by__data_pack *pack, const by_tokenizer *tokenizer,
                              const char *output, bool wait, by_pack_result *result,
                              by_error *error);

#endif
