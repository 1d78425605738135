/* Joining: addresses through the store, then a first barrier. */
#include "comm/bootstrap/agent_store.h"
#include "comm/bootstrap/bootstrap.h"
#include "comm/p2p/p2p.h"
#include "comm/ucx/backend.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ADDRESS_BYTES = 8192 };
#define CONNECT_NS INT64_C(60000000000) /* at most, from the last card to the first answers */

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
    struct shoali_ucx_network network;
    bool unreached; /* this rank has found that another cannot be reached, and nobody has told it */
};

static shoal_status fail_of_ucx(const struct joining *own, const char *what, int code)
{
    char text[256];
    own->ucx->p2p.describe(code, text, sizeof text);
    return SHOAL_FAIL(SHOAL_EIO, "%s cannot %s: %s", own->ucx->p2p.name, what, text);
}

/* The rank has come to the store, so that what fails is the way from host to host. */
static shoal_status fail_of_way(const struct joining *own, shoal_status status,
                                const char *sentence)
{
    const char *device = own->network.device;
    return SHOAL_FAIL(status,
                      "%s; the ranks have met at %s:%d, and this one uses %s%s: a firewall between "
                      "the hosts must let UCX's ports through (UCX_TCP_PORT_RANGE=20000-20100 "
                      "narrows them), and SHOAL_NETWORK says which network is theirs "
                      "(10.0.0.0/16, or an interface's name)",
                      sentence, own->args->master_addr, (int)own->args->master_port,
                      device[0] ? "interface " : "the interfaces that UCX chooses", device);
}

static shoal_status write_card(struct joining *own, struct card *card)
{
    char host[64] = "";
    size_t bytes = sizeof card->address;
    *card = (struct card){.abi = SHOALI_COMM_ABI, .world_size = own->args->world_size};
    gethostname(host, sizeof host - 1);
    snprintf(card->where.text, sizeof card->where.text, "pid %d on %s", (int)getpid(), host);
    const int code = own->ucx->address(own->comm, card->address, &bytes);
    card->bytes = (uint32_t)bytes;
    return code ? fail_of_ucx(own, "send its address", code) : SHOAL_OK;
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
                          "rank %d expects %d ranks, rank %d expects %d: WORLD_SIZE must be the "
                          "same on all ranks",
                          (int)args->rank, (int)args->world_size, (int)rank, (int)card->world_size);
    return SHOAL_OK;
}

static shoal_status take_card(void *user, int32_t rank, const void *value, size_t bytes)
{
    struct joining *own = user;
    struct card card = {0};
    char text[128], sentence[512];
    shoal_status status = SHOAL_OK;
    memcpy(&card, value, bytes < sizeof card ? bytes : sizeof card);
    SHOAL_TRY(status, check_card(own, rank, &card, bytes), done);
    own->where[rank] = card.where;
    own->where[rank].text[SHOALI_P2P_WHERE_BYTES - 1] = '\0';
    const int code = own->ucx->connect(own->comm, rank, card.address, card.bytes);
    if (code) {
        own->ucx->p2p.describe(code, text, sizeof text);
        snprintf(sentence, sizeof sentence, "%s cannot connect rank %d (%s): %s",
                 own->ucx->p2p.name, (int)rank, own->where[rank].text, text);
        own->unreached = true;
        /* That one may be gone: its own end, if there is one, is the better reason. */
        status = fail_of_way(own, SHOAL_EPEER, sentence);
    }
done:
    return status;
}

static shoal_status meet(struct joining *own)
{
    struct card card;
    shoal_status status = SHOAL_OK;
    SHOAL_TRY(status, write_card(own, &card), done);
    struct shoali_exchange exchange = {.name = "shoal/ucx/all",
                                       .rank = own->args->rank,
                                       .size = own->args->world_size,
                                       .own = &card,
                                       .bytes = CARD_HEAD + card.bytes,
                                       .take = take_card,
                                       .user = own};
    SHOAL_TRY(status, shoali_store_exchange(own->store, &exchange), done);
done:
    return status;
}

/* The others learn a failure from the store. */
static void tell(struct joining *own, shoal_status failure)
{
    char sentence[SHOALI_P2P_SENTENCE_BYTES];
    snprintf(sentence, sizeof sentence, "rank %d failed: %s", (int)own->args->rank,
             shoal_error_message());
    if (failure != SHOAL_EPEER || own->unreached)
        shoali_store_abort(own->store, sentence);
}

static shoal_status open_store(struct joining *own)
{
    struct shoali_credentials credentials = {0};
    char where[320];
    shoal_status status = SHOAL_OK;
    snprintf(where, sizeof where, "%.255s:%d", own->args->master_addr, (int)own->args->master_port);
    const struct shoali_store_args args = {
        .kind = "tree",
        .where = where,
        .rank = own->args->rank,
        .size = own->args->world_size,
        .credentials = &credentials,
        .by_agent = shoali_agent_store_is_at(own->args->master_addr, own->args->master_port),
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

static shoal_status connect_all(const struct joining *own, struct shoali_p2p_world *world,
                                void *group)
{
    const struct shoali_post barrier = {
        .kind = SHOALI_BARRIER, .here = "shoal_comm_init", .dtype = SHOAL_U8, .peer = -2};
    const int64_t timeout_ns = world->timeout_ns;
    char sentence[SHOALI_P2P_SENTENCE_BYTES];
    if (timeout_ns > CONNECT_NS)
        world->timeout_ns = CONNECT_NS;
    const shoal_status status = shoali_p2p_run(group, &barrier);
    world->timeout_ns = timeout_ns;
    if (status >= 0)
        return status;
    snprintf(sentence, sizeof sentence, "%s", shoal_error_message());
    return fail_of_way(own, status, sentence);
}

/* Nobody leaves the store before all have what they need of it. */
static shoal_status open_group(struct joining *own, void **backend)
{
    struct shoali_p2p_world *world = NULL;
    shoal_status status = SHOAL_OK;
    void *group = NULL;
    SHOAL_TRY(status, make_world(own, &world), done);
    SHOAL_TRY(status, shoali_p2p_open_all(world, &group), done);
    SHOAL_TRY(status, connect_all(own, world, group), done);
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
    SHOAL_TRY(status, shoali_ucx_find_network(own->args->master_addr, &own->network), done);
    const int code = own->ucx->open(own->args->rank, own->args->world_size, own->network.device,
                                    own->network.wanted, &own->comm);
    if (code)
        status = fail_of_ucx(own, "start", code);
done:
    return status;
}

static shoal_status create(const shoal_comm_args *args, void **backend)
{
    struct joining own = {.args = args};
    shoal_status status = SHOAL_OK;
    if (args->world_size > SHOALI_P2P_WORLD_RANKS)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED, "backend ucx has at most %d ranks, not %d",
                          SHOALI_P2P_WORLD_RANKS, (int)args->world_size);
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
