/* SPEC(@SPEC)*, SPEC = HOST[:SLOT(,SLOT)*]. Repeated hosts merge; a bare host means all its slots.
 */
#include "launcher/launcher.h"

#include <ctype.h>
#include <string.h>

/* One filter: which slots it names. */
struct filter {
    const char *flag, *text;
    int32_t slot_count;
    bool *named; /* [slot_count] */
};

static shoal_status name_slots(const struct filter *filter, const char *list, size_t length)
{
    for (size_t at = 0; at <= length;) {
        size_t digits = 0;
        int64_t slot = 0;
        while (at + digits < length && isdigit((unsigned char)list[at + digits]) && digits < 9)
            slot = 10 * slot + (list[at + digits++] - '0');
        size_t end = at + digits;
        if (digits == 0 || (end < length && list[end] != ','))
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "%s %s: \"%.*s\" is no list of slots: write numbers with commas, "
                              "such as localhost:0,2",
                              filter->flag, filter->text, (int)length, list);
        if (slot >= filter->slot_count)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "%s %s: localhost has no slot %lld: its slots are 0 to %d, one per "
                              "core; use --num_gpus for more ranks than cores",
                              filter->flag, filter->text, (long long)slot, filter->slot_count - 1);
        filter->named[slot] = true;
        at = end + 1;
    }
    return SHOAL_OK;
}

static shoal_status name_host(const struct filter *filter, const char *spec, size_t length)
{
    static const char localhost[] = "localhost";
    const char *colon = memchr(spec, ':', length);
    size_t host_length = colon ? (size_t)(colon - spec) : length;
    if (host_length != sizeof(localhost) - 1 || memcmp(spec, localhost, host_length) != 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s %s: host \"%.*s\" is not known: without a hostfile the only host is "
                          "localhost",
                          filter->flag, filter->text, (int)host_length, spec);
    if (colon)
        return name_slots(filter, colon + 1, length - host_length - 1);
    for (int32_t i = 0; i < filter->slot_count; i++)
        filter->named[i] = true;
    return SHOAL_OK;
}

static shoal_status parse(const struct filter *filter)
{
    for (const char *spec = filter->text;; spec++) {
        size_t length = strcspn(spec, "@");
        shoal_status status = name_host(filter, spec, length);
        if (status < 0 || !spec[length])
            return status;
        spec += length;
    }
}

shoal_status shoali_slots_select(const char *include, const char *exclude, int32_t slot_count,
                                 struct shoali_arena *arena, struct shoali_ints *slots)
{
    shoal_status status = SHOAL_OK;
    *slots = (struct shoali_ints){0};
    if (!include && !exclude)
        return SHOAL_OK;
    if (include && exclude)
        return SHOAL_FAIL(SHOAL_EINVAL, "--include and --exclude exclude each other: give one");
    struct filter filter = {.flag = include ? "--include" : "--exclude",
                            .text = include ? include : exclude,
                            .slot_count = slot_count};
    filter.named = shoali_arena_alloc(arena, (size_t)slot_count * sizeof(bool));
    slots->value = shoali_arena_alloc(arena, (size_t)slot_count * sizeof(int64_t));
    if (!filter.named || !slots->value)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, parse(&filter), done);
    for (int32_t i = 0; i < slot_count; i++)
        if (filter.named[i] == (include != NULL))
            slots->value[slots->count++] = i;
    if (slots->count == 0)
        status = SHOAL_FAIL(SHOAL_EINVAL, "%s %s leaves no slot: localhost has slots 0 to %d",
                            filter.flag, filter.text, slot_count - 1);
done:
    return status;
}
