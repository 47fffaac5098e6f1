/* SPDX-License-Identifier: MIT */
/*
 * A temporary folder with a CA and certificates for tests: "n1" (agent), "control" (orchestrator),
 * "late" (orchestrator, expired), and in foreign/ the same names of another CA.
 */
#ifndef ORDEAL_TESTS_SUPPORT_PKI_H
#define ORDEAL_TESTS_SUPPORT_PKI_H

#include <openssl/ssl.h>

#include "lib/tls.h"

void test_pki_new(void); /* creates it; fails the test when it cannot */
void test_pki_remove(void);
const char *test_pki_folder(void);
const char *test_pki_path(const char *name); /* "control.crt"; good for the next 8 calls */
/* `ca` and `name` may begin with "foreign/". */
SSL_CTX *test_pki_context(enum tls_role role, const char *ca, const char *name);

#endif
