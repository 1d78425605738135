/* From those who hold elements to the writers of their chunks, and to the files. Every rank walks
 * the same rounds, chunks and pieces in the same order, so sends and receives meet without a word
 * about what comes next, and none waits for one that comes later. */
#include "checkpoint/checkpoint_internal.h"

#include <string.h>

/* Rounds until all ranks hear of a failure. */
enum { ROUNDS_OF_SILENCE = 16 };

/* The chunk of one writer, as all ranks see it. */
struct chunk {
    int32_t kind, writer;
    struct shoali_checkpoint_file *file;
    int64_t index; /* in the file */
    struct shoali_checkpoint_span span;
};

static bool find_chunk(const struct shoali_checkpoint_run *run, int32_t kind, int64_t round,
                       int32_t writer, struct chunk *chunk)
{
    const int64_t number = shoali_checkpoint_chunk_of(run, kind, round, writer);
    if (number < 0)
        return false;
    *chunk = (struct chunk){.kind = kind, .writer = writer};
    chunk->file = shoali_checkpoint_file_of(run, kind, number, &chunk->index);
    chunk->span = shoali_checkpoint_chunk(chunk->file, run->args->kinds[kind].dtype, chunk->index);
    return true;
}

/* Of a replicated kind the writer gives what it has itself. */
static void choose_giver(const struct shoali_checkpoint_run *run, const struct chunk *chunk,
                         struct shoali_checkpoint_piece *piece)
{
    const struct shoali_checkpoint_space *space = run->space[chunk->kind];
    const struct shoali_checkpoint_view *view = &space->view[space->view_of[chunk->writer]];
    if (!run->args->kinds[chunk->kind].replicated || view->origin[piece->tensor] != piece->origin)
        return;
    piece->rank = chunk->writer;
    piece->flat = view->begin[piece->tensor] + piece->begin;
}

/* ---- what is going to be read --------------------------------------------------------------- */

static void expect_chunk(struct shoali_checkpoint_run *run, const struct chunk *chunk)
{
    const struct shoali_checkpoint_kind *kind = &run->args->kinds[chunk->kind];
    struct shoali_checkpoint_walk walk =
        shoali_checkpoint_walk(run, chunk->kind, chunk->span.begin, chunk->span.end, false);
    for (struct shoali_checkpoint_piece piece; shoali_checkpoint_next(&walk, &piece);) {
        choose_giver(run, chunk, &piece);
        if (piece.rank == run->rank)
            kind->expect(kind->user, piece.flat, piece.count);
    }
}

void shoali_checkpoint_expect(struct shoali_checkpoint_run *run)
{
    for (int32_t k = 0; k < run->args->kind_count; k++) {
        const int64_t rounds = run->args->kinds[k].expect ? shoali_checkpoint_rounds(run, k) : 0;
        for (int64_t round = 0; round < rounds; round++) {
            struct chunk chunk;
            for (int32_t writer = 0; writer < run->size; writer++)
                if (find_chunk(run, k, round, writer, &chunk))
                    expect_chunk(run, &chunk);
        }
    }
    if (run->args->expected)
        run->args->expected(run->args->user);
}

/* ---- data ----------------------------------------------------------------------------------- */

/* A piece of one holder into the writer's chunk, whose first element lies at `out`. Returns only
 * communication's errors; this rank's own go to run->local. */
static shoal_status gather_piece(struct shoali_checkpoint_run *run, const struct chunk *chunk,
                                 const struct shoali_checkpoint_piece *piece, char *out)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_checkpoint_kind *kind = &run->args->kinds[chunk->kind];
    const size_t item = shoal_dtype_bytes(kind->dtype);
    const bool writes = run->rank == chunk->writer, gives = run->rank == piece->rank;
    char *direct = writes ? shoali_checkpoint_direct(piece, out, chunk->span.begin, item) : NULL;
    char *in = direct ? direct : run->stage;
    if (gives && run->local == SHOAL_OK)
        run->local = kind->read(kind->user, piece->flat, piece->count, in);
    if (writes && !gives)
        SHOAL_TRY(status,
                  shoal_recv(run->args->group, in, piece->count, kind->dtype, piece->rank, NULL),
                  done);
    else if (gives && !writes)
        SHOAL_TRY(status,
                  shoal_send(run->args->group, in, piece->count, kind->dtype, chunk->writer, NULL),
                  done);
    if (writes && !direct && run->local == SHOAL_OK)
        shoali_checkpoint_spread(piece, out, chunk->span.begin, item, in);
done:
    return status;
}

static void begin_chunk(struct shoali_checkpoint_run *run, const struct chunk *chunk,
                        struct shoali_checkpoint_load *load)
{
    const struct shoali_checkpoint_span *span = &chunk->span;
    const int64_t bytes = span->begin < span->end ? span->skip : span->byte_end - span->byte_begin;
    if (run->local == SHOAL_OK && span->byte_begin < chunk->file->data_start)
        memcpy(load->memory, chunk->file->head + span->byte_begin, (size_t)bytes);
}

static void end_chunk(struct shoali_checkpoint_run *run, const struct chunk *chunk,
                      struct shoali_checkpoint_load *load)
{
    const int64_t bytes = chunk->span.byte_end - chunk->span.byte_begin;
    if (run->local < 0)
        return;
    chunk->file->chunk[chunk->index] = shoali_hash64(load->memory, (size_t)bytes);
    run->local =
        shoali_checkpoint_lane_write(&run->lane, load, chunk->file, chunk->span.byte_begin, bytes);
}

static shoal_status gather_chunk(struct shoali_checkpoint_run *run, const struct chunk *chunk)
{
    shoal_status status = SHOAL_OK;
    struct shoali_checkpoint_load *load = NULL;
    const bool writes = run->rank == chunk->writer;
    if (writes) {
        const shoal_status before = shoali_checkpoint_lane_next(&run->lane, &load);
        run->local = run->local < 0 ? run->local : before;
        begin_chunk(run, chunk, load);
    }
    struct shoali_checkpoint_walk walk =
        shoali_checkpoint_walk(run, chunk->kind, chunk->span.begin, chunk->span.end, false);
    for (struct shoali_checkpoint_piece piece; shoali_checkpoint_next(&walk, &piece);) {
        choose_giver(run, chunk, &piece);
        SHOAL_TRY(status,
                  gather_piece(run, chunk, &piece, writes ? load->memory + chunk->span.skip : NULL),
                  done);
    }
    if (writes)
        end_chunk(run, chunk, load);
done:
    return status;
}

/* Each chunk's hash is known to its writer, and 0 to the others. */
static shoal_status share_hashes(struct shoali_checkpoint_run *run, int32_t kind)
{
    shoal_status status = SHOAL_OK;
    for (int32_t f = 0; f < run->plan[kind].file_count && run->size > 1; f++) {
        const struct shoali_checkpoint_file *file = &run->plan[kind].file[f];
        SHOAL_TRY(status,
                  shoal_all_reduce(run->args->group, file->chunk, file->chunk, file->chunk_count,
                                   SHOAL_I64, SHOAL_BOR, NULL),
                  done);
    }
done:
    return status;
}

static shoal_status gather_kind(struct shoali_checkpoint_run *run, int32_t kind)
{
    shoal_status status = SHOAL_OK;
    const int64_t rounds = shoali_checkpoint_rounds(run, kind);
    for (int64_t round = 0; round < rounds; round++) {
        struct chunk chunk;
        if (run->size == 1 && run->local < 0)
            break;
        for (int32_t writer = 0; writer < run->size; writer++)
            if (find_chunk(run, kind, round, writer, &chunk))
                SHOAL_TRY(status, gather_chunk(run, &chunk), done);
        if (round % ROUNDS_OF_SILENCE == ROUNDS_OF_SILENCE - 1)
            SHOAL_TRY(status, shoali_checkpoint_agree(run, SHOAL_OK), done);
    }
done:
    return status;
}

shoal_status shoali_checkpoint_gather(struct shoali_checkpoint_run *run)
{
    shoal_status status = SHOAL_OK;
    for (int32_t k = 0; k < run->args->kind_count; k++)
        SHOAL_TRY(status, gather_kind(run, k), done);
    if (run->local == SHOAL_OK)
        run->local = shoali_checkpoint_lane_close(&run->lane, true);
    SHOAL_TRY(status, shoali_checkpoint_agree(run, SHOAL_OK), done);
    for (int32_t k = 0; k < run->args->kind_count; k++)
        SHOAL_TRY(status, share_hashes(run, k), done);
done:
    return status;
}
