/* Which ranks share a host, and where that puts them. */
#include "comm/hierarchical/hierarchical.h"

#include "base/process.h"
#include "comm/folder.h"
#include "comm/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IDENTITY_BYTES = 192 };
static const char variable[] = "SHOAL_PRETEND_HOSTS";

bool shoali_hierarchical_is_pretended(void)
{
    const char *text = getenv(variable);
    return text && *text;
}

static shoal_status fail_of_pretence(const char *text)
{
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "%s=\"%.60s\" must be ranks per host, as in 3,1, or cyclic: and a number of "
                      "hosts, as in cyclic:2",
                      variable, text);
}

shoal_status shoali_hier_pretend(const char *text, int32_t size, int32_t *host)
{
    static const char cyclic[] = "cyclic:";
    int64_t count = 0;
    int32_t rank = 0, number = 0;
    if (strncmp(text, cyclic, sizeof cyclic - 1) == 0) {
        if (!shoali_parse_i64(text + sizeof cyclic - 1, &count) || count < 1)
            return fail_of_pretence(text);
        for (; rank < size; rank++)
            host[rank] = (int32_t)(rank % count);
        return SHOAL_OK;
    }
    for (const char *at = text; rank < size; number++) {
        char word[16] = "";
        const size_t length = strcspn(at, ",");
        if (length == 0 || length >= sizeof word)
            return fail_of_pretence(text);
        memcpy(word, at, length);
        if (!shoali_parse_i64(word, &count) || count < 1)
            return fail_of_pretence(text);
        for (int64_t i = 0; i < count && rank < size; i++)
            host[rank++] = number;
        at += length;
        at = *at == ',' ? at + 1 : text;
    }
    return SHOAL_OK;
}

/* Ranks that say the same can map each other's memory: one kernel, one host name (a container of
 * its own has another), one /dev/shm. */
static shoal_status describe_host(char identity[IDENTITY_BYTES])
{
    char boot[SHOALI_BOOT_BYTES], name[100] = "";
    struct stat info = {0};
    const shoal_status status = shoali_machine_read_boot(boot);
    memset(identity, 0, IDENTITY_BYTES);
    if (gethostname(name, sizeof name - 1) != 0)
        name[0] = '\0';
    if (stat(SHOALI_FOLDER_MEMORY, &info) != 0 || !shoali_folder_is_memory())
        info.st_dev = (dev_t)shoali_process_namespace(); /* segments are reached by /proc */
    snprintf(identity, IDENTITY_BYTES, "%s %s %llu", boot, name, (unsigned long long)info.st_dev);
    return status;
}

shoal_status shoali_hier_find_hosts(const struct shoali_comm_ops *ops, void *all, int32_t *host)
{
    const int32_t size = ops->size(all);
    char own[IDENTITY_BYTES], *identities = NULL;
    shoal_status status = SHOAL_OK;
    if (shoali_hierarchical_is_pretended())
        return shoali_hier_pretend(getenv(variable), size, host);
    identities = shoali_calloc((size_t)size, IDENTITY_BYTES, "names of hosts");
    if (!identities)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, describe_host(own), done);
    SHOAL_TRY(status,
              shoali_hier_run_on(ops, all,
                                 &(struct shoali_post){.kind = SHOALI_ALL_GATHER,
                                                       .here = SHOALI_HERE,
                                                       .in = own,
                                                       .out = identities,
                                                       .count = IDENTITY_BYTES,
                                                       .dtype = SHOAL_U8}),
              done);
    for (int32_t r = 0; r < size; r++) {
        host[r] = r;
        for (int32_t earlier = 0; earlier < r; earlier++)
            if (host[earlier] == earlier &&
                memcmp(identities + (size_t)earlier * IDENTITY_BYTES,
                       identities + (size_t)r * IDENTITY_BYTES, IDENTITY_BYTES) == 0) {
                host[r] = earlier;
                break;
            }
    }
done:
    shoali_free(identities);
    return status;
}

/* ---- layouts -------------------------------------------------------------------------------- */

/* Numbers hosts in the order of their first ranks. */
static void number_hosts(struct shoali_hier_layout *layout, const int32_t *host)
{
    for (int32_t r = 0; r < layout->size; r++) {
        int32_t h = 0;
        while (h < layout->hosts && layout->id_of[h] != host[r])
            h++;
        if (h == layout->hosts)
            layout->id_of[layout->hosts++] = host[r];
        layout->host_of[r] = h;
        layout->place_of[r] = layout->count_of[h]++;
        if (layout->count_of[h] > layout->largest)
            layout->largest = layout->count_of[h];
    }
}

shoal_status shoali_hier_layout_init(struct shoali_hier_layout *layout, const int32_t *host,
                                     int32_t size, int32_t rank)
{
    *layout = (struct shoali_hier_layout){.size = size, .rank = rank, .in_order = true};
    layout->host_of = shoali_calloc(4 * (size_t)size, sizeof(int32_t), "who is on which host");
    if (!layout->host_of)
        return SHOAL_ENOMEM;
    layout->place_of = layout->host_of + size;
    layout->count_of = layout->place_of + size;
    layout->id_of = layout->count_of + size;
    number_hosts(layout, host);
    const size_t places = (size_t)layout->hosts * (size_t)layout->largest;
    layout->at = shoali_calloc(places, sizeof(int32_t), "who is on which host");
    if (!layout->at) {
        shoali_hier_layout_fini(layout);
        return SHOAL_ENOMEM;
    }
    memset(layout->at, 0xff, places * sizeof(int32_t));
    for (int32_t r = 0; r < size; r++) {
        const int32_t place = layout->host_of[r] * layout->largest + layout->place_of[r];
        layout->at[place] = r;
        layout->in_order = layout->in_order && place == r;
    }
    layout->in_order = layout->in_order && layout->hosts * layout->largest == size;
    layout->levels = layout->hosts > 1 && layout->largest > 1 &&
                     places <= SHOALI_HIER_ROOM_BYTES / sizeof(int64_t);
    layout->host = layout->host_of[rank];
    layout->place = layout->place_of[rank];
    layout->local = layout->count_of[layout->host];
    return SHOAL_OK;
}

void shoali_hier_layout_fini(struct shoali_hier_layout *layout)
{
    shoali_free(layout->host_of);
    shoali_free(layout->at);
    *layout = (struct shoali_hier_layout){0};
}
