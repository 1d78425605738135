/* SPEC(@SPEC)*, SPEC = HOST[:SLOT(,SLOT)*]. Repeated hosts merge; a bare host means all its slots.
 * A host is named as in the hostfile, or this machine by any of its names. */
#include "launcher/hosts/hosts.h"

#include "base/plain.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 256 };

struct filter {
    const char *flag, *text;
    struct shoali_hosts *hosts;
    bool value; /* of the slots that it names */
};

static shoal_status no_such_slot(const struct filter *filter, const struct shoali_host *host,
                                 int64_t slot)
{
    if (filter->hosts->file)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s %s: %s has no slot %lld: %s:%d gives it slots 0 to %d",
                          filter->flag, filter->text, host->name, (long long)slot,
                          filter->hosts->file, host->line, host->slots - 1);
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "%s %s: %s has no slot %lld: its slots are 0 to %d, one per core; use "
                      "--num_gpus for more ranks than cores",
                      filter->flag, filter->text, host->name, (long long)slot, host->slots - 1);
}

static shoal_status name_slots(const struct filter *filter, const struct shoali_host *host,
                               const char *list, size_t length)
{
    for (size_t at = 0; at <= length;) {
        size_t digits = 0;
        int64_t slot = 0;
        while (at + digits < length && shoali_ascii_digit(list[at + digits]) && digits < 9)
            slot = 10 * slot + (list[at + digits++] - '0');
        size_t end = at + digits;
        if (digits == 0 || (end < length && list[end] != ','))
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "%s %s: \"%.*s\" is no list of slots: write numbers with commas, "
                              "such as localhost:0,2",
                              filter->flag, filter->text, (int)length, list);
        if (slot >= host->slots)
            return no_such_slot(filter, host, slot);
        host->selected[slot] = filter->value;
        at = end + 1;
    }
    return SHOAL_OK;
}

/* As in the file, or both are this machine. */
static struct shoali_host *find_host(const struct shoali_hosts *hosts, const char *name)
{
    for (int32_t i = 0; i < hosts->count; i++)
        if (strcmp(hosts->host[i].name, name) == 0)
            return &hosts->host[i];
    if (!shoali_host_is_here(name))
        return NULL;
    for (int32_t i = 0; i < hosts->count; i++)
        if (hosts->host[i].here)
            return &hosts->host[i];
    return NULL;
}

static shoal_status name_host(const struct filter *filter, const char *spec, size_t length)
{
    char name[NAME_BYTES];
    const char *colon = memchr(spec, ':', length);
    const size_t name_length = colon ? (size_t)(colon - spec) : length;
    snprintf(name, sizeof(name), "%.*s", (int)name_length, spec);
    const struct shoali_host *host = name_length > 0 ? find_host(filter->hosts, name) : NULL;
    if (!host && filter->hosts->file)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s %s: host \"%s\" is not in the hostfile %s",
                          filter->flag, filter->text, name, filter->hosts->file);
    if (!host)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s %s: host \"%s\" is not known: without a hostfile the only host is "
                          "localhost",
                          filter->flag, filter->text, name);
    if (colon)
        return name_slots(filter, host, colon + 1, length - name_length - 1);
    for (int32_t i = 0; i < host->slots; i++)
        host->selected[i] = filter->value;
    return SHOAL_OK;
}

static shoal_status apply(const struct filter *filter)
{
    for (const char *spec = filter->text;; spec++) {
        size_t length = strcspn(spec, "@");
        shoal_status status = name_host(filter, spec, length);
        if (status < 0 || !spec[length])
            return status;
        spec += length;
    }
}

static int32_t count_selected(const struct shoali_host *host)
{
    int32_t count = 0;
    for (int32_t i = 0; i < host->slots; i++)
        count += host->selected[i];
    return count;
}

shoal_status shoali_slots_select(const char *include, const char *exclude,
                                 struct shoali_hosts *hosts)
{
    shoal_status status = SHOAL_OK;
    int32_t left = 0;
    if (include && exclude)
        return SHOAL_FAIL(SHOAL_EINVAL, "--include and --exclude exclude each other: give one");
    for (int32_t i = 0; i < hosts->count; i++)
        memset(hosts->host[i].selected, include ? 0 : 1,
               (size_t)hosts->host[i].slots * sizeof(bool));
    if (!include && !exclude)
        return SHOAL_OK;
    const struct filter filter = {.flag = include ? "--include" : "--exclude",
                                  .text = include ? include : exclude,
                                  .hosts = hosts,
                                  .value = include != NULL};
    SHOAL_TRY(status, apply(&filter), done);
    for (int32_t i = 0; i < hosts->count; i++)
        left += count_selected(&hosts->host[i]);
    if (left == 0 && hosts->file)
        status = SHOAL_FAIL(SHOAL_EINVAL, "%s %s leaves no slot of those in %s", filter.flag,
                            filter.text, hosts->file);
    else if (left == 0)
        status = SHOAL_FAIL(SHOAL_EINVAL, "%s %s leaves no slot: localhost has slots 0 to %d",
                            filter.flag, filter.text, hosts->host[0].slots - 1);
done:
    return status;
}
