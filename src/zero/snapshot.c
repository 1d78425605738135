/* Copy-on-write of blocks. */
#include "zero/snapshot.h"

#include "base/waiting.h"
#include "zero/parts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* Elements of a block: 1 MiB, or of small parts a 64th, so that they have several, too. */
#define BLOCK_MAX ((int64_t)1 << 18)
#define BLOCK_MIN ((int64_t)256)
#define BLOCKS_WANTED 64
#define PIECE_BLOCKS 4

enum state { PENDING, READ, COPYING, COPIED, OVER };
struct cell {
    int64_t left; /* elements that the reader will still ask for */
    int32_t slot; /* COPYING, COPIED */
    enum state state;
};

struct shoali_zero_snapshot {
    struct shoali_zero *zero;
    int64_t block, block_count; /* elements of a block; blocks of a row */
    int32_t rows, slots;
    struct cell *cell; /* [rows][block_count] */
    float *slot;       /* [slots][block] */
    int32_t *free;     /* [slots] the first free_count are */
    int32_t free_count;
    float *widened;                            /* [block] of the reader, for 16-bit weights */
    float *small[SHOALI_OPTIMIZER_MAX_STATES]; /* copies; NULL: the state is per element */
    int64_t bytes;
    struct shoali_device_stream *stream; /* the reader's */
    struct shoali_event *begun;
    pthread_mutex_t lock;
    pthread_cond_t moved; /* a cell's state, or one of the two below */
    _Atomic bool active;
    bool expected; /* everything that will be asked is in the cells */
    bool broken;   /* a copy failed: nobody may believe what is read */
    struct shoali_zero_snapshot_stats stats;
};

/* ---- memory --------------------------------------------------------------------------------- */

static int64_t choose_block(int64_t count)
{
    int64_t block = BLOCK_MIN;
    while (block < BLOCK_MAX && block * BLOCKS_WANTED < count)
        block *= 2;
    return block;
}

static bool is_small(const struct shoali_zero *zero, int32_t state)
{
    return zero->setup.optimizer.type->states[state].kind != SHOALI_STATE_ELEMENT;
}

static int64_t small_count(const struct shoali_zero *zero, int32_t state)
{
    const struct shoali_zero_setup *setup = &zero->setup;
    const int32_t params = setup->args.module->param_count;
    return is_small(zero, state)
               ? zero->tensors.begin[setup->optimizer.type->states[state].kind][params]
               : 0;
}

/* Memory that nobody has written to is only promised: it is touched. A plan only counts it. */
static void *prefault(struct shoali_zero_snapshot *self, bool meta, int64_t count, size_t item)
{
    const size_t bytes = (size_t)count * item;
    self->bytes += (int64_t)bytes;
    void *memory = meta ? NULL : shoali_malloc(bytes + 1, "the staging of checkpoints");
    if (memory)
        memset(memory, 0, bytes + 1);
    return memory;
}

static shoal_status allocate(struct shoali_zero_snapshot *self, bool meta)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero *zero = self->zero;
    const struct shoali_zero_args *args = &zero->setup.args;
    self->cell = prefault(self, meta, self->rows * self->block_count, sizeof *self->cell);
    self->slot = prefault(self, meta, self->slots * self->block, sizeof *self->slot);
    self->free = prefault(self, meta, self->slots, sizeof *self->free);
    self->widened = prefault(self, meta, self->block, sizeof *self->widened);
    bool all = self->cell && self->slot && self->free && self->widened;
    for (int32_t s = 0; s < zero->setup.optimizer.state_count; s++)
        if (is_small(zero, s)) {
            self->small[s] = prefault(self, meta, small_count(zero, s), sizeof(float));
            all = all && self->small[s];
        }
    if (meta)
        return SHOAL_OK;
    if (!all)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_stream_create(args->device, &self->stream), done);
    SHOAL_TRY(status, shoali_event_create(args->device, &self->begun), done);
done:
    return status;
}

shoal_status shoali_zero_snapshot_create(struct shoali_zero *zero, int64_t staging_bytes, bool meta)
{
    struct shoali_zero_snapshot *self = shoali_calloc(1, sizeof *self, "a snapshot");
    if (!self)
        return SHOAL_ENOMEM;
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->moved, NULL);
    zero->masters.snapshot = self;
    self->zero = zero;
    self->rows = shoali_zero_state_rows(&zero->setup);
    self->block = choose_block(zero->layout.part_count);
    self->block_count = (zero->layout.part_count + self->block - 1) / self->block;
    const int64_t most = self->rows * self->block_count;
    const int64_t slots = staging_bytes / (self->block * (int64_t)sizeof(float));
    self->slots = (int32_t)(slots < most ? slots : most);
    self->slots = self->slots < 1 ? 1 : self->slots;
    return allocate(self, meta); /* zero's own destroy frees it */
}

void shoali_zero_snapshot_fini(struct shoali_zero_snapshot *self)
{
    if (!self)
        return;
    if (self->stream)
        shoali_stream_destroy(self->stream);
    if (self->begun)
        shoali_event_destroy(self->begun);
    for (int32_t s = 0; s < SHOALI_OPTIMIZER_MAX_STATES; s++)
        shoali_free(self->small[s]);
    shoali_free(self->widened);
    shoali_free(self->free);
    shoali_free(self->slot);
    shoali_free(self->cell);
    pthread_cond_destroy(&self->moved);
    pthread_mutex_destroy(&self->lock);
    shoali_free(self);
}

int64_t shoali_zero_snapshot_bytes(const struct shoali_zero *zero)
{
    return zero->masters.snapshot ? zero->masters.snapshot->bytes : 0;
}

void shoali_zero_snapshot_get_stats(const struct shoali_zero *zero,
                                    struct shoali_zero_snapshot_stats *stats)
{
    *stats = zero->masters.snapshot->stats;
}

/* ---- where a row's elements live ------------------------------------------------------------ */

/* Copies elements of a row that lie together; holes of padding are left as they are. */
static shoal_status fetch_run(const struct shoali_zero_snapshot *self, int32_t row, int64_t local,
                              int64_t weight, int64_t count, struct shoali_device_stream *stream,
                              float *out)
{
    const struct shoali_zero *zero = self->zero;
    const int64_t device_count = zero->outside.device_count;
    if (local >= device_count)
        return shoali_swap_read(zero->outside.optimizer, row, local - device_count, count, out);
    const float *address = row == 0 ? shoali_zero_master(&zero->masters, local, weight)
                                    : zero->masters.state[row - 1] + local;
    return shoali_download(stream, out, address, (size_t)count * sizeof(float));
}

static shoal_status fetch(const struct shoali_zero_snapshot *self, int32_t row, int64_t local,
                          int64_t count, struct shoali_device_stream *stream, float *out)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_layout *layout = &self->zero->layout;
    const int64_t device_count = self->zero->outside.device_count, end = local + count;
    for (int32_t b = shoali_zero_first_part(layout, local);
         b < layout->bucket_count && layout->part_range[b].at < end; b++) {
        const struct shoali_zero_range *part = &layout->part_range[b];
        int64_t at = part->at > local ? part->at : local;
        const int64_t stop = part->at + part->count < end ? part->at + part->count : end;
        while (at < stop) {
            const int64_t limit = at < device_count && device_count < stop ? device_count : stop;
            SHOAL_TRY(status,
                      fetch_run(self, row, at, layout->weight_range[b].at + (at - part->at),
                                limit - at, stream, out + (at - local)),
                      done);
            at = limit;
        }
    }
done:
    return status;
}

/* ---- the rank's side ------------------------------------------------------------------------ */

shoal_status shoali_zero_snapshot_begin(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_snapshot *self = zero->masters.snapshot;
    SHOAL_ASSERT(!atomic_load(&self->active));
    for (int64_t i = 0; i < self->rows * self->block_count; i++)
        self->cell[i] = (struct cell){.state = PENDING};
    for (int32_t i = 0; i < self->slots; i++)
        self->free[i] = i;
    self->free_count = self->slots;
    self->stats =
        (struct shoali_zero_snapshot_stats){.staging_bytes = self->slots * self->block * 4};
    for (int32_t s = 0; s < zero->setup.optimizer.state_count; s++)
        if (self->small[s])
            shoali_pinned_read(zero->setup.args.device, self->small[s], zero->tensors.state[s],
                               (size_t)small_count(zero, s) * sizeof(float));
    SHOAL_TRY(status, shoali_event_record(self->begun, zero->setup.args.exec.stream), done);
    SHOAL_TRY(status, shoali_stream_wait_event(self->stream, self->begun), done);
    self->expected = self->broken = false;
    atomic_store(&self->active, true);
done:
    return status;
}

/* With the lock held. */
static void await_save(struct shoali_zero_snapshot *self, struct shoali_waiting *waiting)
{
    shoali_waiting_sleep(&self->moved, &self->lock);
    if (shoali_waiting_due(waiting, __FILE__))
        SHOALI_WARN("zero",
                    "waiting for %.0f s for the background save to take states that the step is "
                    "about to change: its disk is slow",
                    shoali_waiting_seconds(waiting));
}

/* A slot for a block that is still pending; false: it needs none any more. With the lock held. */
static bool need_slot(struct shoali_zero_snapshot *self, const struct cell *cell)
{
    bool waited = false;
    struct shoali_waiting waiting = {0};
    while (atomic_load(&self->active) && cell->state != OVER && cell->state != COPIED) {
        if (cell->state == PENDING && self->free_count > 0)
            return true;
        if (cell->state == PENDING && !waited) {
            waited = true;
            self->stats.full_count++;
        }
        await_save(self, &waiting);
    }
    return false;
}

/* With the lock held, which is given back while elements are copied. */
static shoal_status keep(struct shoali_zero_snapshot *self, int32_t row, int64_t block)
{
    struct cell *cell = &self->cell[row * self->block_count + block];
    const int64_t local = block * self->block, left = self->zero->layout.part_count - local;
    if (!need_slot(self, cell))
        return SHOAL_OK;
    cell->slot = self->free[--self->free_count];
    cell->state = COPYING;
    pthread_mutex_unlock(&self->lock);
    const shoal_status status =
        fetch(self, row, local, left < self->block ? left : self->block,
              self->zero->setup.args.exec.stream, self->slot + cell->slot * self->block);
    pthread_mutex_lock(&self->lock);
    cell->state = COPIED;
    self->broken = self->broken || status < 0;
    self->stats.copied_bytes += self->block * (int64_t)sizeof(float);
    const int32_t used = self->slots - self->free_count;
    if (used * self->block * 4 > self->stats.most_staged_bytes)
        self->stats.most_staged_bytes = used * self->block * 4;
    pthread_cond_broadcast(&self->moved);
    return status;
}

shoal_status shoali_zero_snapshot_guard(struct shoali_zero_snapshot *self, int64_t local,
                                        int64_t count)
{
    shoal_status status = SHOAL_OK;
    if (!self || count <= 0 || !atomic_load(&self->active))
        return SHOAL_OK;
    const int64_t begin_ns = shoali_now_ns();
    const int64_t last = (local + count - 1) / self->block;
    struct shoali_waiting waiting = {0};
    pthread_mutex_lock(&self->lock);
    while (atomic_load(&self->active) && !self->expected)
        await_save(self, &waiting);
    for (int64_t block = local / self->block; block <= last && status == SHOAL_OK; block++)
        for (int32_t row = 0; row < self->rows && status == SHOAL_OK; row++)
            status = keep(self, row, block);
    self->stats.stall_ns += shoali_now_ns() - begin_ns;
    pthread_mutex_unlock(&self->lock);
    return status;
}

int64_t shoali_zero_snapshot_piece(const struct shoali_zero_snapshot *self)
{
    return self && atomic_load(&self->active) ? PIECE_BLOCKS * self->block : INT64_MAX;
}

/* ---- the reader's side ---------------------------------------------------------------------- */

/* What a kind is here. */
enum source { SMALL, ROW, ROUNDED };
static enum source source_of(const struct shoali_zero *zero, int32_t kind, int32_t *row)
{
    const int32_t states = zero->setup.optimizer.state_count;
    *row = 0;
    if (kind == 0)
        return ROW;
    if (kind > states)
        return ROUNDED;
    if (is_small(zero, kind - 1))
        return SMALL;
    *row = kind;
    return ROW;
}

void shoali_zero_snapshot_get_kind(const struct shoali_zero *zero, int32_t index,
                                   struct shoali_zero_kind *kind)
{
    struct shoali_zero_kind master;
    int32_t row;
    shoali_zero_get_kind(zero, index, kind);
    if (source_of(zero, index, &row) != ROUNDED)
        return;
    shoali_zero_get_kind(zero, 0, &master);
    kind->range = master.range;
    kind->range_count = master.range_count;
    kind->replicated = master.replicated;
}

/* Where flat elements [first, end) are in the part space, as far as they lie together and in one
 * block; *count is how many. */
static int64_t find(const struct shoali_zero_snapshot *self, int64_t first, int64_t end,
                    int64_t *count)
{
    const struct shoali_zero_layout *layout = &self->zero->layout;
    const struct shoali_zero_range *range =
        shoali_zero_find_range(layout->part_range, layout->bucket_count, first);
    SHOAL_ASSERT(range);
    const int64_t local = range->at + (first - range->begin);
    const int64_t in_range = range->begin + range->count - first;
    const int64_t in_block = self->block - local % self->block;
    *count = end - first;
    *count = in_range < *count ? in_range : *count;
    *count = in_block < *count ? in_block : *count;
    return local;
}

void shoali_zero_snapshot_expect(struct shoali_zero *zero, int32_t kind, int64_t first,
                                 int64_t count)
{
    struct shoali_zero_snapshot *self = zero->masters.snapshot;
    int32_t row;
    if (source_of(zero, kind, &row) == SMALL)
        return;
    for (int64_t at = first, run; at < first + count; at += run) {
        const int64_t local = find(self, at, first + count, &run);
        self->cell[row * self->block_count + local / self->block].left += run;
    }
}

void shoali_zero_snapshot_expected(struct shoali_zero *zero)
{
    struct shoali_zero_snapshot *self = zero->masters.snapshot;
    pthread_mutex_lock(&self->lock);
    for (int64_t i = 0; i < self->rows * self->block_count; i++)
        if (self->cell[i].left == 0)
            self->cell[i].state = OVER;
    self->expected = true;
    pthread_cond_broadcast(&self->moved);
    pthread_mutex_unlock(&self->lock);
}

static shoal_status read_run(struct shoali_zero_snapshot *self, int32_t row, int64_t local,
                             int64_t count, float *out)
{
    shoal_status status = SHOAL_OK;
    struct cell *cell = &self->cell[row * self->block_count + local / self->block];
    pthread_mutex_lock(&self->lock);
    SHOAL_ASSERT(cell->left >= count);
    while (cell->state == COPYING)
        pthread_cond_wait(&self->moved, &self->lock);
    const bool copied = cell->state == COPIED;
    cell->state = copied ? COPIED : READ;
    pthread_mutex_unlock(&self->lock);
    if (copied)
        memcpy(out, self->slot + cell->slot * self->block + local % self->block,
               (size_t)count * sizeof(float));
    else
        status = fetch(self, row, local, count, self->stream, out);
    pthread_mutex_lock(&self->lock);
    if (self->broken && status == SHOAL_OK)
        status =
            SHOAL_FAIL(SHOAL_EIO, "the training could not copy data that it was about to change");
    cell->left -= count;
    cell->state = cell->left == 0 ? OVER : copied ? COPIED : PENDING;
    if (cell->state == OVER && copied)
        self->free[self->free_count++] = cell->slot;
    pthread_cond_broadcast(&self->moved);
    pthread_mutex_unlock(&self->lock);
    return status;
}

static void round_run(shoal_dtype dtype, const float *in, int64_t count, uint16_t *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = dtype == SHOAL_BF16 ? shoali_f32_to_bf16(in[i]) : shoali_f32_to_f16(in[i]);
}

shoal_status shoali_zero_snapshot_read(struct shoali_zero *zero, int32_t kind, int64_t first,
                                       int64_t count, void *out)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_snapshot *self = zero->masters.snapshot;
    int32_t row;
    const enum source source = source_of(zero, kind, &row);
    if (source == SMALL)
        memcpy(out, self->small[kind - 1] + first, (size_t)count * sizeof(float));
    for (int64_t at = first, run; at < first + count && source != SMALL; at += run) {
        const int64_t local = find(self, at, first + count, &run);
        float *to = source == ROUNDED ? self->widened : (float *)out + (at - first);
        SHOAL_TRY(status, read_run(self, row, local, run, to), done);
        if (source == ROUNDED)
            round_run(shoali_zero_dtype(&zero->setup), to, run, (uint16_t *)out + (at - first));
    }
done:
    return status;
}

void shoali_zero_snapshot_end(struct shoali_zero *zero)
{
    struct shoali_zero_snapshot *self = zero->masters.snapshot;
    pthread_mutex_lock(&self->lock);
    atomic_store(&self->active, false);
    pthread_cond_broadcast(&self->moved);
    pthread_mutex_unlock(&self->lock);
}
