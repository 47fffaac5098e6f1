/* SPDX-License-Identifier: MIT */
#include "lib/crc32c.h"

#include <string.h>

static uint32_t table[8][256];

/* "Slicing by 8": eight table steps a turn, so that verifying a ledger is not bound by its CRC. */
static void fill_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0x82F63B78U : crc >> 1;
        table[0][i] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (uint32_t i = 0; i < 256; i++)
            table[slice][i] = table[slice - 1][i] >> 8 ^ table[0][table[slice - 1][i] & 0xFF];
}

static uint32_t load32(const unsigned char *bytes)
{
    return (uint32_t) bytes[0] | (uint32_t) bytes[1] << 8 | (uint32_t) bytes[2] << 16 |
           (uint32_t) bytes[3] << 24;
}

static uint32_t by_table(uint32_t crc, const unsigned char *bytes, size_t length)
{
    if (table[0][1] == 0)
        fill_table();
    for (; length >= 8; bytes += 8, length -= 8) {
        uint32_t low = crc ^ load32(bytes);
        uint32_t high = load32(bytes + 4);
        crc = table[7][low & 0xFF] ^ table[6][low >> 8 & 0xFF] ^ table[5][low >> 16 & 0xFF] ^
              table[4][low >> 24] ^ table[3][high & 0xFF] ^ table[2][high >> 8 & 0xFF] ^
              table[1][high >> 16 & 0xFF] ^ table[0][high >> 24];
    }
    for (; length > 0; bytes++, length--)
        crc = crc >> 8 ^ table[0][(crc ^ *bytes) & 0xFF];
    return crc;
}

#ifdef __x86_64__

/* SSE 4.2 has an instruction for this polynomial. */
__attribute__((target("sse4.2"))) static uint32_t
by_instruction(uint32_t crc, const unsigned char *bytes, size_t length)
{
    uint64_t state = crc;

    for (; length >= 8; bytes += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, bytes, sizeof word);
        state = __builtin_ia32_crc32di(state, word);
    }
    for (; length > 0; bytes++, length--)
        state = __builtin_ia32_crc32qi((uint32_t) state, *bytes);
    return (uint32_t) state;
}

static uint32_t update(uint32_t crc, const unsigned char *bytes, size_t length)
{
    return __builtin_cpu_supports("sse4.2") ? by_instruction(crc, bytes, length)
                                            : by_table(crc, bytes, length);
}

#else

static uint32_t update(uint32_t crc, const unsigned char *bytes, size_t length)
{
    return by_table(crc, bytes, length);
}

#endif

uint32_t crc32c(const void *data, size_t length)
{
    return update(0xFFFFFFFFU, data, length) ^ 0xFFFFFFFFU;
}

uint32_t crc32c_by_table(const void *data, size_t length)
{
    return by_table(0xFFFFFFFFU, data, length) ^ 0xFFFFFFFFU;
}
