#include "comm_suite.h"

#include "comm_data.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const shoal_dtype dtypes[] = {SHOAL_F32, SHOAL_BF16, SHOAL_F16, SHOAL_F64,
                                     SHOAL_I32, SHOAL_I64,  SHOAL_U8};
static const shoal_reduce reduces[] = {SHOAL_SUM, SHOAL_MIN, SHOAL_MAX,     SHOAL_PROD,
                                       SHOAL_BOR, SHOAL_AVG, SHOAL_SUM_TREE};

static bool is_allowed(shoal_dtype dtype, shoal_reduce op, int32_t ranks)
{
    if (op == SHOAL_SUM_TREE && (ranks & (ranks - 1)) != 0)
        return false;
    return dtype <= SHOAL_F64 ? op != SHOAL_BOR : op != SHOAL_AVG;
}

/* Large results are sampled: an odd step meets every lane of a vector and every chunk. */
static int64_t step_of(int64_t count)
{
    return count > 4000 ? 23 : 1;
}

bool suite_is_reduction(const struct rank_seat *seat, shoal_dtype dtype, shoal_reduce op,
                        uint64_t seed, int64_t first, int64_t count, const void *got)
{
    size_t bytes = shoal_dtype_bytes(dtype);
    unsigned char expected[8];
    for (int64_t i = 0; i < count; i += step_of(count)) {
        if (seat->host)
            data_reduce_by_host(dtype, op, seed, seat->host, seat->size, first + i, expected);
        else
            data_reduce(dtype, op, seed, seat->size, first + i, expected);
        EXPECT(memcmp(expected, (const char *)got + (size_t)i * bytes, bytes) == 0);
    }
    return true;
}

bool suite_is_data(const struct rank_seat *seat, shoal_dtype dtype, uint64_t seed, int32_t rank,
                   int64_t first, int64_t count, const void *got)
{
    size_t bytes = shoal_dtype_bytes(dtype);
    unsigned char expected[8];
    for (int64_t i = 0; i < count; i += step_of(count)) {
        data_store(dtype, seed, rank, first + i, expected);
        EXPECT(memcmp(expected, (const char *)got + (size_t)i * bytes, bytes) == 0);
    }
    return true;
}

bool suite_reductions(struct rank_seat *seat)
{
    static const int64_t counts[] = {1, 16, 37};
    char in[37 * 8 * 8], out[37 * 8];
    for (size_t d = 0; d < 7; d++)
        for (size_t o = 0; o < sizeof reduces / sizeof reduces[0]; o++)
            for (size_t c = 0; c < 3; c++) {
                shoal_dtype dtype = dtypes[d];
                shoal_reduce op = reduces[o];
                uint64_t seed = seat->ranks->seed + d * 100 + o * 10 + c;
                if (!is_allowed(dtype, op, seat->size))
                    continue;
                data_fill(dtype, seed, seat->rank, 0, counts[c] * seat->size, in);
                EXPECT(shoal_all_reduce(seat->group, in, out, counts[c], dtype, op, NULL) == 0);
                if (!suite_is_reduction(seat, dtype, op, seed, 0, counts[c], out))
                    return false;
                EXPECT(shoal_reduce_scatter(seat->group, in, out, counts[c], dtype, op, NULL) == 0);
                if (!suite_is_reduction(seat, dtype, op, seed, seat->rank * counts[c], counts[c],
                                        out))
                    return false;
            }
    return true;
}

/* Two buffers of `bytes`: private, or of shoal_comm_alloc. */
struct buffers {
    char *in, *out;
    bool shared;
};

static bool get_buffers(struct rank_seat *seat, bool shared, size_t bytes, struct buffers *buffers)
{
    void *in = malloc(bytes), *out = malloc(bytes);
    buffers->shared = shared;
    if (shared) {
        free(in);
        free(out);
        in = out = NULL;
        EXPECT(shoal_comm_alloc(seat->group, bytes, &in) == SHOAL_OK);
        EXPECT(shoal_comm_alloc(seat->group, bytes, &out) == SHOAL_OK);
    }
    EXPECT(in && out);
    buffers->in = in;
    buffers->out = out;
    return true;
}

static void put_buffers(struct rank_seat *seat, struct buffers *buffers)
{
    if (buffers->shared) {
        shoal_comm_free(seat->group, buffers->in);
        shoal_comm_free(seat->group, buffers->out);
    } else {
        free(buffers->in);
        free(buffers->out);
    }
}

static bool check_reducing(struct rank_seat *seat, const struct buffers *b, shoal_dtype dtype,
                           int64_t count, uint64_t seed)
{
    const int32_t me = seat->rank, n = seat->size;
    data_fill(dtype, seed, me, 0, count * n, b->in);
    EXPECT(shoal_all_reduce(seat->group, b->in, b->out, count, dtype, SHOAL_SUM, NULL) == 0);
    if (!suite_is_reduction(seat, dtype, SHOAL_SUM, seed, 0, count, b->out) ||
        !suite_is_data(seat, dtype, seed, me, 0, count * n, b->in))
        return false;
    EXPECT(shoal_reduce_scatter(seat->group, b->in, b->out, count, dtype, SHOAL_SUM, NULL) == 0);
    if (!suite_is_reduction(seat, dtype, SHOAL_SUM, seed, me * count, count, b->out))
        return false;
    EXPECT(shoal_all_reduce(seat->group, b->in, b->in, count, dtype, SHOAL_SUM, NULL) == 0);
    return suite_is_reduction(seat, dtype, SHOAL_SUM, seed, 0, count, b->in);
}

/* Large messages by the tree, which every way of moving them must keep. */
static bool check_tree(struct rank_seat *seat, const struct buffers *b, shoal_dtype dtype,
                       int64_t count, uint64_t seed)
{
    const int32_t me = seat->rank, n = seat->size;
    if (!is_allowed(dtype, SHOAL_SUM_TREE, n))
        return true;
    data_fill(dtype, seed, me, 0, count * n, b->in);
    EXPECT(shoal_all_reduce(seat->group, b->in, b->out, count, dtype, SHOAL_SUM_TREE, NULL) == 0);
    if (!suite_is_reduction(seat, dtype, SHOAL_SUM_TREE, seed, 0, count, b->out))
        return false;
    EXPECT(shoal_reduce_scatter(seat->group, b->in, b->out, count, dtype, SHOAL_SUM_TREE, NULL) ==
           0);
    return suite_is_reduction(seat, dtype, SHOAL_SUM_TREE, seed, me * count, count, b->out);
}

static bool check_moving(struct rank_seat *seat, const struct buffers *b, shoal_dtype dtype,
                         int64_t count, uint64_t seed)
{
    const int32_t me = seat->rank, n = seat->size;
    const size_t block = (size_t)count * shoal_dtype_bytes(dtype);
    data_fill(dtype, seed, me, 0, count * n, b->in);
    EXPECT(shoal_all_gather(seat->group, b->in, b->out, count, dtype, NULL) == 0);
    for (int32_t r = 0; r < n; r++)
        if (!suite_is_data(seat, dtype, seed, r, 0, count, b->out + (size_t)r * block))
            return false;
    EXPECT(shoal_all_to_all(seat->group, b->in, b->out, count, dtype, NULL) == 0);
    for (int32_t r = 0; r < n; r++)
        if (!suite_is_data(seat, dtype, seed, r, me * count, count, b->out + (size_t)r * block))
            return false;
    memset(b->out, 0, block * (size_t)n);
    data_fill(dtype, seed + 1, me, 0, count, b->out + (size_t)me * block);
    EXPECT(shoal_all_gather(seat->group, b->out + (size_t)me * block, b->out, count, dtype, NULL) ==
           0);
    for (int32_t r = 0; r < n; r++)
        if (!suite_is_data(seat, dtype, seed + 1, r, 0, count, b->out + (size_t)r * block))
            return false;
    int32_t root = (int32_t)(seed % (uint64_t)n);
    data_fill(dtype, seed + 2, me, 0, count, b->out);
    EXPECT(shoal_broadcast(seat->group, b->out, count, dtype, root, NULL) == 0);
    return suite_is_data(seat, dtype, seed + 2, root, 0, count, b->out);
}

/* Block sizes around `count`: some empty, one large. */
static int64_t uneven(uint64_t seed, int32_t from, int32_t to, int64_t count)
{
    uint64_t bits = data_mix(seed * 64 + (uint64_t)from * 8 + (uint64_t)to);
    return bits % 4 == 0 ? 0 : (int64_t)(bits / 4 % (uint64_t)(count + 1));
}

static bool check_uneven(struct rank_seat *seat, const struct buffers *b, shoal_dtype dtype,
                         int64_t count, uint64_t seed)
{
    const int32_t me = seat->rank, n = seat->size;
    const size_t bytes = shoal_dtype_bytes(dtype);
    int64_t send[64], recv[64], at = 0;
    for (int32_t r = 0; r < n; r++) {
        send[r] = uneven(seed, me, r, count);
        recv[r] = uneven(seed, r, me, count);
        data_fill(dtype, seed + (uint64_t)r, me, 0, send[r], b->in + (size_t)at * bytes);
        at += send[r];
    }
    EXPECT(shoal_all_to_all_v(seat->group, b->in, send, b->out, recv, dtype, NULL) == 0);
    at = 0;
    for (int32_t r = 0; r < n; r++) {
        if (!suite_is_data(seat, dtype, seed + (uint64_t)me, r, 0, recv[r],
                           b->out + (size_t)at * bytes))
            return false;
        at += recv[r];
    }
    return true;
}

bool suite_sizes(struct rank_seat *seat)
{
    /* 64 KiB is the largest small operation, 256 KiB the largest chunk. */
    static const struct {
        int64_t count;
        shoal_dtype dtype;
    } cases[] = {{0, SHOAL_F32},    {1, SHOAL_U8},      {3, SHOAL_F64},     {1023, SHOAL_BF16},
                 {2340, SHOAL_F32}, {16384, SHOAL_F32}, {16385, SHOAL_F32}, {33001, SHOAL_F64},
                 {65553, SHOAL_U8}, {33333, SHOAL_BF16}};
    for (int shared = 0; shared < 2; shared++) {
        struct buffers b;
        if (!get_buffers(seat, shared, (size_t)300000 * (size_t)seat->size, &b))
            return false;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            uint64_t seed = seat->ranks->seed + 1000 + i;
            if (cases[i].count > 5000 && (seat->size == 4 || seat->size == 7))
                continue; /* the large ones with few and with many ranks are enough */
            if (!check_reducing(seat, &b, cases[i].dtype, cases[i].count, seed) ||
                !check_tree(seat, &b, cases[i].dtype, cases[i].count, seed + 7) ||
                !check_moving(seat, &b, cases[i].dtype, cases[i].count, seed) ||
                !check_uneven(seat, &b, cases[i].dtype, cases[i].count, seed))
                return false;
        }
        put_buffers(seat, &b);
    }
    return true;
}

/* Backends that have several algorithms for a collective: each of them, whatever the sizes they are
 * for. */
bool suite_algorithms(struct rank_seat *seat)
{
    static const struct {
        int64_t count;
        shoal_dtype dtype;
    } cases[] = {{1000, SHOAL_I64}, {70001, SHOAL_I64}, {20011, SHOAL_I32}, {20011, SHOAL_F32}};
    const char *name;
    struct buffers b;
    if (!shoali_comm_transport(seat->group))
        return true;
    if (!get_buffers(seat, false, (size_t)600000 * (size_t)seat->size, &b))
        return false;
    for (int32_t a = 0; (name = shoali_comm_algorithm(a)); a++) {
        EXPECT(shoali_comm_force(seat->group, name) == SHOAL_OK);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
            if (!check_reducing(seat, &b, cases[i].dtype, cases[i].count, i + 1) ||
                !check_moving(seat, &b, cases[i].dtype, cases[i].count, i + 1)) {
                fprintf(stderr, "by the algorithm %s\n", name);
                return false;
            }
    }
    EXPECT(shoali_comm_force(seat->group, NULL) == SHOAL_OK);
    put_buffers(seat, &b);
    return true;
}

bool suite_random(struct rank_seat *seat)
{
    struct buffers private, shared;
    const size_t bytes = (size_t)131072 * (size_t)seat->size;
    if (!get_buffers(seat, false, bytes, &private) || !get_buffers(seat, true, bytes, &shared))
        return false;
    for (uint64_t i = 0; i < 40; i++) {
        uint64_t bits = data_mix(seat->ranks->seed * 1000 + i);
        shoal_dtype dtype = dtypes[bits % 7];
        int64_t most = 131072 / (int64_t)shoal_dtype_bytes(dtype);
        int64_t count = (int64_t)((bits >> 8) % (uint64_t)most) >> ((bits >> 40) % 17);
        /* Where all ranks choose alone: mixtures of shared and private buffers are legal. */
        bool own_choice = (data_mix(bits + (uint64_t)seat->rank) & 3) != 0;
        struct buffers b = ((bits >> 32) & 1) == 0 ? private : shared;
        if ((bits >> 33) % 4 == 0)
            b = own_choice ? shared : private;
        bool passed = (bits >> 60) % 3 == 0   ? check_reducing(seat, &b, dtype, count, bits)
                      : (bits >> 60) % 3 == 1 ? check_moving(seat, &b, dtype, count, bits)
                                              : check_uneven(seat, &b, dtype, count, bits);
        if (!passed) {
            fprintf(stderr, "in the random program of seed %llu, call %llu\n",
                    (unsigned long long)seat->ranks->seed, (unsigned long long)i);
            return false;
        }
    }
    put_buffers(seat, &private);
    put_buffers(seat, &shared);
    return true;
}

bool suite_requests(struct rank_seat *seat)
{
    enum { REQUESTS = 16, COUNT = 17000 };
    shoal_request *request[REQUESTS];
    float *data = malloc(sizeof(float) * REQUESTS * COUNT);
    EXPECT(data);
    for (int round = 0; round < 3; round++) {
        int64_t count = round == 0 ? 5 : COUNT;
        for (uint64_t i = 0; i < REQUESTS; i++) {
            data_fill(SHOAL_F32, i, seat->rank, 0, count, data + i * COUNT);
            EXPECT(shoal_all_reduce(seat->group, data + i * COUNT, data + i * COUNT, count,
                                    SHOAL_F32, SHOAL_SUM, &request[i]) == SHOAL_OK);
        }
        for (int i = 0; i < REQUESTS; i++) {
            int at = round == 1 ? REQUESTS - 1 - i : (i * 5 + seat->rank) % REQUESTS;
            shoal_status status = round == 2 ? SHOAL_IN_PROGRESS : SHOAL_OK;
            while (status == SHOAL_IN_PROGRESS) {
                status = shoal_request_test(&request[at]);
                sched_yield(); /* there are more ranks than cores */
            }
            EXPECT(status == SHOAL_OK);
            EXPECT(shoal_request_wait(&request[at]) == SHOAL_OK);
            EXPECT(request[at] == NULL);
            if (!suite_is_reduction(seat, SHOAL_F32, SHOAL_SUM, (uint64_t)at, 0, count,
                                    data + at * COUNT))
                return false;
        }
    }
    free(data);
    return true;
}

/* Everybody to everybody, all at once; then a ring of blocking calls around a collective. */
bool suite_messages(struct rank_seat *seat)
{
    static const int64_t counts[] = {0, 1, 1001, 90000};
    const int32_t me = seat->rank, n = seat->size;
    struct buffers b;
    for (int shared = 0; shared < 2; shared++) {
        if (!get_buffers(seat, shared, sizeof(float) * 90000 * (size_t)n, &b))
            return false;
        for (uint64_t c = 0; c < 4; c++) {
            shoal_request *requests[16] = {NULL};
            float *out = (float *)b.out;
            data_fill(SHOAL_F32, c, me, 0, counts[c], b.in);
            for (int32_t r = 0; r < n; r++) {
                if (r == me)
                    continue;
                EXPECT(shoal_send(seat->group, b.in, counts[c], SHOAL_F32, r, &requests[r]) == 0);
                EXPECT(shoal_recv(seat->group, out + r * counts[c], counts[c], SHOAL_F32, r,
                                  &requests[8 + r]) == 0);
            }
            EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
            for (int32_t i = 15; i >= 0; i--)
                EXPECT(shoal_request_wait(&requests[i]) == SHOAL_OK);
            for (int32_t r = 0; r < n; r++)
                if (r != me &&
                    !suite_is_data(seat, SHOAL_F32, c, r, 0, counts[c], out + r * counts[c]))
                    return false;
            EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
        }
        put_buffers(seat, &b);
    }
    for (int32_t i = 0; i < 20 && n > 1; i++) { /* small messages do not wait for their receiver */
        int32_t value[2] = {me, i}, got[2] = {0, 0};
        EXPECT(shoal_send(seat->group, value, 2, SHOAL_I32, (me + 1) % n, NULL) == SHOAL_OK);
        EXPECT(shoal_recv(seat->group, got, 2, SHOAL_I32, (me + n - 1) % n, NULL) == SHOAL_OK);
        EXPECT(got[0] == (me + n - 1) % n && got[1] == i);
    }
    return true;
}

static bool check_child(struct rank_seat *seat, shoal_group *child, int32_t expected_size,
                        int32_t expected_rank, char *memory)
{
    EXPECT(shoal_comm_size(child) == expected_size && shoal_comm_rank(child) == expected_rank);
    EXPECT(strcmp(shoal_comm_backend(child), shoal_comm_backend(seat->group)) == 0);
    int32_t host[64], own = seat->host ? seat->host[seat->rank] : 0;
    EXPECT(shoal_all_gather(child, &own, host, 1, SHOAL_I32, NULL) == SHOAL_OK);
    struct rank_seat sub = {.ranks = seat->ranks,
                            .rank = expected_rank,
                            .size = expected_size,
                            .group = child,
                            .host = seat->host ? host : NULL};
    struct buffers b = {.in = memory, .out = memory + 400000};
    return check_reducing(&sub, &b, SHOAL_F32, 20, 5) &&
           check_reducing(&sub, &b, SHOAL_F32, 20000 / expected_size, 6) &&
           check_moving(&sub, &b, SHOAL_I32, 9000, 7);
}

bool suite_split(struct rank_seat *seat)
{
    const int32_t me = seat->rank, n = seat->size;
    shoal_group *parity = NULL, *reversed = NULL, *some = NULL, *nested = NULL;
    void *memory = NULL; /* of the parent's group, used in its children */
    EXPECT(shoal_comm_alloc(seat->group, 800000, &memory) == SHOAL_OK);
    for (int32_t i = 0; i < 800000; i++)
        EXPECT(((const char *)memory)[i] == 0);
    EXPECT(shoal_comm_split(seat->group, me % 2, 0, &parity) == SHOAL_OK);
    EXPECT(shoal_comm_split(seat->group, 7, -me, &reversed) == SHOAL_OK);
    EXPECT(shoal_comm_split(seat->group, me == 0 ? -1 : 3, 0, &some) == SHOAL_OK);
    EXPECT((some == NULL) == (me == 0));
    if (!check_child(seat, parity, (n + 1 - me % 2) / 2, me / 2, memory) ||
        !check_child(seat, reversed, n, n - 1 - me, memory) ||
        (some && !check_child(seat, some, n - 1, me - 1, memory)))
        return false;
    EXPECT(shoal_comm_split(reversed, me < n / 2, 0, &nested) == SHOAL_OK);
    void *own = NULL;
    EXPECT(shoal_comm_alloc(nested, 800000, &own) == SHOAL_OK);
    int32_t low = n / 2;
    if (!check_child(seat, nested, me < low ? low : n - low, me < low ? low - 1 - me : n - 1 - me,
                     own))
        return false;
    shoal_comm_destroy(parity); /* the others outlive it */
    EXPECT(shoal_barrier(reversed) == SHOAL_OK);
    shoal_comm_destroy(reversed);
    EXPECT(shoal_barrier(nested) == SHOAL_OK);
    shoal_comm_destroy(some);
    shoal_comm_destroy(nested);
    return true;
}

bool suite_alloc(struct rank_seat *seat)
{
    void *memory[4], *huge = NULL;
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < 4; i++) {
            EXPECT(shoal_comm_alloc(seat->group, i * 5000, &memory[i]) == SHOAL_OK);
            EXPECT(memory[i] && (uintptr_t)memory[i] % 64 == 0);
            memset(memory[i], seat->rank, i * 5000);
        }
        EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
        for (size_t i = 0; i < 4; i++) {
            for (size_t at = 0; at < i * 5000; at += 100)
                EXPECT(((char *)memory[i])[at] == (char)seat->rank);
            if (round < 2 || i < 2) /* the rest goes with the group */
                shoal_comm_free(seat->group, memory[i]);
        }
    }
    /* More than there is: an error on every rank, and life goes on. */
    EXPECT(shoal_comm_alloc(seat->group, (size_t)1 << 50, &huge) == SHOAL_ENOMEM);
    EXPECT(huge == NULL);
    if (seat->ranks->kind == RANKS_SHM)
        EXPECT(strstr(shoal_error_message(), "/dev/shm") &&
               strstr(shoal_error_message(), seat->host ? "rank" : "rank 0"));
    EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
    return true;
}

bool suite_many(struct rank_seat *seat)
{
    enum { COUNT = 3, GROUPS = 16 };
    const int32_t me = seat->rank, n = seat->size, next = (me + 1) % n, last = (me + n - 1) % n;
    int32_t token = me, got = -1;
    shoal_group *part = NULL;
    struct buffers b;
    if (!get_buffers(seat, false, (size_t)n * COUNT * 8, &b) ||
        !check_reducing(seat, &b, SHOAL_F32, COUNT, 1) ||
        !check_tree(seat, &b, SHOAL_F32, COUNT, 2) || !check_moving(seat, &b, SHOAL_I64, COUNT, 3))
        return false;
    EXPECT(shoal_send(seat->group, &token, 1, SHOAL_I32, next, NULL) == SHOAL_OK);
    EXPECT(shoal_recv(seat->group, &got, 1, SHOAL_I32, last, NULL) == SHOAL_OK && got == last);
    EXPECT(shoal_comm_split(seat->group, me % GROUPS, 0, &part) == SHOAL_OK);
    EXPECT(shoal_comm_rank(part) == me / GROUPS);
    EXPECT(shoal_all_reduce(part, &token, &got, 1, SHOAL_I32, SHOAL_MAX, NULL) == SHOAL_OK);
    EXPECT(got == (shoal_comm_size(part) - 1) * GROUPS + me % GROUPS);
    shoal_comm_destroy(part);
    put_buffers(seat, &b);
    if (!get_buffers(seat, true, 4096, &b)) /* in reach of all */
        return false;
    data_fill(SHOAL_F32, 4, me, 0, 1024, b.in);
    EXPECT(shoal_all_reduce(seat->group, b.in, b.out, 1024, SHOAL_F32, SHOAL_SUM, NULL) == 0);
    if (!suite_is_reduction(seat, SHOAL_F32, SHOAL_SUM, 4, me % 1000, 8,
                            b.out + 4 * (size_t)(me % 1000)))
        return false;
    put_buffers(seat, &b);
    return true;
}

bool suite_counters(struct rank_seat *seat)
{
    struct shoali_comm_counters counters;
    const int32_t n = seat->size;
    float in[64] = {0}, out[64];
    EXPECT(shoal_all_reduce(seat->group, in, out, 12, SHOAL_F32, SHOAL_SUM, NULL) == SHOAL_OK);
    EXPECT(shoal_all_gather(seat->group, in, out, 4, SHOAL_F32, NULL) == SHOAL_OK);
    EXPECT(shoal_all_gather(seat->group, in, out, 4, SHOAL_BF16, NULL) == SHOAL_OK);
    shoali_comm_get_counters(seat->group, &counters);
    EXPECT(counters.calls[SHOALI_ALL_REDUCE] == 1 && counters.calls[SHOALI_ALL_GATHER] == 2);
    EXPECT(counters.elements[SHOALI_ALL_REDUCE] == 2 * 12 * (n - 1) / n);
    EXPECT(counters.elements[SHOALI_ALL_GATHER] == 8 * (n - 1));
    EXPECT(counters.bytes[SHOALI_ALL_GATHER] == (16 + 8) * (n - 1));
    EXPECT(counters.calls[SHOALI_BROADCAST] == 0);
    return true;
}

bool suite_arguments(struct rank_seat *seat)
{
    float data[4] = {0};
    shoal_request *request[17];
    shoal_group *g = seat->group;
    EXPECT(shoal_all_reduce(g, data, data, -1, SHOAL_F32, SHOAL_SUM, NULL) == SHOAL_EINVAL);
    EXPECT(strstr(shoal_error_message(), "all_reduce at") && strstr(shoal_error_message(), "-1"));
    EXPECT(shoal_all_reduce(g, data, data, 4, (shoal_dtype)9, SHOAL_SUM, NULL) == SHOAL_EINVAL);
    EXPECT(shoal_all_reduce(g, data, data, 4, SHOAL_F32, SHOAL_BOR, NULL) == SHOAL_EINVAL);
    EXPECT(shoal_all_reduce(g, data, data, 4, SHOAL_I32, SHOAL_AVG, NULL) == SHOAL_EINVAL);
    if ((seat->size & (seat->size - 1)) != 0) {
        EXPECT(shoal_all_reduce(g, data, data, 4, SHOAL_F32, SHOAL_SUM_TREE, NULL) == SHOAL_EINVAL);
        EXPECT(strstr(shoal_error_message(), "use SHOAL_SUM"));
    }
    EXPECT(shoal_all_reduce(g, data, NULL, 4, SHOAL_F32, SHOAL_SUM, NULL) == SHOAL_EINVAL);
    EXPECT(strstr(shoal_error_message(), "the receiving buffer is NULL"));
    EXPECT(shoal_all_reduce(g, NULL, data, 4, SHOAL_F32, SHOAL_SUM, NULL) == SHOAL_EINVAL);
    EXPECT(strstr(shoal_error_message(), "the sending buffer is NULL"));
    EXPECT(shoal_all_gather(g, data, data, INT64_MAX / 2, SHOAL_F32, NULL) == SHOAL_EINVAL);
    EXPECT(shoal_broadcast(g, data, 4, SHOAL_F32, seat->size, NULL) == SHOAL_EINVAL);
    EXPECT(shoal_send(g, data, 4, SHOAL_F32, seat->rank, NULL) == SHOAL_EINVAL);
    if (seat->size == 1)
        return true;
    int32_t to = (seat->rank + 1) % seat->size, from = (seat->rank + seat->size - 1) % seat->size;
    EXPECT(shoal_recv(g, NULL, 1, SHOAL_F32, from, NULL) == SHOAL_EINVAL);
    EXPECT(strstr(shoal_error_message(), "the receiving buffer is NULL"));
    for (int i = 0; i < 16; i++)
        EXPECT(shoal_recv(g, data, 1, SHOAL_F32, from, &request[i]) == SHOAL_OK);
    EXPECT(shoal_barrier(g) == SHOAL_OK);
    EXPECT(shoal_recv(g, data, 1, SHOAL_F32, from, &request[16]) == SHOAL_EINVAL);
    EXPECT(request[16] == NULL && strstr(shoal_error_message(), "16 outstanding"));
    EXPECT(shoal_request_wait(&request[16]) == SHOAL_OK);
    for (int i = 0; i < 16; i++) /* a call that waits always has room */
        EXPECT(shoal_send(g, data + 1, 1, SHOAL_F32, to, NULL) == SHOAL_OK);
    for (int i = 0; i < 16; i++)
        EXPECT(shoal_request_wait(&request[i]) == SHOAL_OK);
    return true;
}
