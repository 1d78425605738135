/* The ranks of one save or load. Every rank walks the same files, chunks and pieces in the same
 * order, so sends and receives meet without a word about what comes next. */
#include "checkpoint/checkpoint_internal.h"

#include "base/plain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SENTENCE_BYTES = 1024 };

void shoali_checkpoint_run_init(struct shoali_checkpoint_run *run,
                                const struct shoali_checkpoint_args *args, const char *verb)
{
    *run = (struct shoali_checkpoint_run){.args = args, .verb = verb, .size = 1};
    if (args->group) {
        run->rank = shoal_comm_rank(args->group);
        run->size = shoal_comm_size(args->group);
    }
    shoali_arena_init(&run->arena);
}

void shoali_checkpoint_run_fini(struct shoali_checkpoint_run *run)
{
    shoali_checkpoint_lane_fini(&run->lane);
    if (run->own_buffer)
        shoali_free(run->buffer);
    shoali_arena_fini(&run->arena);
}

/* ---- arguments ---- */

static bool kind_name_valid(const char *name)
{
    size_t length = 0;
    for (; name && name[length]; length++)
        if (!shoali_ascii_letter(name[length]) && !shoali_ascii_digit(name[length]) &&
            name[length] != '_')
            return false;
    return length > 0 && length < SHOALI_CHECKPOINT_KIND_BYTES;
}

static shoal_status check_kind(const struct shoali_checkpoint_args *args, int32_t index,
                               int64_t flat_count)
{
    const struct shoali_checkpoint_kind *kind = &args->kinds[index];
    const int64_t held_count = flat_count < 0 ? 0 : shoali_checkpoint_held_count(args, kind);
    struct shoali_checkpoint_range single;
    int32_t ranges;
    const struct shoali_checkpoint_range *range = shoali_checkpoint_ranges(kind, &single, &ranges);
    if (!kind_name_valid(kind->name))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "kind %d is named \"%s\": give 1 to %d letters, digits or underscores",
                          index, kind->name ? kind->name : "", SHOALI_CHECKPOINT_KIND_BYTES - 1);
    for (int32_t i = 0; i < index; i++)
        if (strcmp(args->kinds[i].name, kind->name) == 0)
            return SHOAL_FAIL(SHOAL_EINVAL, "kind `%s` is given twice", kind->name);
    if (shoal_dtype_bytes(kind->dtype) == 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "kind `%s` has the unknown dtype %d", kind->name,
                          (int)kind->dtype);
    if (flat_count < 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "kind `%s`: the tensors' shapes are impossible or too large", kind->name);
    for (int32_t r = 0; r < ranges && !kind->replicated; r++) {
        const int64_t begin = range[r].begin, count = range[r].count;
        if (begin < 0 || count < 0 || (count > 0 && begin > held_count - count))
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "kind `%s`: this rank holds [%lld, %lld + %lld), its tensors have "
                              "%lld elements",
                              kind->name, (long long)begin, (long long)begin, (long long)count,
                              (long long)held_count);
    }
    return SHOAL_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int by_text(const void *name, const void *entry)
{
    return strcmp(name, *(const char *const *)entry);
}

/* `sorted`: the tensors' names. */
static shoal_status check_aliases(const struct shoali_checkpoint_args *args,
                                  const char *const *sorted)
{
    const size_t count = (size_t)args->tensor_count;
    for (int32_t i = 0; i < args->alias_count; i++) {
        const struct shoali_checkpoint_alias *alias = &args->aliases[i];
        if (!alias->name || bsearch(alias->name, sorted, count, sizeof *sorted, by_text))
            return SHOAL_FAIL(SHOAL_EINVAL, "\"%s\" cannot be a second name: it is a tensor's own",
                              alias->name ? alias->name : "");
        if (!alias->primary || !bsearch(alias->primary, sorted, count, sizeof *sorted, by_text))
            return SHOAL_FAIL(SHOAL_EINVAL, "\"%s\" is tied to \"%s\", which is no tensor",
                              alias->name, alias->primary ? alias->primary : "");
    }
    return SHOAL_OK;
}

static shoal_status check_names(const struct shoali_checkpoint_args *args,
                                struct shoali_arena *arena)
{
    const size_t count = (size_t)args->tensor_count;
    const char **sorted = shoali_arena_alloc(arena, (count + 1) * sizeof *sorted);
    if (!sorted)
        return SHOAL_ENOMEM;
    for (size_t i = 0; i < count; i++) {
        sorted[i] = args->names[i];
        if (!*sorted[i] || strcmp(sorted[i], "__metadata__") == 0)
            return SHOAL_FAIL(SHOAL_EINVAL, "tensor %zu cannot be named \"%s\"", i, sorted[i]);
    }
    qsort(sorted, count, sizeof *sorted, by_name);
    for (size_t i = 1; i < count; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            return SHOAL_FAIL(SHOAL_EINVAL, "two tensors are named \"%s\"", sorted[i]);
    return check_aliases(args, sorted);
}

static shoal_status check_shards(const struct shoali_checkpoint_args *args)
{
    char whole[128], shape[128];
    for (int32_t t = 0; t < args->tensor_count && args->shards; t++)
        if (args->shards[t] && !shoali_shape_equal(&args->shards[t]->global, &args->shapes[t]))
            return SHOAL_FAIL(
                SHOAL_EINVAL,
                "tensor `%s` has shape %s, but this rank holds a shard of a tensor of shape %s",
                args->names[t], shoali_shape_format(&args->shapes[t], shape),
                shoali_shape_format(&args->shards[t]->global, whole));
    return SHOAL_OK;
}

static shoal_status check_args(struct shoali_checkpoint_run *run)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_checkpoint_args *args = run->args;
    if (!args->dir || !*args->dir)
        return SHOAL_FAIL(SHOAL_EINVAL, "the checkpoint's folder is empty: name one");
    if (args->kind_count < 1 || args->kind_count > SHOALI_CHECKPOINT_KINDS)
        return SHOAL_FAIL(SHOAL_EINVAL, "a checkpoint has 1 to %d kinds of tensors, got %d",
                          SHOALI_CHECKPOINT_KINDS, args->kind_count);
    if (args->max_shard_bytes < 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "max_shard_bytes is %lld, it must be at least 0",
                          (long long)args->max_shard_bytes);
    if (shoali_checkpoint_flat_count(args->shapes, args->tensor_count) < 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "the tensors' shapes are impossible or too large");
    SHOAL_TRY(status, check_names(args, &run->arena), done);
    SHOAL_TRY(status, check_shards(args), done);
    for (int32_t k = 0; k < args->kind_count; k++) {
        run->flat_count[k] = shoali_checkpoint_flat_count(
            shoali_checkpoint_shapes(args, &args->kinds[k]), args->tensor_count);
        SHOAL_TRY(status, check_kind(args, k, run->flat_count[k]), done);
    }
done:
    return status;
}

/* ---- memory ---- */

static void add_plan(const struct shoali_checkpoint_plan *plan, struct shoali_checkpoint_size *size)
{
    for (int32_t f = 0; f < plan->file_count; f++) {
        const int64_t bytes = plan->file[f].bytes;
        size->bytes += bytes;
        if (bytes > size->largest_file_bytes)
            size->largest_file_bytes = bytes;
    }
}

/* Of a chunk's memory: whole pages. */
static int64_t chunk_bytes(const struct shoali_checkpoint_size *size)
{
    const int64_t most = SHOALI_CHECKPOINT_CHUNK, page = SHOALI_IO_ALIGN;
    const int64_t bytes = size->largest_file_bytes < most ? size->largest_file_bytes : most;
    return (bytes + page - 1) / page * page;
}

/* Behind the first whole page: two loads of the lane, what travels, what is cut. */
static int64_t buffer_bytes(const struct shoali_checkpoint_size *size, int32_t ranks, bool cut)
{
    return SHOALI_IO_ALIGN + (2 + (ranks > 1) + cut) * chunk_bytes(size);
}

shoal_status shoali_checkpoint_get_size(const struct shoali_checkpoint_args *args,
                                        struct shoali_checkpoint_size *size)
{
    shoal_status status = SHOAL_OK;
    struct shoali_arena arena;
    bool cut = false;
    shoali_arena_init(&arena);
    *size = (struct shoali_checkpoint_size){0};
    for (int32_t k = 0; k < args->kind_count; k++) {
        struct shoali_checkpoint_plan plan = {0};
        SHOAL_TRY(status, shoali_checkpoint_plan_make(args, &args->kinds[k], &arena, &plan), done);
        add_plan(&plan, size);
        shoali_arena_reset(&arena);
    }
    for (int32_t i = 0; i < args->companion_count; i++)
        size->bytes += (int64_t)args->companions[i].bytes;
    for (int32_t t = 0; t < args->tensor_count && args->shards; t++)
        cut = cut || args->shards[t];
    size->buffer_bytes = buffer_bytes(size, args->group ? shoal_comm_size(args->group) : 1, cut);
done:
    shoali_arena_fini(&arena);
    return status;
}

shoal_status shoali_checkpoint_run_buffer(struct shoali_checkpoint_run *run)
{
    struct shoali_checkpoint_size size = {0};
    for (int32_t k = 0; k < run->args->kind_count; k++)
        add_plan(&run->plan[k], &size);
    const int64_t bytes = buffer_bytes(&size, run->size, run->cut), chunk = chunk_bytes(&size);
    run->own_buffer = !run->args->buffer || run->args->buffer_bytes < bytes;
    run->buffer = run->own_buffer ? shoali_malloc_for_files((size_t)bytes, "a checkpoint's buffer")
                                  : run->args->buffer;
    if (!run->buffer)
        return SHOAL_ENOMEM;
    const size_t inside = (uintptr_t)run->buffer % SHOALI_IO_ALIGN;
    char *first = run->buffer + (inside ? SHOALI_IO_ALIGN - inside : 0);
    run->stage = run->size > 1 ? first + 2 * chunk : NULL;
    run->beside = run->cut ? first + (2 + (run->size > 1)) * chunk : NULL;
    return shoali_checkpoint_lane_init(&run->lane, first, first + chunk);
}

/* ---- agreement ---- */

struct verdict {
    int32_t status;
    char sentence[SENTENCE_BYTES];
};

shoal_status shoali_checkpoint_agree(struct shoali_checkpoint_run *run, shoal_status status)
{
    shoal_group *group = run->args->group;
    shoal_status comm;
    if (status >= 0)
        status = run->local;
    run->local = SHOAL_OK;
    run->agreed = false;
    if (run->size == 1)
        return status;
    struct verdict verdict = {.status = status};
    if (status < 0)
        snprintf(verdict.sentence, sizeof verdict.sentence, "%s", shoal_error_message());
    int32_t failed = status < 0 ? run->rank : run->size;
    SHOAL_TRY(comm, shoal_all_reduce(group, &failed, &failed, 1, SHOAL_I32, SHOAL_MIN, NULL), done);
    if (failed == run->size)
        return SHOAL_OK;
    SHOAL_TRY(comm,
              shoal_broadcast(group, &verdict, (int64_t)sizeof verdict, SHOAL_U8, failed, NULL),
              done);
    run->agreed = true;
    comm = (shoal_status)verdict.status;
    if (failed != run->rank)
        comm = SHOAL_FAIL(comm, "rank %d could not %s: %s", failed, run->verb, verdict.sentence);
done:
    return comm;
}

/* ---- the same on all ranks ---- */

static uint64_t mix(uint64_t digest, const void *data, size_t bytes)
{
    return shoali_hash64_seeded(data, bytes, digest);
}

/* Everything ranks have to say alike. */
static int64_t digest_of(const struct shoali_checkpoint_run *run)
{
    const struct shoali_checkpoint_args *args = run->args;
    uint64_t digest = mix(0, &args->max_shard_bytes, sizeof args->max_shard_bytes);
    for (int32_t i = 0; i < args->tensor_count; i++) {
        const shoal_shape *shape = &args->shapes[i];
        digest = mix(digest, args->names[i], strlen(args->names[i]) + 1);
        digest = mix(digest, shape->dim, (size_t)shape->ndim * sizeof shape->dim[0]);
    }
    for (int32_t i = 0; i < args->alias_count; i++) {
        digest = mix(digest, args->aliases[i].name, strlen(args->aliases[i].name) + 1);
        digest = mix(digest, args->aliases[i].primary, strlen(args->aliases[i].primary) + 1);
    }
    for (int32_t k = 0; k < args->kind_count; k++) {
        const struct shoali_checkpoint_kind *kind = &args->kinds[k];
        const int32_t facts[2] = {(int32_t)kind->dtype, kind->replicated};
        digest = mix(digest, kind->name, strlen(kind->name) + 1);
        digest = mix(digest, facts, sizeof facts);
        for (int32_t i = 0; kind->shapes && i < args->tensor_count; i++)
            digest = mix(digest, kind->shapes[i].dim,
                         (size_t)kind->shapes[i].ndim * sizeof kind->shapes[i].dim[0]);
    }
    int64_t bits;
    memcpy(&bits, &digest, sizeof bits);
    return bits;
}

/* Ranks that describe different models would send what nobody expects. */
static shoal_status compare_digests(struct shoali_checkpoint_run *run)
{
    shoal_status status;
    const int64_t own = digest_of(run);
    int64_t first = own;
    SHOAL_TRY(status, shoal_broadcast(run->args->group, &first, 1, SHOAL_I64, 0, NULL), done);
    if (own != first)
        status = SHOAL_FAIL(SHOAL_EMISMATCH,
                            "rank %d names other tensors, shapes or kinds than rank 0", run->rank);
    SHOAL_TRY(status, shoali_checkpoint_agree(run, status), done);
done:
    return status;
}

shoal_status shoali_checkpoint_run_begin(struct shoali_checkpoint_run *run)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_checkpoint_agree(run, check_args(run)), done);
    if (run->size > 1)
        SHOAL_TRY(status, compare_digests(run), done);
    SHOAL_TRY(status, shoali_checkpoint_learn_holders(run), done);
done:
    return status;
}

struct shoali_checkpoint_span shoali_checkpoint_chunk(const struct shoali_checkpoint_file *file,
                                                      shoal_dtype dtype, int64_t index)
{
    const int64_t chunk = SHOALI_CHECKPOINT_CHUNK, item = (int64_t)shoal_dtype_bytes(dtype);
    struct shoali_checkpoint_span span = {.byte_begin = index * chunk};
    span.byte_end = file->bytes - span.byte_begin < chunk ? file->bytes : span.byte_begin + chunk;
    /* Data starts at a page, so both ends are whole elements. */
    const int64_t first = span.byte_begin > file->data_start ? span.byte_begin : file->data_start;
    if (first < span.byte_end) {
        span.begin = file->flat_begin + (first - file->data_start) / item;
        span.end = file->flat_begin + (span.byte_end - file->data_start) / item;
        span.skip = first - span.byte_begin;
    }
    return span;
}
