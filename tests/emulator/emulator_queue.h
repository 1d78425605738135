/* emulator_queue - what the emulated libraries have from the emulated driver, and each other. */
#ifndef SHOAL_TEST_EMULATOR_QUEUE_H
#define SHOAL_TEST_EMULATOR_QUEUE_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;
/* Runs run(a copy of the argument) in the order of the stream. A code of the driver. */
unsigned emulator_queue(struct CUstream_st *stream, void (*run)(const void *argument),
                        const void *argument, size_t bytes);
/* What SHOAL_EMULATOR_FAIL says of a call of a library's function; 0: nothing. */
unsigned emulator_fail(const char *function);
float emulator_f16_to_f32(uint16_t x);
uint16_t emulator_f32_to_f16(float x);

#endif
