/* The table of `shoal tune comm`: a line for the world, then one for each rule, the first that fits
 * counts. Lines that begin with # are skipped.
 *
 *     world UCX 4 2                   transport, ranks, ranks of rank 0's machine
 *     all_reduce integer 65536 gather collective, kind of sum, largest message in bytes, algorithm
 *     all_gather any - ring           -: however large
 */
#include "comm/p2p/p2p.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES = 16384, LINE_BYTES = 256, WHY_BYTES = 512 };

/* What rank 0 tells the others. */
struct news {
    int32_t status, zero;
    char why[WHY_BYTES];
    struct shoali_p2p_rules rules;
};
_Static_assert(sizeof(struct news) <= SHOALI_P2P_INLINE_BYTES, "the rules go in an envelope");

const char *shoali_p2p_algorithm_name(int32_t algorithm)
{
    static const char *const names[] = {"direct", "gather", "ring", "doubling", "halving", "tree"};
    _Static_assert(sizeof names / sizeof names[0] == SHOALI_P2P_ALGORITHMS, "a name for each");
    return algorithm >= 0 && algorithm < SHOALI_P2P_ALGORITHMS ? names[algorithm] : NULL;
}

static bool parse_world(const char *line, struct shoali_p2p_rules *rules)
{
    int ranks = 0, local = 0, end = 0;
    /* the title may be of two words */
    if (sscanf(line, "world %31[^0-9] %d %d%n", rules->transport, &ranks, &local, &end) != 3 ||
        line[end] || ranks < 1 || local < 0)
        return false;
    for (size_t length = strlen(rules->transport);
         length > 0 && rules->transport[length - 1] == ' ';)
        rules->transport[--length] = '\0';
    rules->ranks = ranks;
    rules->local_ranks = local;
    return true;
}

static bool parse_rule(const char *line, struct shoali_p2p_rule *rule)
{
    char kind[32], sum[16], bytes[32], algorithm[16];
    int end = 0;
    *rule = (struct shoali_p2p_rule){.kind = -1, .algorithm = -1};
    if (sscanf(line, "%31s %15s %31s %15s%n", kind, sum, bytes, algorithm, &end) != 4 || line[end])
        return false;
    for (int32_t i = 0; i < SHOALI_COLLECTIVE_COUNT; i++)
        if (strcmp(kind, shoali_collective_name((enum shoali_collective)i)) == 0)
            rule->kind = i;
    for (int32_t i = 0; i < SHOALI_P2P_ALGORITHMS; i++)
        if (strcmp(algorithm, shoali_p2p_algorithm_name(i)) == 0)
            rule->algorithm = i;
    rule->integer = strcmp(sum, "integer") == 0;
    rule->up_to_bytes = INT64_MAX;
    const bool has_bytes = strcmp(bytes, "-") == 0 || shoali_parse_i64(bytes, &rule->up_to_bytes);
    return rule->kind >= 0 && rule->algorithm >= 0 && has_bytes && rule->up_to_bytes >= 0 &&
           (rule->integer || strcmp(sum, "any") == 0);
}

/* One line each; `text` is a whole file. A sentence names the line. */
static shoal_status parse_rules(const char *path, char *text, struct shoali_p2p_rules *rules)
{
    int32_t number = 0;
    *rules = (struct shoali_p2p_rules){0};
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        number++;
        if (*line == '\0' || *line == '#')
            continue;
        const bool full = rules->count == SHOALI_P2P_RULES_MAX;
        if (rules->ranks == 0 ? !parse_world(line, rules)
                              : full || !parse_rule(line, &rules->rule[rules->count++]))
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "%s:%d: \"%.80s\" is not what `shoal tune comm` writes (%s): "
                              "measure again, or unset SHOAL_COMM_TUNING",
                              path, (int)number, line,
                              rules->ranks == 0 ? "world TRANSPORT RANKS LOCAL_RANKS"
                                                : "COLLECTIVE any|integer BYTES|- ALGORITHM");
    }
    if (rules->ranks == 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s is empty: `shoal tune comm` writes such files", path);
    return SHOAL_OK;
}

static shoal_status read_file(const char *path, char text[FILE_BYTES])
{
    FILE *file = fopen(path, "re");
    if (!file)
        return SHOAL_FAIL(SHOAL_EINVAL, "cannot read %s (SHOAL_COMM_TUNING): %s", path,
                          strerror(errno));
    const size_t bytes = fread(text, 1, FILE_BYTES - 1, file);
    const bool failed = ferror(file), whole = bytes < FILE_BYTES - 1;
    fclose(file);
    text[bytes] = '\0';
    if (failed || !whole || strlen(text) != bytes)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s (SHOAL_COMM_TUNING) is no file that `shoal tune comm` has written",
                          path);
    return SHOAL_OK;
}

/* Of another world its figures would be no better than none. */
static shoal_status read_rules(const struct shoali_p2p_world *world, struct shoali_p2p_rules *rules)
{
    const char *path = getenv("SHOAL_COMM_TUNING");
    const int32_t local = (int32_t)shoali_started_get().local_size;
    char text[FILE_BYTES];
    shoal_status status = SHOAL_OK;
    *rules = (struct shoali_p2p_rules){0};
    if (!path || !*path)
        return SHOAL_OK;
    SHOAL_TRY(status, read_file(path, text), done);
    SHOAL_TRY(status, parse_rules(path, text, rules), done);
    if (strcmp(rules->transport, world->p2p->name) != 0 || rules->ranks != world->size ||
        (local > 0 && rules->local_ranks > 0 && rules->local_ranks != local))
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s (SHOAL_COMM_TUNING) was measured by %d ranks of %s, %d on rank 0's "
                            "host; this job has %d of %s, %d there: run `shoal tune comm` with "
                            "this job's ranks, or unset SHOAL_COMM_TUNING",
                            path, (int)rules->ranks, rules->transport, (int)rules->local_ranks,
                            (int)world->size, world->p2p->name, (int)local);
done:
    return status;
}

shoal_status shoali_p2p_rules_share(struct shoali_p2p_group *group)
{
    struct shoali_p2p_world *world = group->world;
    struct news news = {0};
    shoal_status status = SHOAL_OK;
    if (world->size == 1)
        return SHOAL_OK;
    if (world->rank == 0) {
        news.status = (int32_t)read_rules(world, &news.rules);
        if (news.status < 0)
            snprintf(news.why, sizeof news.why, "%s", shoal_error_message());
    }
    SHOAL_TRY(status,
              shoali_p2p_run(group, &(struct shoali_post){.kind = SHOALI_BROADCAST,
                                                          .here = "shoal_comm_init",
                                                          .in = &news,
                                                          .out = &news,
                                                          .count = (int64_t)sizeof news,
                                                          .dtype = SHOAL_U8}),
              done);
    news.why[WHY_BYTES - 1] = '\0';
    if (news.status < 0)
        status = SHOAL_FAIL((shoal_status)news.status, "%s", news.why);
    else
        world->rules = news.rules;
done:
    return status;
}
