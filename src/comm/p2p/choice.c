/* Which algorithm carries a collective. */
#include "comm/p2p/p2p.h"

/* What `shoal tune comm` has found with 4 ranks on 2 hosts, 1 Gbit/s and 0.1 ms between them
 * (benchmarks/network/run --tune 4; docs/PERFORMANCE.md). What goes round is counted by what a rank
 * passes on at a time, so that a ring of many ranks does not consist of waiting. A reduce_scatter's
 * ring was 10 % faster than direct, but needs memory as large as its input: who wants it has a
 * table of his own. */
enum {
    GATHER_BYTES = 32768,   /* to here one exchange of everything beats two of slices, */
    DOUBLING_BYTES = 32768, /* for integers log2(ranks) of everything both, */
    TREE_BYTES = 32768,     /* and for a broadcast, too; */
    RING_BYTES = 32768      /* from here ranks that share a link share what comes over it */
};

/* Is every order of the sum the same? */
static bool is_free_order(const struct shoali_post *post)
{
    const bool sums = post->kind == SHOALI_ALL_REDUCE || post->kind == SHOALI_REDUCE_SCATTER;
    const bool integer =
        post->dtype == SHOAL_I64 || post->dtype == SHOAL_I32 || post->dtype == SHOAL_U8;
    return sums && integer &&
           (post->op == SHOAL_SUM || post->op == SHOAL_MIN || post->op == SHOAL_MAX ||
            post->op == SHOAL_BOR);
}

bool shoali_p2p_can(const struct shoali_post *post, enum shoali_p2p_algorithm algorithm)
{
    switch (algorithm) {
    case SHOALI_P2P_DIRECT:
        return true;
    case SHOALI_P2P_GATHER:
        return post->kind == SHOALI_ALL_REDUCE;
    case SHOALI_P2P_TREE:
        return post->kind == SHOALI_BROADCAST ||
               (post->kind == SHOALI_ALL_REDUCE && is_free_order(post));
    case SHOALI_P2P_RING:
        return post->kind == SHOALI_ALL_GATHER || is_free_order(post);
    case SHOALI_P2P_HALVING:
        return is_free_order(post);
    default:
        return post->kind == SHOALI_ALL_REDUCE && is_free_order(post);
    }
}

/* -1: nothing is said of it. */
static int32_t find_rule(const struct shoali_p2p_rules *rules, const struct shoali_post *post,
                         int64_t bytes)
{
    const int32_t integer = is_free_order(post);
    for (int32_t i = 0; i < rules->count; i++) {
        const struct shoali_p2p_rule *rule = &rules->rule[i];
        if (rule->kind == (int32_t)post->kind && rule->integer == integer &&
            bytes <= rule->up_to_bytes)
            return rule->algorithm;
    }
    return -1;
}

static enum shoali_p2p_algorithm choose_by_size(const struct shoali_post *post, int32_t ranks,
                                                int64_t bytes)
{
    if (post->kind == SHOALI_ALL_REDUCE && ranks == 2)
        return SHOALI_P2P_GATHER;
    if (post->kind == SHOALI_ALL_REDUCE && is_free_order(post) && bytes <= DOUBLING_BYTES)
        return SHOALI_P2P_DOUBLING;
    if (post->kind == SHOALI_ALL_REDUCE && is_free_order(post) && bytes / ranks > RING_BYTES)
        return SHOALI_P2P_RING;
    if (post->kind == SHOALI_ALL_REDUCE && bytes <= GATHER_BYTES)
        return SHOALI_P2P_GATHER;
    if (post->kind == SHOALI_ALL_GATHER && ranks > 2 && bytes > RING_BYTES)
        return SHOALI_P2P_RING;
    if (post->kind == SHOALI_BROADCAST && (ranks == 2 || bytes <= TREE_BYTES))
        return SHOALI_P2P_TREE;
    return SHOALI_P2P_DIRECT;
}

enum shoali_p2p_algorithm shoali_p2p_choose(const struct shoali_p2p_group *group,
                                            const struct shoali_p2p_op *op)
{
    const struct shoali_post *post = &op->post;
    const int64_t bytes = post->count * (int64_t)op->element_bytes;
    const struct shoali_p2p_world *world = group->world;
    int32_t wanted = world->forced;
    if (wanted < 0 && group->size == world->size)
        wanted = find_rule(&world->rules, post, bytes);
    if (wanted >= 0 && shoali_p2p_can(post, (enum shoali_p2p_algorithm)wanted))
        return (enum shoali_p2p_algorithm)wanted;
    return choose_by_size(post, group->size, bytes);
}
