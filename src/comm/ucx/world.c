/* Joining: addresses through the store, then a first barrier. */
#include "comm/bootstrap/bootstrap.h"
#include "comm/p2p/p2p.h"
#include "comm/ucx/backend.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ADDRESS_BYTES = 8192, LISTED = 120, LINGER_NS = 500000000 };

/* What a rank puts into the store. */
struct card {
    uint32_t abi;
    int32_t world_size;
    uint32_t bytes; /* of address */
    struct shoali_p2p_where where;
    unsigned char address[ADDRESS_BYTES];
};
enum { CARD_HEAD = offsetof(struct card, address) };

/* One rank while it joins. */
struct joining {
    const shoal_comm_args *args;
    const struct shoali_ucx_table *ucx;
    struct shoali_store *store;
    struct shoali_p2p_comm comm;
    struct shoali_p2p_where *where; /* [world_size] */
};

static shoal_status fail_of_ucx(const struct joining *own, const char *what, int code)
{
    char text[256];
    own->ucx->p2p.describe(code, text, sizeof text);
    return SHOAL_FAIL(SHOAL_EIO, "%s cannot %s: %s", own->ucx->p2p.name, what, text);
}

static void name_card(int32_t rank, char key[48])
{
    snprintf(key, 48, "shoal/ucx/rank/%d", (int)rank);
}

static shoal_status put_card(struct joining *own, struct card *card)
{
    struct card other;
    char key[48], host[64] = "";
    size_t bytes = sizeof card->address, there = sizeof other;
    shoal_status status = SHOAL_OK;
    *card = (struct card){.abi = SHOALI_COMM_ABI, .world_size = own->args->world_size};
    gethostname(host, sizeof host - 1);
    snprintf(card->where.text, sizeof card->where.text, "pid %d on %s", (int)getpid(), host);
    const int code = own->ucx->address(own->comm, card->address, &bytes);
    if (code) {
        status = fail_of_ucx(own, "say where it can be reached", code);
        goto done;
    }
    card->bytes = (uint32_t)bytes;
    name_card(own->args->rank, key);
    status = shoali_store_get(own->store, key, &other, &there);
    if (status == SHOAL_OK)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "two processes are rank %d: RANK must be different on every process, "
                            "and MASTER_PORT for every job",
                            (int)own->args->rank);
    if (status != SHOAL_IN_PROGRESS)
        goto done;
    SHOAL_TRY(status, shoali_store_put(own->store, key, card, CARD_HEAD + bytes), done);
done:
    return status;
}

static shoal_status check_card(const struct joining *own, int32_t rank, const struct card *card,
                               size_t bytes)
{
    const shoal_comm_args *args = own->args;
    if (bytes < CARD_HEAD || card->abi != SHOALI_COMM_ABI || bytes != CARD_HEAD + card->bytes)
        return SHOAL_FAIL(SHOAL_EMISMATCH, "rank %d and rank %d run different versions of Shoal",
                          (int)rank, (int)args->rank);
    if (card->world_size != args->world_size)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "rank %d was told of %d ranks, rank %d of %d: WORLD_SIZE must be the "
                          "same on all ranks",
                          (int)args->rank, (int)args->world_size, (int)rank, (int)card->world_size);
    return SHOAL_OK;
}

static shoal_status take_card(void *user, int32_t rank, const void *value, size_t bytes)
{
    struct joining *own = user;
    struct card card = {0};
    shoal_status status = SHOAL_OK;
    memcpy(&card, value, bytes < sizeof card ? bytes : sizeof card);
    SHOAL_TRY(status, check_card(own, rank, &card, bytes), done);
    own->where[rank] = card.where;
    own->where[rank].text[SHOALI_P2P_WHERE_BYTES - 1] = '\0';
    const int code = own->ucx->connect(own->comm, rank, card.address);
    if (code)
        status = fail_of_ucx(own, "connect another rank", code);
done:
    return status;
}

/* Of the cards in the store, those that are not there. */
static shoal_status fail_of_absence(const struct joining *own)
{
    char list[LISTED] = "";
    const int trouble = shoali_store_get_trouble(own->store);
    size_t at = 0;
    for (int32_t r = 0; r < own->args->world_size && at + 16 < sizeof list; r++) {
        struct card card;
        char key[48];
        size_t bytes = sizeof card;
        name_card(r, key);
        if (shoali_store_get(own->store, key, &card, &bytes) == SHOAL_IN_PROGRESS)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", at ? ", " : "", (int)r);
    }
    return SHOAL_FAIL(SHOAL_ETIMEOUT, "of %d ranks these did not join within %.1f s: %s%s%s",
                      (int)own->args->world_size, own->args->timeout_s, list,
                      trouble ? "; rank 0 could not let them in: " : "",
                      trouble ? strerror(trouble) : "");
}

/* Rank 0's card first: ranks that were told of other numbers of ranks would wait for nobody. */
static shoal_status meet(struct joining *own)
{
    struct card card, first;
    char key[48];
    size_t bytes = sizeof first;
    shoal_status status = SHOAL_OK;
    struct shoali_exchange exchange = {.name = "shoal/ucx/all",
                                       .rank = own->args->rank,
                                       .size = own->args->world_size,
                                       .own = &card,
                                       .take = take_card,
                                       .user = own};
    SHOAL_TRY(status, put_card(own, &card), done);
    exchange.bytes = CARD_HEAD + card.bytes;
    name_card(0, key);
    status = shoali_store_wait(own->store, key, &first, &bytes);
    if (status == SHOAL_OK)
        status = check_card(own, 0, &first, bytes);
    if (status == SHOAL_OK)
        status = shoali_store_exchange(own->store, &exchange);
    if (status == SHOAL_ETIMEOUT)
        status = fail_of_absence(own);
done:
    return status;
}

/* The others learn a failure from the store, which must outlive their next look or late arrival. */
static void tell(struct joining *own, shoal_status failure)
{
    char sentence[SHOALI_P2P_SENTENCE_BYTES];
    snprintf(sentence, sizeof sentence, "rank %d failed: %s", (int)own->args->rank,
             shoal_error_message());
    if (failure != SHOAL_EPEER)
        shoali_store_abort(own->store, sentence);
    if (own->args->rank == 0)
        nanosleep(&(struct timespec){0, LINGER_NS}, NULL);
}

static shoal_status open_store(struct joining *own)
{
    struct shoali_credentials credentials = {0};
    char where[320];
    shoal_status status = SHOAL_OK;
    snprintf(where, sizeof where, "%.255s:%d", own->args->master_addr, (int)own->args->master_port);
    const struct shoali_store_args args = {.kind = "tcp",
                                           .where = where,
                                           .server = own->args->rank == 0,
                                           .credentials = &credentials,
                                           .timeout_s = own->args->timeout_s};
    SHOAL_TRY(status, shoali_credentials_find(&credentials), done);
    SHOAL_TRY(status, shoali_store_open(&args, &own->store), done);
done:
    shoali_credentials_wipe(&credentials);
    return status;
}

/* The world is `own`'s worker's from here on. */
static shoal_status make_world(struct joining *own, struct shoali_p2p_world **world)
{
    const struct shoali_p2p_world_args args = {.p2p = &own->ucx->p2p,
                                               .comm = own->comm,
                                               .rank = own->args->rank,
                                               .size = own->args->world_size,
                                               .largest_tag = INT32_MAX,
                                               .where = own->where,
                                               .timeout_s = own->args->timeout_s};
    own->comm.word = 0;
    own->where = NULL;
    return shoali_p2p_world_create(&args, world);
}

/* Nobody leaves the store before all have what they need of it. */
static shoal_status open_group(struct joining *own, void **backend)
{
    const struct shoali_post barrier = {
        .kind = SHOALI_BARRIER, .here = "shoal_comm_init", .dtype = SHOAL_U8, .peer = -2};
    struct shoali_p2p_world *world = NULL;
    shoal_status status = SHOAL_OK;
    void *group = NULL;
    SHOAL_TRY(status, make_world(own, &world), done);
    SHOAL_TRY(status, shoali_p2p_open_all(world, &group), done);
    SHOAL_TRY(status, shoali_p2p_run(group, &barrier), done);
    *backend = group;
    group = NULL;
done:
    if (group)
        shoali_p2p_destroy(group);
    if (world)
        shoali_p2p_world_release(world); /* the group holds its own reference */
    return status;
}

static shoal_status prepare(struct joining *own)
{
    const size_t ranks = (size_t)own->args->world_size;
    shoal_status status = SHOAL_OK;
    SHOAL_TRY(status, shoali_ucx_load(&own->ucx), done);
    own->where = shoali_calloc(ranks, sizeof *own->where, "the ranks of a job");
    if (!own->where) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    const int code = own->ucx->open(own->args->rank, own->args->world_size, &own->comm);
    if (code)
        status = fail_of_ucx(own, "start", code);
done:
    return status;
}

static shoal_status create(const shoal_comm_args *args, void **backend)
{
    struct joining own = {.args = args};
    shoal_status status = SHOAL_OK;
    if (args->world_size > SHOALI_P2P_MAX_RANKS)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED, "backend ucx has at most %d ranks, not %d",
                          SHOALI_P2P_MAX_RANKS, (int)args->world_size);
    SHOAL_TRY(status, prepare(&own), done);
    SHOAL_TRY(status, open_store(&own), done);
    SHOAL_TRY(status, meet(&own), done);
    SHOAL_TRY(status, open_group(&own, backend), done);
done:
    if (status < 0 && own.store)
        tell(&own, status);
    shoali_store_close(own.store);
    if (own.comm.word)
        own.ucx->p2p.release(&own.comm);
    shoali_free(own.where);
    return status;
}

const struct shoali_comm_ops shoali_comm_ucx = SHOALI_P2P_TABLE("ucx", create);
