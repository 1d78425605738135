/* All to all through a store, in few messages of each rank: bundles go up a binomial tree, in which
 * rank r hands its own to r without its lowest bit, and what rank 0 then has is read by everybody.
 * In a store that is a tree itself (tree.h) they go up that one, and the whole comes down the same
 * way.
 *
 * A bundle is a list of (rank, bytes, value) behind its size, in values of the store as large as
 * they may be. */
#include "comm/bootstrap/bootstrap.h"
#include "comm/bootstrap/tree.h"

#include <stdio.h>
#include <string.h>

struct entry {
    int32_t rank;
    uint32_t bytes;
};
struct bundle {
    unsigned char *data; /* begins with a uint64_t: bytes */
    size_t bytes, room;
};
enum { NAME_BYTES = 120, HEAD = sizeof(uint64_t), WHOLE = SHOALI_TREE_WHOLE };

static shoal_status append(struct bundle *bundle, const void *data, size_t bytes)
{
    if (bundle->room - bundle->bytes < bytes) {
        const size_t room = 2 * bundle->room + bytes;
        unsigned char *larger = shoali_malloc(room, "the messages of joining ranks");
        if (!larger)
            return SHOAL_ENOMEM;
        if (bundle->bytes > 0)
            memcpy(larger, bundle->data, bundle->bytes);
        shoali_free(bundle->data);
        bundle->data = larger;
        bundle->room = room;
    }
    memcpy(bundle->data + bundle->bytes, data, bytes);
    bundle->bytes += bytes;
    return SHOAL_OK;
}

static bool is_tree(const struct shoali_store *store)
{
    return store->kind == &shoali_store_tree;
}

static void name_piece(const struct shoali_exchange *exchange, int32_t rank, size_t piece,
                       char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%.60s/%d/%zu", exchange->name, (int)rank, piece);
}

static size_t piece_bytes(size_t left)
{
    return left < SHOALI_STORE_VALUE_BYTES ? left : SHOALI_STORE_VALUE_BYTES;
}

static shoal_status put(struct shoali_store *store, struct shoali_exchange *exchange, int32_t rank,
                        const struct bundle *bundle)
{
    char name[NAME_BYTES];
    const uint64_t size = bundle->bytes;
    shoal_status status = SHOAL_OK;
    memcpy(bundle->data, &size, HEAD);
    for (size_t at = 0, piece = 0; at < bundle->bytes; piece++) {
        const size_t bytes = piece_bytes(bundle->bytes - at);
        name_piece(exchange, rank, piece, name);
        if (is_tree(store))
            SHOAL_TRY(status, shoali_tree_put(store, rank, name, bundle->data + at, bytes), done);
        else
            SHOAL_TRY(status, shoali_store_put(store, name, bundle->data + at, bytes), done);
        exchange->messages++;
        at += bytes;
    }
done:
    return status;
}

static shoal_status fail_of_bundle(const char *name)
{
    return SHOAL_FAIL(SHOAL_EMISMATCH,
                      "\"%s\" in the store is not what this version of Shoal puts there", name);
}

/* Adds what the rank has put. */
static shoal_status get(struct shoali_store *store, struct shoali_exchange *exchange, int32_t rank,
                        struct bundle *bundle)
{
    char name[NAME_BYTES];
    shoal_status status = SHOAL_OK;
    uint64_t size = HEAD;
    unsigned char *piece = shoali_malloc(SHOALI_STORE_VALUE_BYTES, "the messages of joining ranks");
    if (!piece)
        return SHOAL_ENOMEM;
    for (size_t at = 0, number = 0; at < size; number++) {
        const size_t head = number == 0 ? HEAD : 0;
        size_t bytes = SHOALI_STORE_VALUE_BYTES;
        name_piece(exchange, rank, number, name);
        if (is_tree(store))
            SHOAL_TRY(status, shoali_tree_wait(store, rank, name, piece, &bytes), done);
        else
            SHOAL_TRY(status, shoali_store_wait(store, name, piece, &bytes), done);
        exchange->messages++;
        if (number == 0 && bytes >= HEAD)
            memcpy(&size, piece, HEAD);
        if (bytes < head || size < at || bytes != piece_bytes(size - at)) {
            status = fail_of_bundle(name);
            goto done;
        }
        SHOAL_TRY(status, append(bundle, piece + head, bytes - head), done);
        at += bytes;
    }
done:
    shoali_free(piece);
    return status;
}

static shoal_status take_all(const struct shoali_exchange *exchange, const struct bundle *bundle)
{
    struct entry entry;
    size_t at = HEAD;
    int32_t count = 0;
    shoal_status status = SHOAL_OK;
    for (; bundle->bytes - at >= sizeof entry; count++) {
        memcpy(&entry, bundle->data + at, sizeof entry);
        at += sizeof entry;
        if (entry.rank < 0 || entry.rank >= exchange->size || entry.bytes > bundle->bytes - at)
            break;
        SHOAL_TRY(status,
                  exchange->take(exchange->user, entry.rank, bundle->data + at, entry.bytes), done);
        at += entry.bytes;
    }
    if (at != bundle->bytes || count != exchange->size)
        status = fail_of_bundle(exchange->name);
done:
    return status;
}

static bool has_below(const struct shoali_exchange *exchange)
{
    int32_t begin, end;
    shoali_tree_children(exchange->rank, exchange->size, &begin, &end);
    return begin < end;
}

/* The bundles of those below. */
static shoal_status get_below(struct shoali_store *store, struct shoali_exchange *exchange,
                              struct bundle *bundle)
{
    const int32_t rank = exchange->rank;
    int32_t begin, end;
    shoal_status status = SHOAL_OK;
    shoali_tree_children(rank, exchange->size, &begin, &end);
    for (int32_t r = begin; is_tree(store) && r < end; r++)
        SHOAL_TRY(status, get(store, exchange, r, bundle), done);
    for (int32_t bit = 1; !is_tree(store) && bit < exchange->size && !(rank & bit); bit <<= 1)
        if (rank + bit < exchange->size)
            SHOAL_TRY(status, get(store, exchange, rank + bit, bundle), done);
done:
    return status;
}

shoal_status shoali_store_exchange(struct shoali_store *store, struct shoali_exchange *exchange)
{
    const int32_t rank = exchange->rank;
    const struct entry own = {.rank = rank, .bytes = (uint32_t)exchange->bytes};
    const uint64_t nothing = 0;
    struct bundle bundle = {0};
    shoal_status status = SHOAL_OK;
    exchange->messages = 0;
    SHOAL_TRY(status, append(&bundle, &nothing, HEAD), done);
    SHOAL_TRY(status, append(&bundle, &own, sizeof own), done);
    SHOAL_TRY(status, append(&bundle, exchange->own, exchange->bytes), done);
    SHOAL_TRY(status, get_below(store, exchange, &bundle), done);
    SHOAL_TRY(status, put(store, exchange, rank == 0 ? WHOLE : rank, &bundle), done);
    if (rank > 0) {
        bundle.bytes = HEAD;
        SHOAL_TRY(status, get(store, exchange, WHOLE, &bundle), done);
        if (is_tree(store) && has_below(exchange))
            SHOAL_TRY(status, put(store, exchange, WHOLE, &bundle), done);
    }
    SHOAL_TRY(status, take_all(exchange, &bundle), done);
done:
    shoali_free(bundle.data);
    return status;
}
