/* wrap - tables that stand in front of a backend and forward to it: check > record > fault >
 * backend. */
#ifndef SHOALI_WRAP_H
#define SHOALI_WRAP_H

#include "comm/comm.h"

/* First member of every wrapper's object. */
struct shoali_wrap {
    const struct shoali_comm_ops *inner_ops;
    void *inner;
};
/* Wrappers differ in size only by what record counts, so every object gets that room. */
enum { SHOALI_RECORD_OPEN = 20 }; /* outstanding requests of a group, and some */
struct shoali_wrap_widest {
    struct shoali_wrap wrap;
    struct shoali_comm_counters counters;
    uint64_t record[4 + 8 * SHOALI_RECORD_OPEN];
};
extern const struct shoali_comm_ops shoali_comm_check, shoali_comm_record, shoali_comm_fault;

/* Puts a wrapper in front; takes `inner` over, on failure too (it is destroyed). */
SHOAL_CHECKED shoal_status shoali_wrap_create(const struct shoali_comm_ops *wrapper,
                                              const struct shoali_comm_ops *inner_ops, void *inner,
                                              void **object);

/* Members that only forward. */
bool shoali_wrap_probe(void);
void shoali_wrap_destroy(void *object);
int32_t shoali_wrap_rank(const void *object);
int32_t shoali_wrap_size(const void *object);
shoal_status shoali_wrap_post(void *object, const struct shoali_post *post, void **request);
shoal_status shoali_wrap_test(void *object, void *request);
shoal_status shoali_wrap_wait(void *object, void *request);
shoal_status shoali_wrap_alloc(void *object, const char *here, size_t bytes, void **memory);
void shoali_wrap_free(void *object, void *memory);
void shoali_wrap_abort(void *object, shoal_status status, const char *sentence);
void shoali_wrap_second_thread(void *object);
void shoali_wrap_set_name(void *object, const char *name);
void shoali_wrap_say_place(void *object);
/* Splits the inner group and wraps the child with `wrapper`. */
shoal_status shoali_wrap_split(const struct shoali_comm_ops *wrapper, void *object,
                               const struct shoali_split_args *args, void **child);

/* The record wrapper's counters. */
void shoali_record_read(const void *object, struct shoali_comm_counters *counters);
struct shoali_comms_log;
void shoali_record_set_log(void *object, struct shoali_comms_log *log);

#endif
