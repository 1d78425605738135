/* tune_comm.c - the algorithm that is fastest for each collective and size, by the ranks of a
 * job. */
#include "benchmark/benchmark.h"

#include "base/started.h"
#include "comm/comm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE_FACTOR = 4, ALGORITHMS_MAX = 16, RULES_MAX = 48 };

static const struct subject {
    const char *name, *sum; /* as the table has them */
    enum shoali_collective kind;
    shoal_dtype dtype;
} subjects[] = {
    {"all_reduce", "any", SHOALI_ALL_REDUCE, SHOAL_F32},
    {"all_reduce", "integer", SHOALI_ALL_REDUCE, SHOAL_I64},
    {"reduce_scatter", "integer", SHOALI_REDUCE_SCATTER, SHOAL_I64},
    {"all_gather", "any", SHOALI_ALL_GATHER, SHOAL_F32},
    {"broadcast", "any", SHOALI_BROADCAST, SHOAL_F32},
};
enum { SUBJECTS = sizeof subjects / sizeof subjects[0] };

struct rule {
    const struct subject *subject;
    int64_t up_to_bytes; /* -1: however large */
    int32_t algorithm;
};
struct tuning {
    const shoali_tune_comm_args *args;
    shoal_group *group;
    int32_t rank, ranks, repeats;
    void *in, *out;
    struct rule rule[RULES_MAX];
    int32_t rules;
};

static struct shoali_post post_of(const struct tuning *self, const struct subject *subject,
                                  int64_t bytes)
{
    const bool scatters = subject->kind == SHOALI_REDUCE_SCATTER; /* its input is the larger one */
    return (struct shoali_post){.kind = subject->kind,
                                .here = SHOAL_HERE,
                                .in = subject->kind == SHOALI_BROADCAST || scatters ? self->out
                                                                                    : self->in,
                                .out = scatters ? self->in : self->out,
                                .count = bytes / (int64_t)shoal_dtype_bytes(subject->dtype),
                                .dtype = subject->dtype,
                                .op = SHOAL_SUM};
}

/* The least of all samples of the slowest rank, in microseconds. */
static shoal_status measure(const struct tuning *self, const struct shoali_post *post, double *us)
{
    shoal_status status = SHOAL_OK;
    *us = 0;
    for (int32_t i = 0; i <= self->repeats; i++) { /* the first is warm-up */
        SHOAL_TRY(status, shoal_barrier(self->group), done);
        const double start = shoali_seconds();
        SHOAL_TRY(status, shoali_comm_post(self->group, post, NULL), done);
        double took = (shoali_seconds() - start) * 1e6;
        SHOAL_TRY(status,
                  shoal_all_reduce(self->group, &took, &took, 1, SHOAL_F64, SHOAL_MAX, NULL), done);
        if (i == 1 || (i > 1 && took < *us))
            *us = took;
    }
done:
    return status;
}

/* Joins a rule that says the same of smaller messages. */
static void keep(struct tuning *self, const struct subject *subject, int64_t up_to_bytes,
                 int32_t algorithm)
{
    struct rule *last = self->rules > 0 ? &self->rule[self->rules - 1] : NULL;
    if (last && last->subject == subject && last->algorithm == algorithm)
        last->up_to_bytes = up_to_bytes;
    else if (self->rules < RULES_MAX)
        self->rule[self->rules++] = (struct rule){subject, up_to_bytes, algorithm};
}

static shoal_status tune_size(struct tuning *self, const struct subject *subject, int64_t bytes,
                              bool last)
{
    const struct shoali_post post = post_of(self, subject, bytes);
    const char *name;
    int32_t best = -1;
    double least = 0;
    shoal_status status = SHOAL_OK;
    if (self->rank == 0)
        printf("%-14s %-8s %10lld B", subject->name, subject->sum, (long long)bytes);
    for (int32_t a = 0; (name = shoali_comm_algorithm(a)); a++) {
        double us = 0;
        if (!shoali_comm_can(a, &post))
            continue;
        SHOAL_TRY(status, shoali_comm_force(self->group, name), done);
        SHOAL_TRY(status, measure(self, &post, &us), done);
        if (best < 0 || us < least) {
            best = a;
            least = us;
        }
        if (self->rank == 0)
            printf("  %s %.0f us", name, us);
    }
    if (self->rank == 0)
        printf("\n");
    /* half way, on a logarithmic scale, to the next size */
    keep(self, subject, last ? -1 : bytes * 2, best);
done:
    return status;
}

static shoal_status write_table(const struct tuning *self)
{
    const char *path = self->args->path;
    FILE *file = fopen(path, "we");
    bool failed = !file;
    if (file) {
        const int64_t local = shoali_started_get().local_size;
        failed |= fprintf(file,
                          "# shoal tune comm; SHOAL_COMM_TUNING names this file\n"
                          "world %s %d %d\n",
                          shoali_comm_transport(self->group), (int)self->ranks,
                          local > 0 ? (int)local : 0) < 0;
        for (int32_t i = 0; i < self->rules; i++) {
            const struct rule *rule = &self->rule[i];
            char bytes[24] = "-";
            if (rule->up_to_bytes >= 0)
                snprintf(bytes, sizeof bytes, "%lld", (long long)rule->up_to_bytes);
            failed |= fprintf(file, "%s %s %s %s\n", rule->subject->name, rule->subject->sum, bytes,
                              shoali_comm_algorithm(rule->algorithm)) < 0;
        }
        failed |= fclose(file) != 0;
    }
    return failed ? SHOAL_FAIL(SHOAL_EIO, "cannot write %s: %s", path, strerror(errno)) : SHOAL_OK;
}

static shoal_status tune(struct tuning *self)
{
    const int64_t least = 4096, most = self->args->max_bytes;
    shoal_status status = SHOAL_OK;
    if (self->ranks < 2 || !shoali_comm_transport(self->group)) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "tune comm: %s has only one algorithm per collective: start it like "
                            "the job, with ranks on all hosts (shoal run -H HOSTFILE shoal tune "
                            "comm), or with SHOAL_COMM=ucx",
                            self->ranks < 2 ? "one rank" : shoal_comm_backend(self->group));
        goto done;
    }
    SHOAL_TRY(status, shoal_comm_alloc(self->group, (size_t)most, &self->in), done);
    SHOAL_TRY(status, shoal_comm_alloc(self->group, (size_t)most * (size_t)self->ranks, &self->out),
              done);
    for (int32_t s = 0; s < SUBJECTS; s++)
        for (int64_t bytes = least; bytes <= most; bytes *= SIZE_FACTOR)
            SHOAL_TRY(status, tune_size(self, &subjects[s], bytes, bytes > most / SIZE_FACTOR),
                      done);
    SHOAL_TRY(status, shoali_comm_force(self->group, NULL), done);
    if (self->rank == 0)
        SHOAL_TRY(status, write_table(self), done);
    SHOAL_TRY(status, shoal_barrier(self->group), done);
done:
    return status;
}

shoal_status shoali_tune_comm(const shoali_tune_comm_args *args)
{
    struct tuning self = {.args = args, .repeats = args->repeats > 0 ? args->repeats : 5};
    shoal_status status = SHOAL_OK;
    if (args->max_bytes < 4096)
        return SHOAL_FAIL(SHOAL_EINVAL, "tune comm: --max-bytes is %lld: give at least 4096",
                          (long long)args->max_bytes);
    SHOAL_TRY(status, shoal_comm_init(NULL, &self.group), done);
    self.rank = shoal_comm_rank(self.group);
    self.ranks = shoal_comm_size(self.group);
    SHOAL_TRY(status, tune(&self), done);
done:
    if (status < 0 && self.group)
        shoal_comm_abort(self.group, status);
    shoal_comm_destroy(self.group);
    return status;
}
