#include "data/corpus/best_fit.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define NONE UINT32_MAX
/* 64^6 is more than any length. */
#define LEVELS 6

/* A set of amounts of free room with fast successor search: one bit each, and one for each nonempty
 * word of the level below. */
typedef struct room_set {
    uint64_t *words[LEVELS];
    size_t counts[LEVELS];
    int levels;
} room_set;

typedef struct packer {
    by__data_bins *bins;
    uint32_t *sorted;    /* pieces, longest first */
    by__data_piece *cut; /* pieces in the order of documents */
    uint32_t *bin_of;    /* of each piece */
    uint32_t *newest;    /* [capacity + 1] newest bin with this much room; NONE: there is none */
    uint32_t *older;     /* [piece_count] the next older bin with equal room */
    room_set rooms;
} packer;

/* ---- rooms ---- */

static by_status open_rooms(room_set *set, uint32_t capacity, by_error *error)
{
    size_t bits = (size_t)capacity + 1;
    do {
        bits = (bits + 63) / 64;
        set->counts[set->levels] = bits;
        BY_TRY(by__alloc((void **)&set->words[set->levels], bits, sizeof(uint64_t), "bins", error));
        set->levels++;
    } while (bits > 1);
    return BY_OK;
}

static void close_rooms(room_set *set)
{
    for (int i = 0; i < set->levels; i++) {
        free(set->words[i]);
    }
}

static void add_room(room_set *set, uint32_t room)
{
    for (int i = 0; i < set->levels; i++) {
        set->words[i][room / 64] |= (uint64_t)1 << room % 64;
        room /= 64;
    }
}

static void remove_room(room_set *set, uint32_t room)
{
    for (int i = 0; i < set->levels; i++) {
        set->words[i][room / 64] &= ~((uint64_t)1 << room % 64);
        if (set->words[i][room / 64] != 0) {
            return;
        }
        room /= 64;
    }
}

/* The least room of at least `at`; NONE: there is none. */
static uint32_t find_room(const room_set *set, uint32_t at)
{
    for (int i = 0; i < set->levels && at / 64 < set->counts[i]; i++) {
        uint64_t word = set->words[i][at / 64] & UINT64_MAX << at % 64;
        if (word != 0) {
            at = at / 64 * 64 + (uint32_t)__builtin_ctzll(word);
            while (i-- > 0) {
                at = at * 64 + (uint32_t)__builtin_ctzll(set->words[i][at]);
            }
            return at;
        }
        at = at / 64 + 1;
    }
    return NONE;
}

/* ---- pieces ---- */

/* Cuts all documents; `pieces` may be NULL, to count only. */
static uint64_t cut_documents(by__data_bins *bins, by__data_piece *pieces, const uint64_t *offsets,
                              uint64_t documents)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < documents; i++) {
        uint64_t begin = offsets[i];
        uint64_t left = offsets[i + 1] - begin;
        bool is_cut = left > bins->capacity;
        while (left > 0) {
            uint32_t length = left < bins->capacity ? (uint32_t)left : bins->capacity;
            bool is_last = length == left;
            if (pieces != NULL) {
                pieces[count] = (by__data_piece){begin, length};
                bins->tokens += length;
            }
            count++;
            begin += is_last ? length : length - 1;
            left -= is_last ? length : length - 1;
        }
        bins->cut += pieces != NULL && is_cut;
    }
    return count;
}

/* Counting sort, which keeps pieces of equal length in order. */
static by_status sort_pieces(packer *p, by_error *error)
{
    uint32_t *places;
    uint32_t capacity = p->bins->capacity;
    BY_TRY(by__alloc((void **)&places, (size_t)capacity + 2, sizeof *places, "bins", error));
    for (uint32_t i = 0; i < p->bins->piece_count; i++) {
        places[capacity - p->cut[i].length + 1]++;
    }
    for (uint32_t i = 0; i < capacity; i++) {
        places[i + 1] += places[i];
    }
    for (uint32_t i = 0; i < p->bins->piece_count; i++) {
        p->sorted[places[capacity - p->cut[i].length]++] = i;
    }
    free(places);
    return BY_OK;
}

/* ---- bins ---- */

static uint32_t pop_bin(packer *p, uint32_t room)
{
    uint32_t bin = p->newest[room];
    p->newest[room] = p->older[bin];
    if (p->newest[room] == NONE) {
        remove_room(&p->rooms, room);
    }
    return bin;
}

static void put_bin(packer *p, uint32_t bin, uint32_t room)
{
    if (room == 0) {
        return;
    }
    if (p->newest[room] == NONE) {
        add_room(&p->rooms, room);
    }
    p->older[bin] = p->newest[room];
    p->newest[room] = bin;
}

/* A bin for each piece, in the order of documents. */
static void place_apart(packer *p)
{
    for (uint32_t i = 0; i < p->bins->piece_count; i++) {
        p->sorted[i] = i;
        p->bin_of[i] = i;
    }
    p->bins->count = p->bins->piece_count;
}

static void place_pieces(packer *p)
{
    for (uint32_t i = 0; i < p->bins->piece_count; i++) {
        uint32_t piece = p->sorted[i];
        uint32_t room = find_room(&p->rooms, p->cut[piece].length);
        uint32_t bin = room == NONE ? p->bins->count++ : pop_bin(p, room);
        room = room == NONE ? p->bins->capacity : room;
        p->bin_of[piece] = bin;
        put_bin(p, bin, room - p->cut[piece].length);
    }
}

/* Lists the pieces bin by bin. */
static by_status gather_pieces(packer *p, by_error *error)
{
    by__data_bins *b = p->bins;
    uint32_t *first;
    BY_TRY(by__alloc((void **)&first, (size_t)b->count + 2, sizeof *first, "bins", error));
    for (uint32_t i = 0; i < b->piece_count; i++) {
        first[p->bin_of[i] + 2]++;
    }
    for (uint32_t i = 0; i < b->count; i++) {
        first[i + 2] += first[i + 1];
    }
    for (uint32_t i = 0; i < b->piece_count; i++) {
        uint32_t piece = p->sorted[i];
        b->pieces[first[p->bin_of[piece] + 1]++] = p->cut[piece];
    }
    b->first = first;
    return BY_OK;
}

static by_status pack(packer *p, const uint64_t *offsets, uint64_t documents, bool apart,
                      by_error *error)
{
    by__data_bins *b = p->bins;
    uint64_t count = cut_documents(b, NULL, offsets, documents);
    if (count >= NONE) {
        return by_error_set(error, BY_EARG,
                            "best-fit packing: %llu pieces of documents are more than 2^32 - 2",
                            (unsigned long long)count);
    }
    size_t n = (size_t)count;
    b->piece_count = (uint32_t)count;
    BY_TRY(by__alloc((void **)&b->pieces, n, sizeof *b->pieces, "bins", error));
    BY_TRY(by__alloc((void **)&p->cut, n, sizeof *p->cut, "bins", error));
    BY_TRY(by__alloc((void **)&p->sorted, n, sizeof *p->sorted, "bins", error));
    BY_TRY(by__alloc((void **)&p->bin_of, n, sizeof *p->bin_of, "bins", error));
    BY_TRY(by__alloc((void **)&p->older, n, sizeof *p->older, "bins", error));
    BY_TRY(
        by__alloc((void **)&p->newest, (size_t)b->capacity + 1, sizeof *p->newest, "bins", error));
    memset(p->newest, 0xff, ((size_t)b->capacity + 1) * sizeof *p->newest); /* NONE */
    BY_TRY(open_rooms(&p->rooms, b->capacity, error));
    (void)cut_documents(b, p->cut, offsets, documents);
    if (apart) {
        place_apart(p);
        return gather_pieces(p, error);
    }
    BY_TRY(sort_pieces(p, error));
    place_pieces(p);
    return gather_pieces(p, error);
}

uint64_t by__data_bins_pieces(const uint64_t *offsets, size_t count, uint32_t capacity)
{
    by__data_bins bins = {.capacity = capacity};
    return cut_documents(&bins, NULL, offsets, count);
}

uint64_t by__data_bins_bytes(uint64_t pieces, uint64_t documents, uint32_t capacity,
                             uint64_t *opening)
{
    const uint64_t kept = sizeof(by__data_piece) + sizeof(uint32_t);
    const uint64_t meanwhile = sizeof(by__data_piece) + 3 * sizeof(uint32_t);
    *opening = pieces * (kept + meanwhile) + (documents + 1) * sizeof(uint64_t) +
               (uint64_t)capacity * sizeof(uint32_t);
    return pieces * kept;
}

by_status by__data_bins_open(by__data_bins *out, const uint64_t *offsets, uint64_t documents,
                             uint32_t capacity, bool apart, by_error *error)
{
    by__data_bins bins = {.capacity = capacity};
    packer p = {.bins = &bins};
    by_status status = pack(&p, offsets, documents, apart, error);
    close_rooms(&p.rooms);
    free(p.newest);
    free(p.older);
    free(p.bin_of);
    free(p.sorted);
    free(p.cut);
    if (status != BY_OK) {
        by__data_bins_close(&bins);
        return status;
    }
    *out = bins;
    return BY_OK;
}

void by__data_bins_close(by__data_bins *bins)
{
    free(bins->pieces);
    free(bins->first);
    *bins = (by__data_bins){0};
}

uint32_t by__data_bins_used(const by__data_bins *bins, uint32_t bin)
{
    uint32_t used = 0;
    for (uint32_t i = bins->first[bin]; i < bins->first[bin + 1]; i++) {
        used += bins->pieces[i].length;
    }
    return used;
}
