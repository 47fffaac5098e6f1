/* SPDX-License-Identifier: MIT */
/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78; RFC 3720 appendix B.4). */
#ifndef ORDEAL_LIB_CRC32C_H
#define ORDEAL_LIB_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of the whole text: crc32c("123456789", 9) is 0xE3069283. */
uint32_t crc32c(const void *data, size_t length);
/* The same on a processor without an instruction for it; for tests. */
uint32_t crc32c_by_table(const void *data, size_t length);

#endif
