/* Which algorithm carries a collective. */
#include "comm/p2p/p2p.h"

enum {
    GATHER_BYTES = 32768, /* to here one exchange of everything beats two of slices, */
    TREE_BYTES = 262144   /* and log2(ranks) of everything two of slices */
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
        return post->kind == SHOALI_BROADCAST;
    case SHOALI_P2P_RING:
        return post->kind == SHOALI_ALL_GATHER ||
               (post->kind == SHOALI_ALL_REDUCE && is_free_order(post));
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
    if (post->kind == SHOALI_ALL_REDUCE && (group->size == 2 || bytes <= GATHER_BYTES))
        return SHOALI_P2P_GATHER;
    if (post->kind == SHOALI_BROADCAST && (group->size == 2 || bytes <= TREE_BYTES))
        return SHOALI_P2P_TREE;
    return SHOALI_P2P_DIRECT;
}
