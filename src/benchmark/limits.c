/* limits.c - what the machine can do, now. */
#include "base/nontemporal.h"
#include "benchmark/benchmark.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- multiply-adds ------------------------------------------------------------------------- */

enum { CHAINS = 12 }; /* enough to hide the latency of two units, few enough for registers */
#if defined(__x86_64__)
/* Twelve chains in one statement: an array would be kept in memory. */
#define LINE(op, n) op " %12, %13, %" #n "\n\t"
#define FOUR_LINES(op, a, b, c, d) LINE(op, a) LINE(op, b) LINE(op, c) LINE(op, d)
#define LINES(op) FOUR_LINES(op, 0, 1, 2, 3) FOUR_LINES(op, 4, 5, 6, 7) FOUR_LINES(op, 8, 9, 10, 11)
#define CHAIN_REGISTERS                                                                       \
    "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h), "+v"(i), "+v"(j), \
        "+v"(k), "+v"(l)

__attribute__((target("avx512f"))) static void add_512(int64_t rounds)
{
    __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f), a, b, c, d, e, f, g, h, i, j, k,
           l;
    a = b = c = d = e = f = g = h = i = j = k = l = x;
    for (int64_t r = 0; r < rounds; r++)
        __asm__ volatile(LINES("vfmadd231ps") : CHAIN_REGISTERS : "v"(x), "v"(y));
}

__attribute__((target("avx512f"))) static void add_bf16(int64_t rounds)
{
    __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f), a, b, c, d, e, f, g, h, i, j, k,
           l;
    a = b = c = d = e = f = g = h = i = j = k = l = x;
    for (int64_t r = 0; r < rounds; r++)
        __asm__ volatile(LINES("vdpbf16ps") : CHAIN_REGISTERS : "v"(x), "v"(y));
}

__attribute__((target("avx2,fma"))) static void add_256(int64_t rounds)
{
    __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f), a, b, c, d, e, f, g, h, i, j, k,
           l;
    a = b = c = d = e = f = g = h = i = j = k = l = x;
    for (int64_t r = 0; r < rounds; r++)
        __asm__ volatile(LINES("vfmadd231ps")
                         : "+x"(a), "+x"(b), "+x"(c), "+x"(d), "+x"(e), "+x"(f), "+x"(g), "+x"(h),
                           "+x"(i), "+x"(j), "+x"(k), "+x"(l)
                         : "x"(x), "x"(y));
}
#endif

struct add_loop {
    void (*run)(int64_t rounds);
    double flops; /* of one instruction */
};
static struct add_loop best_loop(shoal_dtype dtype)
{
#if defined(__x86_64__)
    if (dtype == SHOAL_BF16 && __builtin_cpu_supports("avx512bf16"))
        return (struct add_loop){add_bf16, 64};
    if (__builtin_cpu_supports("avx512f"))
        return (struct add_loop){add_512, 32};
    if (__builtin_cpu_supports("fma"))
        return (struct add_loop){add_256, 16};
#endif
    (void)dtype;
    return (struct add_loop){NULL, 0};
}

enum { ADD_ROUNDS = 50000, ADD_BURSTS = 16 }; /* short: others want the cores too */
struct add_rates {
    struct add_loop loop;
    double *rate; /* of each thread */
};

static void add_part(void *arg, int32_t index, int32_t count)
{
    const struct add_rates *rates = arg;
    const double flops = CHAINS * rates->loop.flops * ADD_ROUNDS;
    (void)count;
    for (int burst = 0; burst < ADD_BURSTS; burst++) {
        const double start = shoali_seconds();
        rates->loop.run(ADD_ROUNDS);
        const double rate = flops / (shoali_seconds() - start) * 1e-9;
        rates->rate[index] = rate > rates->rate[index] ? rate : rates->rate[index];
    }
}

/* The sum of each thread's best burst, all running at once. */
double shoali_limit_fma(struct shoali_pool *pool, shoal_dtype dtype)
{
    const int32_t threads = shoali_pool_threads(pool);
    struct add_rates rates = {.loop = best_loop(dtype)};
    double sum = 0;
    if (!rates.loop.run)
        return 0;
    rates.rate = calloc((size_t)threads, sizeof *rates.rate);
    if (!rates.rate)
        return 0;
    shoali_pool_run(pool, add_part, &rates);
    for (int32_t i = 0; i < threads; i++)
        sum += rates.rate[i];
    free(rates.rate);
    return sum;
}

/* ---- memory -------------------------------------------------------------------------------- */

struct axpy {
    float *x;
    const float *y;
    int64_t count;
};

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void axpy_512(float *restrict x, const float *restrict y,
                                                        int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] += 1e-6f * y[i];
}
__attribute__((target("avx2,fma"))) static void axpy_256(float *restrict x, const float *restrict y,
                                                         int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] += 1e-6f * y[i];
}
#endif
static void axpy_any(float *restrict x, const float *restrict y, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] += 1e-6f * y[i];
}

static void axpy_part(void *arg, int32_t index, int32_t count)
{
    const struct axpy *work = arg;
    int64_t begin, end;
    shoali_pool_slice(work->count, 1024, index, count, &begin, &end);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        axpy_512(work->x + begin, work->y + begin, end - begin);
        return;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        axpy_256(work->x + begin, work->y + begin, end - begin);
        return;
    }
#endif
    axpy_any(work->x + begin, work->y + begin, end - begin);
}

double shoali_limit_axpy(struct shoali_pool *pool, float *x, const float *y, int64_t count)
{
    struct axpy work = {x, y, count};
    double best = 0;
    for (int i = 0; i < 3; i++) {
        const double start = shoali_seconds();
        shoali_pool_run(pool, axpy_part, &work);
        const double rate = 12.0 * (double)count / (shoali_seconds() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}

/* ---- lines in and out ----------------------------------------------------------------------- */

enum { LINE_BYTES = SHOALI_BENCH_LINE, LINE_WORDS = LINE_BYTES / 8 };
_Static_assert((int)LINE_BYTES == (int)SHOALI_NONTEMPORAL_BYTES, "what is written past the caches");
struct lines {
    const char *x;
    char *y;
    int64_t rounds;
    int32_t reads, writes;
    _Atomic uint64_t sum; /* of what is read, or the loop would be for nothing */
};

/* The last line of a round is what is written: some CPUs are twice as fast with zeros. */
#if defined(__x86_64__)
__attribute__((target("avx512f"))) static uint64_t
move_512(const char *from, char *to, int64_t rounds, int32_t reads, int32_t writes)
{
    __m512i line = _mm512_setzero_si512(), sum = line;
    for (int64_t r = 0; r < rounds; r++) {
        for (int32_t k = 0; k < reads; k++, from += LINE_BYTES)
            sum = _mm512_xor_si512(sum, line = _mm512_load_si512(from));
        for (int32_t k = 0; k < writes; k++, to += LINE_BYTES)
            _mm512_stream_si512((__m512i *)(void *)to, line);
    }
    return (uint64_t)_mm512_reduce_or_epi64(sum);
}
__attribute__((target("avx2"))) static uint64_t move_256(const char *from, char *to, int64_t rounds,
                                                         int32_t reads, int32_t writes)
{
    __m256i line[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()}, sum[2] = {line[0], line[1]};
    uint64_t words[4], all = 0;
    for (int64_t r = 0; r < rounds; r++) {
        for (int32_t k = 0; k < reads; k++, from += LINE_BYTES)
            for (int half = 0; half < 2; half++) {
                line[half] = _mm256_load_si256((const __m256i *)(const void *)from + half);
                sum[half] = _mm256_xor_si256(sum[half], line[half]);
            }
        for (int32_t k = 0; k < writes; k++, to += LINE_BYTES)
            for (int half = 0; half < 2; half++)
                _mm256_stream_si256((__m256i *)(void *)to + half, line[half]);
    }
    _mm256_storeu_si256((__m256i *)(void *)words, _mm256_or_si256(sum[0], sum[1]));
    for (int j = 0; j < 4; j++)
        all |= words[j];
    return all;
}
#endif
static uint64_t move_any(const char *from, char *to, int64_t rounds, int32_t reads, int32_t writes)
{
    uint64_t line[LINE_WORDS] = {0}, sum[LINE_WORDS] = {0}, all = 0;
    for (int64_t r = 0; r < rounds; r++) {
        for (int32_t k = 0; k < reads; k++, from += LINE_BYTES) {
            memcpy(line, from, sizeof line);
            for (int j = 0; j < LINE_WORDS; j++)
                sum[j] ^= line[j];
        }
        for (int32_t k = 0; k < writes; k++, to += LINE_BYTES)
            shoali_nontemporal_line(to, line);
    }
    for (int j = 0; j < LINE_WORDS; j++)
        all ^= sum[j];
    return all;
}

static void lines_part(void *arg, int32_t index, int32_t count)
{
    struct lines *lines = arg;
    uint64_t (*move)(const char *, char *, int64_t, int32_t, int32_t) = move_any;
    int64_t begin, end;
    shoali_pool_slice(lines->rounds, 64, index, count, &begin, &end);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        move = move_512;
    else if (__builtin_cpu_supports("avx2"))
        move = move_256;
#endif
    const char *from = lines->x + begin * lines->reads * LINE_BYTES;
    char *to = lines->writes > 0 ? lines->y + begin * lines->writes * LINE_BYTES : NULL;
    atomic_fetch_xor(&lines->sum, move(from, to, end - begin, lines->reads, lines->writes));
    shoali_nontemporal_end();
}

double shoali_limit_lines(struct shoali_pool *pool, const float *x, float *y, int64_t rounds,
                          int32_t reads, int32_t writes)
{
    struct lines lines = {
        .x = (const char *)x, .y = (char *)y, .rounds = rounds, .reads = reads, .writes = writes};
    const double bytes = (double)(rounds * (reads + writes) * LINE_BYTES);
    double best = 0;
    for (int i = 0; i < 3; i++) {
        const double start = shoali_seconds();
        shoali_pool_run(pool, lines_part, &lines);
        const double rate = bytes / (shoali_seconds() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}

/* ---- cores --------------------------------------------------------------------------------- */

enum { ROUND_TRIPS = 20000, NO_MORE = INT32_MAX };
#define ROUND_TRIP_SECONDS 0.2 /* cores that others use too may take much longer */
struct ping {
    _Alignas(128) atomic_int there;
    _Alignas(128) atomic_int back;
    _Alignas(128) cpu_set_t core;
};

static void *answer(void *arg)
{
    struct ping *ping = arg;
    (void)pthread_setaffinity_np(pthread_self(), sizeof ping->core, &ping->core);
    for (int i = 1;; i++) {
        int seen;
        do
            seen = atomic_load_explicit(&ping->there, memory_order_acquire);
        while (seen < i);
        if (seen == NO_MORE)
            return NULL;
        atomic_store_explicit(&ping->back, i, memory_order_release);
    }
}

/* The first two cores this thread may run on; false when there is one only. */
static bool two_cores(const cpu_set_t *allowed, cpu_set_t core[2])
{
    int found = 0;
    for (int i = 0; i < CPU_SETSIZE && found < 2; i++) {
        if (!CPU_ISSET(i, allowed))
            continue;
        CPU_ZERO(&core[found]);
        CPU_SET(i, &core[found]);
        found++;
    }
    return found == 2;
}

static double send_pings(struct ping *ping)
{
    const int warm = ROUND_TRIPS / 10; /* by then the other has come to its core */
    const double begin = shoali_seconds();
    double start = begin, now = begin;
    int sent = 1;
    for (; sent <= ROUND_TRIPS && now - begin < ROUND_TRIP_SECONDS; sent++) {
        atomic_store_explicit(&ping->there, sent, memory_order_release);
        while (atomic_load_explicit(&ping->back, memory_order_acquire) < sent)
            ;
        if (sent == warm)
            start = shoali_seconds();
        if (sent % 64 == 0)
            now = shoali_seconds();
    }
    now = shoali_seconds();
    atomic_store_explicit(&ping->there, NO_MORE, memory_order_release);
    return (now - start) * 1e6 / (sent > warm ? sent - 1 - warm : sent - 1);
}

double shoali_limit_round_trip(void)
{
    cpu_set_t allowed, core[2];
    pthread_t thread;
    struct ping ping = {0};
    if (pthread_getaffinity_np(pthread_self(), sizeof allowed, &allowed) != 0 ||
        !two_cores(&allowed, core))
        return 0;
    ping.core = core[1];
    (void)pthread_setaffinity_np(pthread_self(), sizeof core[0], &core[0]);
    double taken = 0;
    if (pthread_create(&thread, NULL, answer, &ping) == 0) {
        taken = send_pings(&ping);
        (void)pthread_join(thread, NULL);
    }
    (void)pthread_setaffinity_np(pthread_self(), sizeof allowed, &allowed);
    return taken;
}
