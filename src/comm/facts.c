/* Lists of facts, their digests, and the sentence about two that differ. */
#include "comm/facts.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/plain.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SENTENCE_BYTES = 512, VALUE_BYTES = 512, SHOWN_BYTES = 72, SHOWN_FACTS = 3 };

/* ---- lists ---------------------------------------------------------------------------------- */

static void append(struct shoali_facts *facts, const char *name, const char *value)
{
    shoali_str_append_bytes(&facts->text, name, strlen(name) + 1);
    shoali_str_append_bytes(&facts->text, value, strlen(value) + 1);
    facts->count++;
}

void shoali_facts_add(struct shoali_facts *facts, const char *name, const char *format, ...)
{
    char value[VALUE_BYTES];
    va_list args;
    va_start(args, format);
    (void)shoali_vsnprintf(value, sizeof value, format, args);
    va_end(args);
    append(facts, name, value);
}

void shoali_facts_add_bytes(struct shoali_facts *facts, const char *name,
                            const struct shoali_str *bytes, const char *format, ...)
{
    char value[VALUE_BYTES];
    va_list args;
    va_start(args, format);
    (void)shoali_vsnprintf(value, sizeof value, format, args);
    va_end(args);
    const size_t length = strlen(value);
    snprintf(value + length, sizeof value - length, " (digest %016" PRIx64 ")",
             shoali_hash64(shoali_str_get(bytes), bytes->length));
    facts->text.failed |= bytes->failed;
    append(facts, name, value);
}

void shoali_facts_fini(struct shoali_facts *facts)
{
    shoali_str_fini(&facts->text);
    facts->count = 0;
}

/* ---- two lists ------------------------------------------------------------------------------ */

struct list {
    const char *text;
    int64_t bytes;
    int32_t rank; /* whose it is */
};

static const char *next_fact(const struct list *list, const char *at)
{
    at += strlen(at) + 1;
    at += strlen(at) + 1;
    return at < list->text + list->bytes ? at : NULL;
}

/* The value of a name, NULL when the list does not have it. */
static const char *find_value(const struct list *list, const char *name)
{
    const char *at = list->bytes > 0 ? list->text : NULL;
    while (at && strcmp(at, name) != 0)
        at = next_fact(list, at);
    return at ? at + strlen(at) + 1 : NULL;
}

/* Of two long values the part where they begin to differ. */
static const char *show(const char *value, const char *other, char text[SHOWN_BYTES + 8])
{
    size_t same = 0;
    if (!value || !*value)
        return value ? "nothing" : "no such value";
    while (other && strlen(value) >= SHOWN_BYTES && value[same] && value[same] == other[same])
        same++;
    const size_t skip = same > SHOWN_BYTES / 3 ? same - SHOWN_BYTES / 3 : 0;
    const bool cut = strlen(value + skip) > SHOWN_BYTES;
    snprintf(text, SHOWN_BYTES + 8, "%s%.*s%s", skip ? "..." : "", SHOWN_BYTES, value + skip,
             cut ? "..." : "");
    return text;
}

static void append_difference(struct shoali_str *out, int32_t number, const char *name,
                              const struct list *a, const struct list *b)
{
    char first[SHOWN_BYTES + 8], second[SHOWN_BYTES + 8];
    const char *x = find_value(a, name), *y = find_value(b, name);
    if (number < SHOWN_FACTS)
        shoali_str_append(out, "%s%s (rank %d: %s, rank %d: %s)", number > 0 ? ", " : "", name,
                          (int)a->rank, show(x, y, first), (int)b->rank, show(y, x, second));
}

static shoal_status log_differences(const struct list *a, const struct list *b)
{
    struct shoali_str text = {0};
    int32_t count = 0;
    for (const char *at = a->bytes ? a->text : NULL; at; at = next_fact(a, at)) {
        const char *other = find_value(b, at);
        if (!other || strcmp(other, at + strlen(at) + 1) != 0)
            append_difference(&text, count++, at, a, b);
    }
    for (const char *at = b->bytes ? b->text : NULL; at; at = next_fact(b, at))
        if (!find_value(a, at))
            append_difference(&text, count++, at, a, b);
    if (count > SHOWN_FACTS)
        shoali_str_append(&text, " and %d more", (int)(count - SHOWN_FACTS));
    const shoal_status status = SHOAL_FAIL(
        SHOAL_EMISMATCH,
        "the ranks disagree on %s: start all ranks with the same program, flags, configuration, "
        "environment and data",
        count > 0 ? shoali_str_get(&text) : "the order of what they compare");
    shoali_str_fini(&text);
    return status;
}

/* ---- all ranks ------------------------------------------------------------------------------ */

/* The lowest rank that says yes; -1: none does. */
static shoal_status find_first(shoal_group *group, bool yes, int32_t *rank)
{
    shoal_status status;
    int64_t lowest = yes ? shoal_comm_rank(group) : shoal_comm_size(group);
    SHOAL_TRY(status, shoal_all_reduce(group, &lowest, &lowest, 1, SHOAL_I64, SHOAL_MIN, NULL),
              done);
    *rank = lowest < shoal_comm_size(group) ? (int32_t)lowest : -1;
done:
    return status;
}

/* A rank's list for all: *text is owned by the caller. */
static shoal_status send_list(const struct shoali_facts *facts, shoal_group *group, int32_t root,
                              int32_t number, char **text, struct list *list)
{
    shoal_status status;
    int64_t words[2] = {(int64_t)facts->text.length, number};
    SHOAL_TRY(status, shoal_broadcast(group, words, 2, SHOAL_I64, root, NULL), done);
    *text = shoali_calloc((size_t)words[0] + 1, 1, "what another rank compares");
    if (!*text)
        return SHOAL_ENOMEM;
    if (root == shoal_comm_rank(group))
        memcpy(*text, shoali_str_get(&facts->text), (size_t)words[0]);
    if (words[0] > 0)
        SHOAL_TRY(status, shoal_broadcast(group, *text, words[0], SHOAL_U8, root, NULL), done);
    *list = (struct list){*text, words[0], (int32_t)words[1]};
done:
    return status;
}

static shoal_status compare_lists(const struct shoali_facts *facts, shoal_group *group,
                                  int32_t number)
{
    shoal_status status;
    char *texts[2] = {NULL, NULL};
    struct list a = {0}, b = {0};
    int32_t first, other;
    SHOAL_TRY(status, find_first(group, facts->count > 0, &first), done);
    SHOAL_TRY(status, send_list(facts, group, first, number, &texts[0], &a), done);
    const bool same = facts->text.length == (size_t)a.bytes &&
                      memcmp(shoali_str_get(&facts->text), a.text, (size_t)a.bytes) == 0;
    SHOAL_TRY(status, find_first(group, facts->count > 0 && !same, &other), done);
    if (other < 0)
        goto done; /* the digests alone differ, which cannot be */
    SHOAL_TRY(status, send_list(facts, group, other, number, &texts[1], &b), done);
    status = log_differences(&a, &b);
done:
    shoali_free(texts[0]);
    shoali_free(texts[1]);
    return status;
}

/* The sentence of the rank `root` of the group, which has failed. */
static shoal_status receive_failure(shoal_group *group, int32_t root, int32_t number,
                                    shoal_status own)
{
    shoal_status status;
    char sentence[SENTENCE_BYTES] = "";
    int64_t words[1] = {number};
    snprintf(sentence, sizeof sentence, "%s", own < 0 ? shoal_error_message() : "");
    SHOAL_TRY(status, shoal_broadcast(group, words, 1, SHOAL_I64, root, NULL), done);
    SHOAL_TRY(status,
              shoal_broadcast(group, sentence, (int64_t)sizeof sentence, SHOAL_U8, root, NULL),
              done);
    sentence[sizeof sentence - 1] = '\0';
    if (own >= 0)
        status = SHOAL_FAIL(SHOAL_EPEER, "rank %d failed: %s", (int)words[0], sentence);
done:
    return own < 0 ? own : status;
}

shoal_status shoali_facts_agree(const struct shoali_facts *facts, shoal_group *group,
                                int32_t number, shoal_status own)
{
    shoal_status status;
    if (own >= 0 && facts->text.failed)
        own = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate what the ranks compare");
    if (!group || shoal_comm_size(group) == 1)
        return own;
    const int64_t digest =
        (int64_t)(shoali_hash64(shoali_str_get(&facts->text), facts->text.length) >> 2);
    const bool silent = facts->count == 0 || own < 0;
    int64_t words[3] = {silent ? INT64_MIN : digest, silent ? INT64_MIN : -digest,
                        own < 0 ? shoal_comm_size(group) - shoal_comm_rank(group) : 0};
    status = shoal_all_reduce(group, words, words, 3, SHOAL_I64, SHOAL_MAX, NULL);
    if (status < 0)
        return own < 0 ? own : status;
    if (words[2] > 0)
        return receive_failure(group, shoal_comm_size(group) - (int32_t)words[2], number, own);
    if (words[0] == INT64_MIN || words[0] == -words[1])
        return SHOAL_OK;
    return compare_lists(facts, group, number);
}

/* ---- of programs ---------------------------------------------------------------------------- */

shoal_status shoal_comm_agree(shoal_group *group, const shoal_fact *facts, int32_t count)
{
    struct shoali_facts own = {0};
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; i < count && status == SHOAL_OK; i++) {
        if (facts[i].name && facts[i].value)
            append(&own, facts[i].name, facts[i].value);
        else
            status = SHOAL_FAIL(SHOAL_EINVAL, "fact %d needs a name and a value", (int)i);
    }
    status = shoali_facts_agree(&own, group, group ? shoal_comm_rank(group) : 0, status);
    shoali_facts_fini(&own);
    return status;
}
