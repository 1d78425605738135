/* mesh.c - the object: sizes checked, both generators, communicators made on demand. */
#include "parallel_state/parallel_state.h"

#include "base/arena.h"
#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char default_order[] = "tp-cp-ep-dp-pp";

/* ---- sizes ---------------------------------------------------------------------------------- */

static int32_t one_if_zero(int32_t size)
{
    return size == 0 ? 1 : size;
}

static shoal_status check_sizes(const shoal_mesh_args *args)
{
    const struct {
        const char *name;
        int32_t size;
    } given[] = {{"tensor", args->tensor},     {"context", args->context},
                 {"expert", args->expert},     {"expert tensor", args->expert_tensor},
                 {"pipeline", args->pipeline}, {"data", args->data}};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (given[i].size < 0)
            return SHOAL_FAIL(SHOAL_EINVAL, "a mesh cannot have %d ranks along %s; give 1 or more",
                              (int)given[i].size, given[i].name);
    return SHOAL_OK;
}

/* What is left of the ranks for dp when `used` of them make one replica. */
static shoal_status left_for_data(int32_t ranks, int64_t used, const char *what, int32_t *data)
{
    if (used > ranks || ranks % used != 0)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "%d rank%s cannot be divided into replicas of %lld (%s); change a size or "
            "the number of ranks (shoal run --num_gpus N)",
            (int)ranks, ranks > 1 ? "s" : "", (long long)used, what);
    *data = (int32_t)(ranks / used);
    return SHOAL_OK;
}

static shoal_status find_sizes(const shoal_mesh_args *args, int32_t ranks,
                               struct shoali_axis_sizes *dense, struct shoali_axis_sizes *expert)
{
    shoal_status status;
    char what[128];
    *dense = (struct shoali_axis_sizes){.tp = one_if_zero(args->tensor),
                                        .cp = one_if_zero(args->context),
                                        .ep = 1,
                                        .pp = one_if_zero(args->pipeline)};
    *expert =
        (struct shoali_axis_sizes){.tp = args->expert_tensor != 0 ? args->expert_tensor : dense->tp,
                                   .cp = 1,
                                   .ep = one_if_zero(args->expert),
                                   .pp = dense->pp};
    snprintf(what, sizeof what, "tensor %d x context %d x pipeline %d", (int)dense->tp,
             (int)dense->cp, (int)dense->pp);
    SHOAL_TRY(status,
              left_for_data(ranks, (int64_t)dense->tp * dense->cp * dense->pp, what, &dense->dp),
              done);
    if (args->data != 0 && args->data != dense->dp) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s leave %d of %d ranks for data parallelism, not %d; leave the size "
                            "out or correct it",
                            what, (int)dense->dp, (int)ranks, (int)args->data);
        goto done;
    }
    snprintf(what, sizeof what, "expert tensor %d x expert %d x pipeline %d", (int)expert->tp,
             (int)expert->ep, (int)expert->pp);
    SHOAL_TRY(
        status,
        left_for_data(ranks, (int64_t)expert->tp * expert->ep * expert->pp, what, &expert->dp),
        done);
done:
    return status;
}

/* A stage must hold the same ranks for both generators, else a layer's experts would lie on another
 * stage than the layer. */
static shoal_status compare_stages(const struct shoal_mesh *mesh, const char *order)
{
    for (int32_t rank = 0; rank < mesh->ranks; rank++)
        if (shoali_generator_number(&mesh->dense, SHOAL_AXIS_PP, rank) !=
            shoali_generator_number(&mesh->expert, SHOAL_AXIS_PP, rank))
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "with the order \"%s\" rank %d is on pipeline stage %d for dense and "
                              "on stage %d for expert layers; put pp last, or choose sizes that "
                              "leave both the same data-parallel size",
                              order, (int)rank,
                              (int)shoali_generator_number(&mesh->dense, SHOAL_AXIS_PP, rank),
                              (int)shoali_generator_number(&mesh->expert, SHOAL_AXIS_PP, rank));
    return SHOAL_OK;
}

/* Where ranks differ in more than their share of the data, a number alone says little. */
static void say_name(const struct shoal_mesh *mesh)
{
    char name[64];
    if (mesh->group == NULL || mesh->ranks == 1 ||
        shoal_mesh_size(mesh, SHOAL_AXIS_DP) == mesh->ranks)
        return;
    shoali_comm_set_name(mesh->group, shoal_mesh_format(mesh, mesh->rank, name, sizeof name));
}

/* ---- the object ----------------------------------------------------------------------------- */

static shoal_status make_mesh(const shoal_mesh_args *args, shoal_mesh **mesh)
{
    shoal_status status;
    struct shoali_axis_sizes dense, expert;
    const char *order = args->order != NULL ? args->order : default_order;
    struct shoal_mesh *made = shoali_calloc(1, sizeof *made, "a mesh");
    if (made == NULL)
        return SHOAL_ENOMEM;
    made->group = args->group;
    made->ranks = args->group != NULL ? shoal_comm_size(args->group) : one_if_zero(args->ranks);
    made->rank = args->group != NULL ? shoal_comm_rank(args->group) : args->rank;
    if (made->ranks < 1 || made->rank < 0 || made->rank >= made->ranks) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "a mesh of %d ranks has no rank %d", (int)made->ranks,
                            (int)made->rank);
        goto done;
    }
    SHOAL_TRY(status, check_sizes(args), done);
    SHOAL_TRY(status, find_sizes(args, made->ranks, &dense, &expert), done);
    SHOAL_TRY(status, shoali_order_parse(order, &made->dense), done);
    made->expert = made->dense;
    SHOAL_TRY(status, shoali_generator_set(&made->dense, order, &dense), done);
    SHOAL_TRY(status, shoali_generator_set(&made->expert, order, &expert), done);
    SHOAL_TRY(status, compare_stages(made, order), done);
    say_name(made);
    *mesh = made;
    made = NULL;
done:
    free(made);
    return status;
}

shoal_status shoal_mesh_create(const shoal_mesh_args *args, shoal_mesh **mesh)
{
    shoal_status status;
    shoal_mesh_args own = {0};
    *mesh = NULL;
    if (args)
        own = *args;
    SHOAL_TRY(status, make_mesh(&own, mesh), done);
done:
    return status;
}

void shoal_mesh_destroy(shoal_mesh *mesh)
{
    if (mesh == NULL)
        return;
    for (int32_t i = mesh->made_count - 1; i >= 0; i--)
        shoal_comm_destroy(mesh->made[i].group);
    free(mesh);
}

/* ---- arithmetic ----------------------------------------------------------------------------- */

static const struct shoali_generator *generator_of(const struct shoal_mesh *mesh, shoal_axes axes)
{
    return axes & SHOAL_AXIS_EXPERT ? &mesh->expert : &mesh->dense;
}

shoal_group *shoal_mesh_world(const shoal_mesh *mesh)
{
    return mesh->group;
}

int32_t shoal_mesh_ranks(const shoal_mesh *mesh)
{
    return mesh->ranks;
}

int32_t shoal_mesh_rank(const shoal_mesh *mesh)
{
    return mesh->rank;
}

int32_t shoal_mesh_size(const shoal_mesh *mesh, shoal_axes axes)
{
    return shoali_generator_size(generator_of(mesh, axes), axes);
}

int32_t shoal_mesh_coordinate(const shoal_mesh *mesh, shoal_axes axes, int32_t rank)
{
    return shoali_generator_number(generator_of(mesh, axes), axes, rank);
}

int32_t shoal_mesh_group_index(const shoal_mesh *mesh, shoal_axes axes, int32_t rank)
{
    return shoali_generator_number(generator_of(mesh, axes), ~axes, rank);
}

int32_t shoal_mesh_member(const shoal_mesh *mesh, shoal_axes axes, int32_t rank, int32_t coordinate)
{
    return shoali_generator_member(generator_of(mesh, axes), axes, rank, coordinate);
}

int32_t shoal_mesh_level_member(const shoal_mesh *mesh, shoal_axes axes, const int32_t *sizes,
                                int32_t levels, int32_t level, int32_t rank, int32_t coordinate)
{
    int32_t stride = 1, product = 1;
    for (int32_t i = 0; i < levels; i++) {
        stride *= i < level ? sizes[i] : 1;
        product *= sizes[i];
    }
    if (product != shoal_mesh_size(mesh, axes) || level < 0 || level >= levels)
        return -1;
    const int32_t number = shoal_mesh_coordinate(mesh, axes, rank);
    const int32_t here = number / stride % sizes[level];
    return shoal_mesh_member(mesh, axes, rank, number + (coordinate - here) * stride);
}

int32_t shoal_mesh_embedding_ranks(const shoal_mesh *mesh, bool tied, int32_t rank,
                                   int32_t ranks[2])
{
    const int32_t stages = shoal_mesh_size(mesh, SHOAL_AXIS_PP);
    ranks[0] = shoal_mesh_member(mesh, SHOAL_AXIS_PP, rank, 0);
    if (!tied || stages == 1)
        return 1;
    ranks[1] = shoal_mesh_member(mesh, SHOAL_AXIS_PP, rank, stages - 1);
    return 2;
}

int32_t shoal_mesh_position_embedding_rank(const shoal_mesh *mesh, int32_t rank)
{
    return shoal_mesh_member(mesh, SHOAL_AXIS_PP, rank, 0);
}

const char *shoal_mesh_format(const shoal_mesh *mesh, int32_t rank, char *buffer, size_t bytes)
{
    const struct shoali_generator *generator = &mesh->dense;
    size_t used = 0;
    if (bytes > 0)
        buffer[0] = '\0';
    for (int32_t i = 0; i < generator->count && used < bytes; i++)
        if (generator->size[i] > 1)
            used += (size_t)snprintf(buffer + used, bytes - used, "%s%s %d", used > 0 ? ", " : "",
                                     shoali_axis_name(generator->axis[i]),
                                     (int)(rank / generator->stride[i] % generator->size[i]));
    return buffer;
}

/* Behind what is there, as far as it fits. */
static void append(char *buffer, size_t bytes, const char *between, const char *word)
{
    const size_t used = strlen(buffer);
    snprintf(buffer + used, bytes - used, "%s%s", between, word);
}

const char *shoal_mesh_describe(const shoal_mesh *mesh, char *buffer, size_t bytes)
{
    static const shoal_axes axes[] = {SHOAL_AXIS_TP, SHOAL_AXIS_CP,
                                      SHOAL_AXIS_EP | SHOAL_AXIS_EXPERT, SHOAL_AXIS_DP,
                                      SHOAL_AXIS_PP};
    char word[32];
    if (bytes == 0)
        return buffer;
    snprintf(buffer, bytes, "%d rank%s", (int)mesh->ranks, mesh->ranks == 1 ? "" : "s");
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        const int32_t size = shoal_mesh_size(mesh, axes[i]);
        snprintf(word, sizeof word, "%s %d", shoali_axis_name(axes[i] & ~SHOAL_AXIS_EXPERT),
                 (int)size);
        if (size > 1)
            append(buffer, bytes, ", ", word);
    }
    for (int32_t i = 0; i < mesh->dense.count; i++)
        append(buffer, bytes, i == 0 ? "; numbered " : "-", shoali_axis_name(mesh->dense.axis[i]));
    return buffer;
}

/* ---- communicators -------------------------------------------------------------------------- */

/* A group's split; `members` is its size on the ranks that are in one. Kept under `key`. */
static shoal_status make_group(struct shoal_mesh *mesh, struct shoali_mesh_group key, int32_t color,
                               int32_t number, int32_t members, shoal_group **group)
{
    shoal_status status;
    if (mesh->made_count == SHOALI_MESH_GROUPS_MAX)
        return SHOAL_FAIL(SHOAL_EINVAL, "a mesh keeps at most %d groups",
                          (int)SHOALI_MESH_GROUPS_MAX);
    const struct shoali_split_args args = {
        .here = SHOAL_HERE, .color = color, .key = number, .expected = color >= 0 ? members : 0};
    SHOAL_TRY(status, shoali_comm_split(mesh->group, &args, &key.group), done);
    *group = key.group;
    mesh->made[mesh->made_count++] = key;
done:
    return status;
}

/* The set without axes of one rank: dp and dp+cp are one communicator where cp is 1. */
static shoal_axes essential(const struct shoali_generator *generator, shoal_axes axes)
{
    shoal_axes kept = axes & SHOAL_AXIS_EXPERT;
    for (int32_t i = 0; i < generator->count; i++)
        if (generator->size[i] > 1)
            kept |= axes & generator->axis[i];
    return kept;
}

/* The group that was made for this, else NULL. */
static const struct shoali_mesh_group *find_group(const struct shoal_mesh *mesh, shoal_axes axes,
                                                  bool tied)
{
    for (int32_t i = 0; i < mesh->made_count; i++)
        if (mesh->made[i].axes == axes && mesh->made[i].tied == tied)
            return &mesh->made[i];
    return NULL;
}

shoal_status shoal_mesh_group(shoal_mesh *mesh, shoal_axes axes, shoal_group **group)
{
    const int32_t size = shoal_mesh_size(mesh, axes);
    axes = essential(generator_of(mesh, axes), axes);
    const struct shoali_mesh_group *found = find_group(mesh, axes, false);
    *group = found != NULL ? found->group : NULL;
    if (found != NULL || size == 1)
        return SHOAL_OK;
    if (mesh->group == NULL)
        return SHOAL_FAIL(SHOAL_EINVAL, "this mesh has no ranks to talk to: it was created without "
                                        "a group");
    if (size == mesh->ranks) { /* of all axes, so in the order of the ranks themselves */
        *group = mesh->group;
        return SHOAL_OK;
    }
    return make_group(mesh, (struct shoali_mesh_group){.axes = axes},
                      shoal_mesh_group_index(mesh, axes, mesh->rank),
                      shoal_mesh_coordinate(mesh, axes, mesh->rank), size, group);
}

shoal_status shoal_mesh_embedding_group(shoal_mesh *mesh, bool tied, shoal_group **group)
{
    int32_t ranks[2];
    const int32_t count = shoal_mesh_embedding_ranks(mesh, tied, mesh->rank, ranks);
    const struct shoali_mesh_group *found = find_group(mesh, 0, tied);
    *group = found != NULL ? found->group : NULL;
    if (found != NULL || count == 1)
        return SHOAL_OK;
    if (mesh->group == NULL)
        return SHOAL_FAIL(SHOAL_EINVAL, "this mesh has no ranks to talk to: it was created without "
                                        "a group");
    const int32_t number = mesh->rank == ranks[0] ? 0 : mesh->rank == ranks[1] ? 1 : -1;
    const int32_t color =
        number >= 0 ? shoal_mesh_group_index(mesh, SHOAL_AXIS_PP, mesh->rank) : -1;
    return make_group(mesh, (struct shoali_mesh_group){.tied = tied}, color, number, count, group);
}
