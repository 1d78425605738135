/* From the files to those who hold their elements: gather.c the other way round. Each reader has
 * the chunk of the next round, be it of another kind, on its way while it gives away that of this
 * one. */
#include "checkpoint/checkpoint_internal.h"

#include <string.h>

enum { ROUNDS_OF_SILENCE = 16 };

struct chunk {
    int32_t kind, reader;
    const struct shoali_checkpoint_file *file;
    int64_t index;
    struct shoali_checkpoint_span span;
};

/* A chunk of which somebody holds something. */
static bool find_chunk(const struct shoali_checkpoint_run *run, int32_t kind, int64_t round,
                       int32_t reader, struct chunk *chunk)
{
    struct shoali_checkpoint_piece piece;
    const int64_t number = shoali_checkpoint_chunk_of(run, kind, round, reader);
    if (number < 0)
        return false;
    *chunk = (struct chunk){.kind = kind, .reader = reader};
    chunk->file = shoali_checkpoint_file_of(run, kind, number, &chunk->index);
    chunk->span = shoali_checkpoint_chunk(chunk->file, run->args->kinds[kind].dtype, chunk->index);
    struct shoali_checkpoint_walk walk =
        shoali_checkpoint_walk(run, kind, chunk->span.begin, chunk->span.end, true);
    return chunk->index == 0 || shoali_checkpoint_next(&walk, &piece);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* One round of a kind's chunks; behind the last one of all `kind` is kind_count. */
struct step {
    int32_t kind;
    int64_t round, rounds; /* of the kind */
};

/* Starts this rank's chunk of a step, if it has one. */
static void prefetch(struct shoali_checkpoint_run *run, const struct step *step,
                     struct shoali_checkpoint_load **load)
{
    struct chunk chunk;
    *load = NULL;
    if (run->local < 0 || step->kind == run->args->kind_count ||
        !find_chunk(run, step->kind, step->round, run->rank, &chunk))
        return;
    run->local = shoali_checkpoint_lane_next(&run->lane, load);
    if (run->local == SHOAL_OK)
        run->local =
            shoali_checkpoint_lane_read(&run->lane, *load, chunk.file, chunk.span.byte_begin,
                                        chunk.span.byte_end - chunk.span.byte_begin);
}

/* Waits for this rank's chunk. */
static shoal_status verify(const struct chunk *chunk, struct shoali_checkpoint_load *load)
{
    shoal_status status;
    const struct shoali_checkpoint_span *span = &chunk->span;
    SHOAL_TRY(status, shoali_checkpoint_lane_wait(load), done);
    const uint64_t hash = shoali_hash64(load->memory, (size_t)(span->byte_end - span->byte_begin));
    const uint64_t want = chunk->file->chunk[chunk->index];
    if (hash != want)
        status = SHOAL_FAIL(SHOAL_ECORRUPT,
                            "%s, bytes %lld to %lld: hash %016llx, the manifest says %016llx: "
                            "the file is damaged; load another checkpoint",
                            chunk->file->path, (long long)span->byte_begin,
                            (long long)span->byte_end - 1, (unsigned long long)hash,
                            (unsigned long long)want);
done:
    return status;
}

/* ---- giving away ---------------------------------------------------------------------------- */

static void put(struct shoali_checkpoint_run *run, const struct shoali_checkpoint_kind *kind,
                int64_t at, int64_t count, const char *in)
{
    if (run->local == SHOAL_OK)
        run->local = kind->write(kind->user, at, count, in);
}

/* A piece of one holder from the reader's chunk, whose first element lies at `in`. Returns only
 * communication's errors; this rank's own go to run->local. */
static shoal_status scatter_piece(struct shoali_checkpoint_run *run, const struct chunk *chunk,
                                  const struct shoali_checkpoint_piece *piece, char *in)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_checkpoint_kind *kind = &run->args->kinds[chunk->kind];
    const size_t item = shoal_dtype_bytes(kind->dtype);
    const bool reads = run->rank == chunk->reader, takes = run->rank == piece->rank;
    char *from = run->stage;
    if (reads)
        from = shoali_checkpoint_collect(piece, in, chunk->span.begin, item, run->beside);
    if (reads && !takes)
        SHOAL_TRY(status,
                  shoal_send(run->args->group, from, piece->count, kind->dtype, piece->rank, NULL),
                  done);
    else if (takes && !reads)
        SHOAL_TRY(
            status,
            shoal_recv(run->args->group, from, piece->count, kind->dtype, chunk->reader, NULL),
            done);
    if (takes)
        put(run, kind, piece->flat, piece->count, from);
done:
    return status;
}

/* Every rank has the chunk, and takes what its own view has of it. */
static void take_own(struct shoali_checkpoint_run *run, const struct chunk *chunk,
                     const struct shoali_checkpoint_piece *piece, char *in)
{
    const struct shoali_checkpoint_kind *kind = &run->args->kinds[chunk->kind];
    const struct shoali_checkpoint_space *space = run->space[chunk->kind];
    const struct shoali_checkpoint_view *view = &space->view[space->view_of[run->rank]];
    const size_t item = shoal_dtype_bytes(kind->dtype);
    if (view->origin[piece->tensor] != piece->origin)
        return;
    put(run, kind, view->begin[piece->tensor] + piece->begin, piece->count,
        shoali_checkpoint_collect(piece, in, chunk->span.begin, item, run->beside));
}

/* `memory`: of the reader's chunk; NULL: this rank is not the reader, or it has failed. */
static shoal_status give_away(struct shoali_checkpoint_run *run, const struct chunk *chunk,
                              char *memory)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_checkpoint_kind *kind = &run->args->kinds[chunk->kind];
    const struct shoali_checkpoint_span *span = &chunk->span;
    char *in = memory ? memory + span->skip : run->stage;
    if (kind->replicated && span->begin < span->end && run->size > 1)
        SHOAL_TRY(status,
                  shoal_broadcast(run->args->group, in, span->end - span->begin, kind->dtype,
                                  chunk->reader, NULL),
                  done);
    struct shoali_checkpoint_walk walk =
        shoali_checkpoint_walk(run, chunk->kind, span->begin, span->end, !kind->replicated);
    for (struct shoali_checkpoint_piece piece; shoali_checkpoint_next(&walk, &piece);)
        if (kind->replicated)
            take_own(run, chunk, &piece, in);
        else
            SHOAL_TRY(status, scatter_piece(run, chunk, &piece, in), done);
done:
    return status;
}

static shoal_status scatter_round(struct shoali_checkpoint_run *run, const struct step *step,
                                  struct shoali_checkpoint_load *load)
{
    shoal_status status = SHOAL_OK;
    for (int32_t reader = 0; reader < run->size; reader++) {
        struct chunk chunk;
        if (!find_chunk(run, step->kind, step->round, reader, &chunk))
            continue;
        const bool reads = reader == run->rank;
        if (reads && run->local == SHOAL_OK)
            run->local = verify(&chunk, load);
        /* a rank that has failed sends what it happens to have, and nobody will use it */
        SHOAL_TRY(status, give_away(run, &chunk, reads && load ? load->memory : NULL), done);
    }
done:
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* The first step of the first kind from this one on that has any. */
static struct step first_of(const struct shoali_checkpoint_run *run, int32_t kind)
{
    struct step step = {.kind = kind};
    for (; step.kind < run->args->kind_count; step.kind++) {
        step.rounds = shoali_checkpoint_rounds(run, step.kind);
        if (step.rounds > 0)
            break;
    }
    return step;
}

static struct step step_after(const struct shoali_checkpoint_run *run, const struct step *step)
{
    if (step->round + 1 >= step->rounds)
        return first_of(run, step->kind + 1);
    return (struct step){.kind = step->kind, .round = step->round + 1, .rounds = step->rounds};
}

shoal_status shoali_checkpoint_scatter(struct shoali_checkpoint_run *run)
{
    shoal_status status = SHOAL_OK;
    struct shoali_checkpoint_load *load = NULL, *next = NULL;
    struct step step = first_of(run, 0), after;
    prefetch(run, &step, &next);
    for (; step.kind < run->args->kind_count; step = after) {
        if (run->size == 1 && run->local < 0)
            break;
        load = next;
        after = step_after(run, &step);
        prefetch(run, &after, &next);
        SHOAL_TRY(status, scatter_round(run, &step, load), done);
        if (after.kind != step.kind || after.round % ROUNDS_OF_SILENCE == 0)
            SHOAL_TRY(status, shoali_checkpoint_agree(run, SHOAL_OK), done);
    }
    if (run->local == SHOAL_OK)
        run->local = shoali_checkpoint_lane_close(&run->lane, false);
    SHOAL_TRY(status, shoali_checkpoint_agree(run, SHOAL_OK), done);
done:
    return status;
}
