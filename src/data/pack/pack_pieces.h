/* Pieces of a pack: the tokens of some units each, in files that ranks write and one rank joins
 * (pack_pieces.c).
 *
 * A piece is a file "piece-NUMBER" that appears when it is whole. It is of use for the time of a
 * pack alone: its numbers are in the order of bytes of the processor. */
#ifndef BY_DATA_PACK_PACK_PIECES_H
#define BY_DATA_PACK_PACK_PIECES_H

#include "data/pack/unit_tokens.h"

/* Writes pieces; {.directory = ..., .width = ...} is ready. */
typedef struct by__data_piece_writer {
    const char *directory; /* borrowed */
    unsigned width;        /* bytes of a token: 2 or 4 */
    uint64_t piece;
    by_string text; /* of this piece; empty: none has begun */
} by__data_piece_writer;

/* Reads pieces; {.directory = ..., .width = ...} is ready. */
typedef struct by__data_piece_reader {
    const char *directory; /* borrowed */
    unsigned width;        /* bytes of a token */
    bool is_open;
    uint64_t piece;
    by__map map;
    size_t size; /* without the hash at its end */
    size_t at;
} by__data_piece_reader;

/* The rank in [0, ranks), at least 2, that encodes a piece. Rank 0, which also joins the pieces of
 * all, encodes fewer. */
size_t by__data_piece_owner(uint64_t piece, size_t ranks);
/* The share of all pieces that a rank encodes, in thousandths. */
uint64_t by__data_piece_share(size_t rank, size_t ranks);
/* Whether a piece is there and has its hash: those of an earlier try may have been damaged by a
 * power failure, as they are written without fsync. */
by_status by__data_piece_is_whole(bool *out, const char *directory, uint64_t piece,
                                  by_error *error);
/* Adds unit `unit`, which belongs to `piece`; those of one piece follow each other. */
by_status by__data_piece_add(by__data_piece_writer *writer, uint64_t piece, uint64_t unit,
                             const by__data_unit_tokens *tokens, by_error *error);
/* Writes the piece that was begun, if one was. */
by_status by__data_piece_finish(by__data_piece_writer *writer, by_error *error);
void by__data_piece_writer_free(by__data_piece_writer *writer);
/* Reads unit `unit` of a piece; units of a piece are read in their order. BY_EFORMAT: the file is
 * damaged, or of another unit. */
by_status by__data_piece_read(by__data_piece_reader *reader, uint64_t piece, uint64_t unit,
                              by__data_unit_tokens *out, by_error *error);
void by__data_piece_reader_free(by__data_piece_reader *reader);

#endif
