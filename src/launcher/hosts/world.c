/* Who is which rank: by node, then by slot, whatever number of slots each has. */
#include "launcher/hosts/hosts.h"

#include "base/json.h"
#include "base/plain.h"
#include "base/str.h"

#include <jansson.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static int32_t count_selected(const struct shoali_host *host)
{
    int32_t count = 0;
    for (int32_t i = 0; i < host->slots; i++)
        count += host->selected[i];
    return count;
}

static shoal_status add_node(const struct shoali_host *host, int32_t ranks_per_node,
                             struct shoali_arena *arena, struct shoali_world *world)
{
    struct shoali_node *node = &world->node[world->nodes];
    const int32_t slots = ranks_per_node ? ranks_per_node : host->slots;
    *node = (struct shoali_node){.name = host->name,
                                 .login = host->login,
                                 .line = host->line,
                                 .first_rank = world->ranks,
                                 .here = host->here};
    node->slots.value = shoali_arena_alloc(arena, (size_t)slots * sizeof(int64_t));
    if (!node->slots.value)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < slots; i++)
        if (ranks_per_node || host->selected[i])
            node->slots.value[node->slots.count++] = i;
    world->nodes++;
    world->ranks += node->slots.count;
    return SHOAL_OK;
}

shoal_status shoali_world_make(const struct shoali_hosts *hosts, int32_t num_nodes,
                               int32_t ranks_per_node, struct shoali_arena *arena,
                               struct shoali_world *world)
{
    shoal_status status = SHOAL_OK;
    *world = (struct shoali_world){.file = hosts->file};
    world->node = shoali_arena_alloc(arena, (size_t)hosts->count * sizeof(world->node[0]));
    if (!world->node)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < hosts->count && (num_nodes == 0 || world->nodes < num_nodes); i++)
        if (count_selected(&hosts->host[i]) > 0)
            SHOAL_TRY(status, add_node(&hosts->host[i], ranks_per_node, arena, world), done);
    if (num_nodes > world->nodes && hosts->file)
        status = SHOAL_FAIL(SHOAL_EINVAL, "--num_nodes %d: hostfile %s names only %d",
                            (int)num_nodes, hosts->file, (int)world->nodes);
    else if (num_nodes > world->nodes)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--num_nodes %d needs a hostfile that names the hosts (--hostfile; "
                            "lines such as worker-0 slots=4)",
                            (int)num_nodes);
done:
    return status;
}

const char *shoali_world_print(const struct shoali_world *world, struct shoali_arena *arena)
{
    struct shoali_str text = {0};
    for (int32_t i = 0; i < world->nodes; i++) {
        const struct shoali_node *node = &world->node[i];
        shoali_str_append(&text, "%s%s", i ? "@" : "", node->name);
        for (int32_t k = 0; k < node->slots.count; k++)
            shoali_str_append(&text, "%s%lld", k ? "," : ":", (long long)node->slots.value[k]);
    }
    const char *copy = text.failed ? NULL : shoali_arena_strdup(arena, shoali_str_get(&text));
    shoali_str_fini(&text);
    return copy;
}

static int32_t count_of(const char *text, size_t length, char wanted)
{
    int32_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += text[i] == wanted;
    return count;
}

/* NAME:SLOT,SLOT; false: it is something else. */
static bool parse_node(char *spec, int32_t *slots, struct shoali_node *node, int64_t *room)
{
    char *at = strrchr(spec, ':');
    if (!at || at == spec)
        return false;
    *at++ = '\0';
    *node = (struct shoali_node){.name = spec, .slots.value = room};
    for (;; at++) {
        char *end;
        if (!shoali_ascii_digit(*at))
            return false;
        const long slot = strtol(at, &end, 10);
        if (slot > INT32_MAX || (*end && *end != ','))
            return false;
        node->slots.value[node->slots.count++] = slot;
        at = end;
        if (!*at)
            break;
    }
    *slots = node->slots.count;
    return true;
}

/* DeepSpeed's: an object of slots per host, {"worker-0": [0, 1], ...}, in base64 for URLs. */
static json_t *decode(const char *text)
{
    const size_t length = strlen(text);
    size_t bytes = 0;
    json_t *hosts = NULL;
    char *plain = shoali_malloc(length + 1, "the hosts of a job");
    if (plain && sodium_base642bin((unsigned char *)plain, length, text, length, NULL, &bytes, NULL,
                                   sodium_base64_VARIANT_URLSAFE) == 0)
        (void)!shoali_json_read(plain, bytes, &hosts, NULL);
    shoali_free(plain);
    return hosts;
}

static shoal_status add_decoded(const char *name, const json_t *slots, struct shoali_arena *arena,
                                struct shoali_world *world)
{
    struct shoali_node *node = &world->node[world->nodes++];
    const size_t count = json_array_size(slots);
    const char *at = strrchr(name, '@'); /* behind a user for ssh */
    *node = (struct shoali_node){.name = shoali_arena_strdup(arena, at ? at + 1 : name),
                                 .first_rank = world->ranks,
                                 .slots.value =
                                     shoali_arena_alloc(arena, (count + 1) * sizeof(int64_t))};
    if (!node->name || !node->slots.value)
        return SHOAL_ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const json_t *slot = json_array_get(slots, i);
        if (!json_is_integer(slot) || json_integer_value(slot) < 0)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "--world_info: the slots of host %s are no numbers from 0", name);
        node->slots.value[node->slots.count++] = json_integer_value(slot);
    }
    world->ranks += node->slots.count;
    return count ? SHOAL_OK
                 : SHOAL_FAIL(SHOAL_EINVAL, "--world_info: host %s has no list of slots", name);
}

static shoal_status parse_encoded(const char *text, struct shoali_arena *arena,
                                  struct shoali_world *world)
{
    shoal_status status = SHOAL_OK;
    const char *name;
    json_t *slots, *hosts = decode(text);
    const size_t nodes = json_object_size(hosts);
    shoali_error_clear();
    *world = (struct shoali_world){0};
    if (nodes == 0) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--world_info %s is neither what `shoal run` gives its nodes, such as "
                            "worker-0:0,1@worker-1:0,1, nor DeepSpeed's, an object such as "
                            "{\"worker-0\": [0, 1]} in base64",
                            text);
        goto done;
    }
    world->node = shoali_arena_alloc(arena, nodes * sizeof(world->node[0]));
    if (!world->node) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    json_object_foreach(hosts, name, slots)
    {
        SHOAL_TRY(status, add_decoded(name, slots, arena, world), done);
    }
done:
    json_decref(hosts);
    return status;
}

shoal_status shoali_world_parse(const char *text, struct shoali_arena *arena,
                                struct shoali_world *world)
{
    if (!strchr(text, ':')) /* base64 has none */
        return parse_encoded(text, arena, world);
    const size_t length = strlen(text);
    const int32_t nodes = count_of(text, length, '@') + 1;
    const int32_t slots = count_of(text, length, ',') + nodes;
    char *copy = shoali_arena_strdup(arena, text);
    int64_t *room = shoali_arena_alloc(arena, (size_t)slots * sizeof(int64_t));
    *world = (struct shoali_world){0};
    world->node = shoali_arena_alloc(arena, (size_t)nodes * sizeof(world->node[0]));
    if (!copy || !room || !world->node)
        return SHOAL_ENOMEM;
    for (char *spec = copy; world->nodes < nodes; world->nodes++) {
        const size_t bytes = strcspn(spec, "@");
        struct shoali_node *node = &world->node[world->nodes];
        int32_t count = 0;
        spec[bytes] = '\0';
        if (!parse_node(spec, &count, node, room))
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "--world_info %s is not what `shoal run` gives its nodes, such as "
                              "worker-0:0,1@worker-1:0,1",
                              text);
        node->first_rank = world->ranks;
        world->ranks += count;
        room += count;
        spec += bytes + 1;
    }
    return SHOAL_OK;
}

int32_t shoali_world_node_of(const struct shoali_world *world, int32_t rank)
{
    int32_t node = 0;
    while (node + 1 < world->nodes && world->node[node + 1].first_rank <= rank)
        node++;
    return node;
}
