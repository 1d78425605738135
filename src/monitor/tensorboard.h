/* tensorboard - event files that TensorBoard reads. Level L1.
 *
 * FOLDER/events.out.tfevents.SECONDS.HOST.PROCESS.N is a list of records. A *record* is a length of
 * 8 bytes, its checksum, that many bytes, and their checksum; numbers are little endian, a checksum
 * is a masked CRC-32C. The bytes are an *event* in the encoding of Protocol Buffers: the time, the
 * x axis and a *summary* of values by name. The first event names the format. TensorBoard stops at
 * the first record that is not whole, so a batch is in the file as a whole or not at all.
 *
 * Each process begins a file of its own; TensorBoard joins the files of a folder by the x axis.
 *
 * Source: the TFRecord format and the messages Event and Summary of TensorFlow's public protocol
 * descriptions.
 */
#ifndef SHOALI_TENSORBOARD_H
#define SHOALI_TENSORBOARD_H

#include "shoal/monitor.h"

#include <stdint.h>

struct shoali_event_file;

/* Begins a file in a folder that exists. Errors: SHOAL_ENOMEM; SHOAL_EIO names the file. */
SHOAL_CHECKED shoal_status shoali_event_file_create(const char *folder,
                                                    struct shoali_event_file **file);
void shoali_event_file_destroy(struct shoali_event_file *file); /* NULL is fine */
/* Appends one event of `count` values, as 32-bit floats. */
SHOAL_CHECKED shoal_status shoali_event_file_write(struct shoali_event_file *file, int64_t x,
                                                   const shoal_event *events, int32_t count);
/* Appends a text (Markdown), which TensorBoard shows under `name`. */
SHOAL_CHECKED shoal_status shoali_event_file_write_text(struct shoali_event_file *file, int64_t x,
                                                        const char *name, const char *text);

#endif
